"""From a program to a search: its runs before anything is lowered, and how plans are measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mixpert_py.errors import named
from mixpert_py.execution import gpus
from mixpert_py.launch.launcher import Program
from mixpert_py.machine import machine
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.pipeline import analyze, dependencies
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.in_force import emulates
from mixpert_py.tuner.records import Ladder, Measurement, Operator, Outcome, Problem, Rung
from mixpert_py.tuner.tune import tune
from mixpert_py.tuning import tuned_plan
from mixpert_py.tuning.ahead import Ahead
from mixpert_py.tuning.baseline import Baseline, establish
from mixpert_py.tuning.clock import Clock, Cost, int8_products
from mixpert_py.tuning.comparison import Comparison
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.hold_out import HoldOut
from mixpert_py.tuning.levels import lowered, require_place, rungs
from mixpert_py.tuning.limits import Limits
from mixpert_py.tuning.profiled_operator import profiled_operator, seen_edges
from mixpert_py.tuning.resources import Resources, resources
from mixpert_py.tuning.trials import Trials
from mixpert_py.tuning.wish import Wish


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """All that a search needs, and what its plan file is made with.

    existing: an earlier plan. sites: of the program. earlier: that plan's entries for them, by the
    ids of today. start: site → scheme. predicted: whether times are predicted; device: the GPU that
    they are for, where it is a certain one.
    """

    program: Program
    wish: Wish
    existing: Plan | None
    sites: Mapping[str, CallSite]
    earlier: Mapping[str, Site]
    experiment: Experiment
    baseline: Baseline
    clock: Clock
    operators: tuple[Operator, ...]
    edges: frozenset[tuple[str, str]]
    rungs: tuple[Rung, ...]
    start: Mapping[str, str]
    predicted: bool
    hold_out: HoldOut | None
    resources: Resources
    device: str = ""

    def measure(self, plan: Mapping[str, str]) -> Measurement:
        """One trial, with the times to go by."""
        if set(plan.values()) == {"native"}:
            return self.clock.native
        return self.clock(self.experiment.measure(plan, self.baseline.reference), plan)

    def search(
        self,
        budget: float,
        kind: str,
        measure: Callable[[Mapping[str, str]], Measurement] | None = None,
    ) -> Outcome:
        """One of `tuner.search.SEARCHES`. measure: None for `self.measure`."""
        runs = self.resources.runs if self.experiment.runs_apart else 1
        with Ahead(measure or self.measure, runs) as ahead:
            problem = Problem(
                self.operators,
                self.edges,
                Ladder(self.rungs),
                budget,
                self.clock.noise,
                self.start,
            )
            outcome = tune(
                ahead,
                problem,
                search=kind,
                excess=self.hold_out.excess if self.hold_out else None,
                expect=ahead.expect if runs > 1 else None,
            )
        return replace(outcome, interrupted=True) if ahead.interrupted else outcome


def prepare(
    program: Program,
    wish: Wish,
    existing: Plan | None = None,
    on_run: Callable[[str], None] = lambda purpose: None,
    cost: Cost | None = None,
    trials: Trials | None = None,
) -> Prepared | None:
    """Run a program natively and for its profile; None if it has no product, or calls none.

    existing: an earlier plan, whose locked sites keep their schemes. on_run: told what each run
    is for before it starts. cost: predicts times; None: those of the wish's device, INT8 products
    where its backend emulates, else measured ones. trials: where the runs are kept, and taken from
    when it is resumed; the caller ends them when the plan is written.
    Raises ProgramError if the program fails natively, BudgetError if it is too noisy for the
    budget, MixPertError for an unknown criterion or a trials file that is not ours to write.
    """
    with named(program.argv[0], program.module):
        found = analyze(program.source, program.module)
        flow = dependencies(program.source, program.module)
    sites = {site.id: site for site in found if site.reason is None}
    if not sites:
        return None
    cost = cost or _cost(wish)
    earlier = _earlier(existing, sites)
    locked = {site: entry for site, entry in earlier.items() if entry.locked}
    require_place(wish)
    made_with = resources(wish, program, predicted=cost is not None)
    workers = made_with.workers()
    trials = trials or Trials()
    trials.begin(_subject(program, wish, locked, made_with, predicted=cost is not None))

    def experiment_with(program: Program, limits: Limits) -> Experiment:
        return Experiment(
            program,
            Comparison.of(program, limits, wish.compare, flow),
            backend=wish.backend,
            blocks={site: entry.block for site, entry in locked.items()},
            time_limit=wish.time_limit,
            on_run=on_run,
            trials=trials,
            workers=workers,
        )

    def levels() -> list[str]:
        made_with.require_sound(on_gpu=experiment.on_gpu, predicted=cost is not None)
        return lowered(rungs(wish, experiment.on_gpu))

    experiment = experiment_with(program, wish.limits)
    baseline = establish(experiment, levels, wish.reference)
    if baseline is None:
        return None
    clock = Clock([run.measurement for run in baseline.natives], baseline.profile, cost)
    operators = tuple(
        profiled_operator(sites[site], trace, clock, levels(), site in locked, wish.limits.scale)
        for site, trace in baseline.profile.items()
        if site in sites
    )
    if not operators:
        return None
    hold_out = None
    if wish.hold_out is not None:
        other = replace(program, argv=(program.argv[0], *wish.hold_out))
        allowed = wish.hold_out_limits or wish.limits
        hold_out = HoldOut(experiment_with(other, allowed), wish.reference)
    start = dict.fromkeys((operator.id for operator in operators), "native")
    start |= {site: entry.scheme for site, entry in locked.items() if site in start}
    return Prepared(
        program,
        wish,
        existing,
        sites,
        earlier,
        experiment,
        baseline,
        clock,
        operators,
        flow.edges | seen_edges(baseline.profile),
        rungs(wish, experiment.on_gpu),
        start,
        cost is not None,
        hold_out,
        made_with,
        getattr(cost, "device", ""),
    )


def _cost(wish: Wish) -> Cost | None:
    """What predicts times; None: they are measured. Raises DeviceError for an unknown device."""
    if wish.device is not None:
        from mixpert_py.tuning.device_cost import DeviceCost

        return DeviceCost.of(wish.device)
    return int8_products if emulates(wish.backend) else None


def _subject(
    program: Program,
    wish: Wish,
    locked: Mapping[str, Site],
    made_with: Resources,
    predicted: bool,
) -> dict[str, Any]:
    """What the runs of a tuning, and the order they are made in, depend on.

    Not its other modules and the data that it reads: a verification finds what has become of them.
    """
    made = tuned_plan.provenance(program, wish.backend, wish.command, made_with.threads)
    gpu = gpus.usable(wish.backend)
    return {
        "source": made.sha256,
        "module": program.module,
        "arguments": program.argv[1:],
        "limits": wish.limits.record(),
        "reference": wish.reference,
        "compare": wish.compare,
        "backend": made.backend,
        "search": wish.search,
        "hold_out": [wish.hold_out, wish.hold_out_limits and wish.hold_out_limits.record()],
        "ladder": wish.ladder,
        "gpu": None if gpu is None else gpu.name,
        "locked": {site: [entry.scheme, entry.block] for site, entry in locked.items()},
        "predicted": predicted,
        "device": wish.device,
        "versions": made.versions,
        "cpu": machine()["cpu"],
        "blas_threads": made.blas_threads,
    }


def _earlier(existing: Plan | None, sites: Iterable[str]) -> dict[str, Site]:
    """The entries of an earlier plan for these call sites, by the sites' ids of today."""
    found = {site: existing.find(site) for site in sites} if existing else {}
    return {site: entry for site, entry in found.items() if entry is not None}
