"""The staircase of accuracy and speed: the fastest plan within each of many budgets, in one search.

The budgets are decades, searched from the loosest to the tightest. Every run improves one model of
the errors, whichever budget it was made for, and a plan that was run is a candidate within all
budgets. So later budgets take few runs, and those between two steps take none: what is the fastest
plan within a budget is also the fastest within every tighter one that it meets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mixpert_py.tuner.predictive import PredictiveSearch
from mixpert_py.tuner.records import (
    Expect,
    Measure,
    Measurement,
    Outcome,
    Problem,
    Reason,
    Schemes,
    Trial,
)
from mixpert_py.tuner.search import OnTrial, SearchState
from mixpert_py.tuner.tune import begin, outcome_of

WORTH_A_STEP = 0.02  # part of the program's time: what gains less is no step of its own
PATIENCE = 5  # plans refused in a row, after which the next budget is searched
TIGHTEST = 1e-15  # the last digits of float64; no budget below it is searched


@dataclass(frozen=True, slots=True)
class Step:
    """A plan that was run, and the tightest decade that its error is within."""

    budget: float
    plan: Schemes
    measurement: Measurement

    @property
    def error(self) -> float:
        return self.measurement.error


@dataclass(frozen=True, slots=True)
class Front:
    """The result of a search for all budgets.

    steps: the most accurate first, each faster than all before it and than the program as it is.
    outcome: that of the loosest budget, with every trial of the search.
    """

    outcome: Outcome
    steps: tuple[Step, ...]


def front(
    measure: Measure,
    problem: Problem,
    *,
    on_trial: OnTrial | None = None,
    expect: Expect | None = None,
    tightest: float = TIGHTEST,
) -> Front:
    """The staircase of plans within problem.budget, the loosest, and tighter ones, by decades.

    tightest: the budget below which none is searched. The other arguments, Ctrl-C and what is
    raised are as for `tune`.
    """
    state = begin(measure, problem, on_trial, expect)
    if not state.start.measurement.error <= problem.budget:
        return Front(outcome_of(state, Reason.START_OVER_BUDGET), ())
    search = PredictiveSearch(state, max(problem.until, WORTH_A_STEP))
    reason = Reason.BOTTOM
    try:
        _descend(search, tightest)
    except KeyboardInterrupt:
        reason = Reason.INTERRUPTED
    search.go_on_within(problem.budget)
    search.explain()
    return Front(outcome_of(state, reason), tuple(_steps(state, tightest)))


def at(outcome: Outcome, step: Step) -> Outcome:
    """The outcome as if the search had ended in a step."""
    seconds = step.measurement.site_seconds
    verdicts = (
        replace(
            verdict,
            after=step.plan[verdict.operator.id],
            seconds_after=seconds.get(verdict.operator.id, 0.0),
        )
        for verdict in outcome.verdicts
    )
    return replace(
        outcome,
        plan=step.plan,
        verdicts=tuple(verdicts),
        best=step.measurement,
        budget=step.budget,
    )


def decades(loosest: float, tightest: float) -> Iterator[float]:
    """The loosest budget, and its tenth parts as far as the tightest."""
    power, budget = 0, loosest
    while budget >= tightest:
        yield budget
        power += 1
        budget = float(f"{loosest * 10.0**-power:.6g}")  # a short decimal number


def _descend(search: PredictiveSearch, tightest: float) -> None:
    """Search within each decade at which the fastest plan so far does not do."""
    state = search.state
    for budget in decades(state.problem.budget, tightest):
        if not state.start.measurement.error <= budget:
            return
        if state.incumbent is not state.start and state.incumbent.measurement.error <= budget:
            continue
        search.go_on_within(budget)
        search.descend(PATIENCE)
        if state.incumbent is state.start:  # and so it is within every tighter budget
            return


def _steps(state: SearchState, tightest: float) -> Iterator[Step]:
    before = state.start
    budgets: Sequence[float] = list(decades(state.problem.budget, tightest))
    for budget in reversed(budgets):
        known = state.sound_within(budget)
        if not known:
            continue
        fastest = min(known, key=lambda trial: trial.measurement.in_products)
        if _is_faster(state, before, fastest):
            # Of those that are as fast, the most accurate; it may be within a tighter decade, too.
            equal = [x for x in known if not _is_faster(state, x, fastest)]
            best = min(equal, key=lambda trial: trial.measurement.error)
            yield Step(budget, best.plan, best.measurement)
            before = best


def _is_faster(state: SearchState, before: Trial, after: Trial) -> bool:
    """Whether a trial gains more than the noise, and enough to be a step of its own."""
    times, others = before.measurement.site_seconds, after.measurement.site_seconds
    changed = [site for site in after.plan if after.plan[site] != before.plan[site]]
    gain = sum(times.get(site, 0.0) - others.get(site, 0.0) for site in changed)
    least = max(state.noise(*changed), WORTH_A_STEP * before.measurement.seconds)
    return gain > least
