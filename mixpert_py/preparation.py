"""From a program to a search: its runs before anything is lowered, and how plans are measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from mixpert_py import judge, tuned_plan
from mixpert_py.baseline import Baseline, establish
from mixpert_py.bench.machine import machine
from mixpert_py.clock import Clock, Cost, int8_products
from mixpert_py.experiment import Comparison, Experiment
from mixpert_py.hold_out import HoldOut
from mixpert_py.launcher import Program, named
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.dependency import Dependencies
from mixpert_py.passes.pipeline import analyze, dependencies
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.schemes import ladder
from mixpert_py.trials import Trials
from mixpert_py.tuner.ladder import Rung
from mixpert_py.tuner.measurement import Measurement
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.outcome import Outcome
from mixpert_py.tuner.search import tune
from mixpert_py.wish import Wish
from mixpert_py.worker import SiteResult


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """All that a search needs, and what its plan file is made with.

    sites: of the program. earlier: entries of an earlier plan for them, by the ids of today. start:
    site → scheme. predicted: whether times are predicted.
    """

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
        return tune(
            measure or self.measure,
            self.operators,
            self.edges,
            self.rungs,
            budget,
            noise=self.clock.noise,
            start=self.start,
            search=kind,
            excess=self.hold_out.excess if self.hold_out else None,
        )


def prepare(
    program: Program,
    wish: Wish,
    existing: Plan | None = None,
    on_run: Callable[[str], None] = lambda purpose: None,
    cost: Cost | None = None,
    trials: Trials | None = None,
) -> Prepared | None:
    """Run a program natively and for its profile; None if it has no product, or calls none.

    Arguments and errors as in `tuning.tune_program`.
    """
    with named(program.argv[0], program.module):
        found = analyze(program.source, program.module)
        flow = dependencies(program.source, program.module)
    sites = {site.id: site for site in found if site.reason is None}
    if not sites:
        return None
    if cost is None and wish.backend == "reference":
        cost = int8_products
    earlier = _earlier(existing, sites)
    locked = {site: entry for site, entry in earlier.items() if entry.locked}
    rungs = ladder("int8" if wish.backend == "reference" else "cpu")
    levels = [name for rung in rungs for name in rung if name != "native"]
    trials = trials or Trials()
    trials.begin(_subject(program, wish, locked, levels, predicted=cost is not None))

    def experiment_with(program: Program) -> Experiment:
        return Experiment(
            program,
            comparison(program, wish.criterion, wish.compare, flow),
            backend=wish.backend,
            blocks={site: entry.block for site, entry in locked.items()},
            time_limit=wish.time_limit,
            on_run=on_run,
            trials=trials,
        )

    experiment = experiment_with(program)
    baseline = establish(experiment, wish.budget, levels)
    if baseline is None:
        return None
    clock = Clock([run.measurement for run in baseline.natives], baseline.profile, cost)
    operators = tuple(
        _operator(sites[site], trace, clock, levels, site in locked)
        for site, trace in baseline.profile.items()
        if site in sites
    )
    if not operators:
        return None
    hold_out = None
    if wish.hold_out is not None:
        other = replace(program, argv=(program.argv[0], *wish.hold_out))
        budget = wish.budget if wish.hold_out_budget is None else wish.hold_out_budget
        hold_out = HoldOut(experiment_with(other), budget)
    start = dict.fromkeys((operator.id for operator in operators), "native")
    start |= {site: entry.scheme for site, entry in locked.items() if site in start}
    return Prepared(
        sites,
        earlier,
        experiment,
        baseline,
        clock,
        operators,
        flow.edges,
        rungs,
        start,
        cost is not None,
        hold_out,
    )


def _subject(
    program: Program,
    wish: Wish,
    locked: Mapping[str, Site],
    levels: Iterable[str],
    predicted: bool,
) -> dict[str, Any]:
    """What the runs of a tuning, and the order they are made in, depend on.

    Not its other modules and the data that it reads: a verification finds what has become of them.
    """
    made = tuned_plan.provenance(program, wish.backend, wish.command)
    return {
        "source": made.sha256,
        "module": program.module,
        "arguments": program.argv[1:],
        "budget": wish.budget,
        "criterion": wish.criterion,
        "compare": wish.compare,
        "backend": made.backend,
        "search": wish.search,
        "hold_out": [wish.hold_out, wish.hold_out_budget],
        "ladder": list(levels),
        "locked": {site: [entry.scheme, entry.block] for site, entry in locked.items()},
        "predicted": predicted,
        "versions": made.versions,
        "cpu": machine()["cpu"],
        "blas_threads": made.blas_threads,
    }


def _earlier(existing: Plan | None, sites: Iterable[str]) -> dict[str, Site]:
    """The entries of an earlier plan for these call sites, by the sites' ids of today."""
    found = {site: existing.find(site) for site in sites} if existing else {}
    return {site: entry for site, entry in found.items() if entry is not None}


def comparison(
    program: Program, criterion: str, compare: tuple[str, ...], flow: Dependencies
) -> Comparison:
    """What of a program is compared: what the user named, else what its products reach.

    Raises MixPertError for an unknown criterion.
    """
    files = tuple(name for name in compare if name.endswith(".npy"))
    return Comparison(
        criterion=judge.resolve(criterion, program.path),
        variables=tuple(name for name in compare if name not in files),
        files=files,
        names=() if compare else flow.names,
        sinks=() if compare else flow.sinks,
    )


def _operator(
    site: CallSite, trace: SiteResult, clock: Clock, levels: Iterable[str], locked: bool
) -> Operator:
    return Operator(
        id=site.id,
        expression=site.expression,
        line=site.line,
        calls=trace.calls,
        shapes=tuple((m, k, n) for m, k, n, _ in trace.shapes),
        seconds=clock.native.site_seconds.get(site.id, 0.0),
        local_errors={
            scheme: nan if error is None else error for scheme, error in trace.errors.items()
        },
        predicted=clock.predicted(site.id, levels),
        locked=locked,
    )
