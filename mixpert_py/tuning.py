"""`mixpert tune`: a program and a budget in, a plan out. Joins experiment, search and plan file.

Native runs, then one run that profiles every operator, then the search, then a verification in
fresh processes, native and planned runs in turn.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isnan, nan
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
from mixpert_py.plan import Criterion, Plan, Site
from mixpert_py.runtime.schemes import ladder
from mixpert_py.trials import Trials
from mixpert_py.tuner.measurement import Measurement
from mixpert_py.tuner.noise import SMALLEST_GAIN
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.outcome import Outcome
from mixpert_py.tuner.search import DEFAULT, tune
from mixpert_py.verification import PAIRS, Verification, summary, verify
from mixpert_py.worker import SiteResult


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for. `criterion`: a metric's name or `module:function`; `search`: one of
    `tuner.search.SEARCHES`; hold_out: other arguments, under which the plan is to be within
    hold_out_budget (None: the budget) too.
    """

    budget: float
    criterion: str = "frobenius"
    compare: tuple[str, ...] = ()
    backend: str | None = None
    time_limit: float | None = None
    search: str = DEFAULT
    command: str = ""
    hold_out: tuple[str, ...] | None = None
    hold_out_budget: float | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning ended with.

    hold_out: the plan's error under the hold-out's arguments; None where there were none.
    predicted: the search went by predicted times. reverted: it found a plan, but in fresh processes
    that was no faster, so `plan` is what the search began with.
    """

    outcome: Outcome
    plan: Plan
    verification: Verification
    predicted: bool
    reverted: bool = False
    hold_out: float | None = None

    @property
    def worth_writing(self) -> bool:
        """Whether the plan is better than none: not that of a search that had just begun."""
        return self.outcome.lowered or not self.outcome.interrupted


def tune_program(
    program: Program,
    wish: Wish,
    existing: Plan | None = None,
    on_run: Callable[[str], None] = lambda purpose: None,
    cost: Cost | None = None,
    trials: Trials | None = None,
) -> Tuned | None:
    """Tune a program; None if it has no product to tune, or calls none.

    existing: an earlier plan, whose locked sites keep their schemes. on_run: told what each run
    is for before it starts. cost: predicts times; None: measured ones, or INT8 products where the
    wish's backend emulates. trials: where the runs are kept, and taken from when it is resumed; the
    caller ends them when the plan is written.
    Raises ProgramError if the program fails natively, BudgetError if it is too noisy for the budget
    or a fresh process does not confirm the plan, MixPertError for an unknown criterion or a trials
    file that is not ours to write.
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
            _comparison(program, wish, flow),
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
    operators = [
        _operator(sites[site], trace, clock, levels, site in locked)
        for site, trace in baseline.profile.items()
        if site in sites
    ]
    if not operators:
        return None

    hold_out = None
    if wish.hold_out is not None:
        other = replace(program, argv=(program.argv[0], *wish.hold_out))
        budget = wish.budget if wish.hold_out_budget is None else wish.hold_out_budget
        hold_out = HoldOut(experiment_with(other), budget)

    def measure(plan: Mapping[str, str]) -> Measurement:
        if set(plan.values()) == {"native"}:
            return clock.native
        return clock(experiment.measure(plan, baseline.reference), plan)

    start = dict.fromkeys((operator.id for operator in operators), "native")
    start |= {site: entry.scheme for site, entry in locked.items() if site in start}
    outcome = tune(
        measure,
        operators,
        flow.edges,
        rungs,
        wish.budget,
        noise=clock.noise,
        start=start,
        search=wish.search,
        excess=hold_out.excess if hold_out else None,
    )
    outcome, verification = _verified(experiment, baseline, outcome, wish.budget, cost is not None)
    reverted = (
        outcome.lowered
        and not outcome.interrupted
        and cost is None
        and verification.lowered > (1 - SMALLEST_GAIN) * verification.native_lowered
    )
    schemes = start if reverted else outcome.plan
    plan = Plan(
        provenance=tuned_plan.provenance(program, wish.backend, wish.command),
        criterion=[_criterion(wish, outcome, verification, reverted)],
        site=[
            *tuned_plan.sites(outcome, schemes, experiment.blocks, predicted=cost is not None),
            *_kept(existing, earlier, sites),
        ],
    )
    found_there = hold_out.error if hold_out and outcome.lowered and not reverted else None
    return Tuned(outcome, plan, verification, cost is not None, reverted, found_there)


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


def _criterion(
    wish: Wish, outcome: Outcome, verification: Verification, reverted: bool
) -> Criterion:
    """What the plan that is written has reached: the start's error where it is the start."""
    achieved = outcome.best.error if outcome.interrupted else verification.error
    if reverted:
        achieved = outcome.start.error
    # What could not be compared is as far off as can be.
    achieved = inf if isnan(achieved) else achieved
    return Criterion(verification.worst, wish.criterion, wish.budget, achieved)


def _comparison(program: Program, wish: Wish, flow: Dependencies) -> Comparison:
    files = tuple(name for name in wish.compare if name.endswith(".npy"))
    return Comparison(
        criterion=judge.resolve(wish.criterion, program.path),
        variables=tuple(name for name in wish.compare if name not in files),
        files=files,
        names=() if wish.compare else flow.names,
        sinks=() if wish.compare else flow.sinks,
    )


def _kept(
    existing: Plan | None, earlier: Mapping[str, Site], sites: Mapping[str, CallSite]
) -> list[Site]:
    """Entries of an earlier plan that are not this program's to rewrite: other modules', and
    locked ones whose site is gone."""
    modules = {site.partition(":")[0] for site in sites}
    known = {entry.id for entry in earlier.values()} | sites.keys()
    return [
        entry
        for entry in (existing.site if existing else [])
        if entry.id not in known and (entry.locked or entry.id.partition(":")[0] not in modules)
    ]


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


def _verified(
    experiment: Experiment, baseline: Baseline, outcome: Outcome, budget: float, predicted: bool
) -> tuple[Outcome, Verification]:
    """The outcome, interrupted if its verification was, and what fresh processes showed."""
    if outcome.lowered and not outcome.interrupted:
        try:
            pairs = 1 if predicted else PAIRS
            return outcome, verify(experiment, baseline.reference, outcome.plan, budget, pairs)
        except KeyboardInterrupt:
            outcome = replace(outcome, interrupted=True)
    return outcome, summary(baseline.natives, baseline.natives)
