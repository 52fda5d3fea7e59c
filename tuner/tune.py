"""The tuner's entry: `tune` finds the fastest plan within a budget by one of the searches."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import isfinite, prod

from mixpert_py.errors import BudgetError, PlanError
from mixpert_py.tuner.greedy import greedy
from mixpert_py.tuner.predictive import predictive
from mixpert_py.tuner.records import (
    Expect,
    Measure,
    Outcome,
    Problem,
    Reason,
    Schemes,
    Trial,
    Verdict,
)
from mixpert_py.tuner.search import SearchState

Search = Callable[[SearchState], None]
Excess = Callable[[Schemes], float]
"""The error of a plan on hold-out data, as a multiple of the budget there."""

DEFAULT = "predictive"
REPETITIONS = 6  # of a search whose plan is over budget on a hold-out
MOST_PLANS = 20_000  # that an exhaustive search may run
DRAWN = 50  # plans that a random search runs


def tune(
    measure: Measure,
    problem: Problem,
    *,
    search: str = DEFAULT,
    excess: Excess | None = None,
    expect: Expect | None = None,
) -> Outcome:
    """Lower operators as far as the budget, the noise of the clock and the ladder allow.

    search: one of SEARCHES. excess: as long as it is more than 1 for the plan found, the search is
    repeated with a budget smaller by that factor, and by at least a half, six times at most; then
    the start stays. expect: see `Expect`.

    No plan is run twice. Ctrl-C ends the search with the best plan so far, `interrupted` set;
    during the very first run there is no plan yet, and KeyboardInterrupt is raised.
    Raises ProgramError if the program fails under the start, PlanError if an unlocked site starts
    with a scheme that is not on the ladder, or an exhaustive search would take too many runs,
    BudgetError unless budget ≥ 0.
    """
    if search not in SEARCHES:
        raise PlanError(f"unknown search {search!r}; known: {', '.join(SEARCHES)}")
    state = _begin(measure, problem, expect)
    if not state.start.measurement.error <= problem.budget:
        return _outcome(state, Reason.START_OVER_BUDGET)
    try:
        _search_within_hold_out(state, SEARCHES[search], excess)
    except KeyboardInterrupt:
        return _outcome(state, Reason.INTERRUPTED)
    return _outcome(state, Reason.BOTTOM)


def _begin(measure: Measure, problem: Problem, expect: Expect | None) -> SearchState:
    """The state at the start of a search. Raises as `tune` does."""
    if not problem.budget >= 0:
        raise BudgetError(f"a budget is a number ≥ 0, not {problem.budget}")
    top = dict.fromkeys((x.id for x in problem.operators), problem.ladder.top)
    problem = replace(problem, start=top | dict(problem.start))
    for operator in problem.operators:
        if not operator.locked:
            problem.ladder.level(operator.id, problem.start[operator.id])
    return SearchState(measure, problem, expect)


def exhaustive(state: SearchState) -> None:
    """Run every plan. Raises PlanError where they are more than 20,000."""
    options = _options(state)
    count = prod(len(schemes) for schemes in options.values())
    if count > MOST_PLANS:
        raise PlanError(f"an exhaustive search would run {count:,} plans; at most {MOST_PLANS:,}")
    plans = product(*options.values())
    _consider_all(state, [dict(zip(options, schemes, strict=True)) for schemes in plans])


def at_random(state: SearchState) -> None:
    """Run 50 plans, each scheme of each operator equally likely; the draw is always the same."""
    options = _options(state)
    draw = random.Random(0)
    plans = [
        {site: draw.choice(schemes) for site, schemes in options.items()} for _ in range(DRAWN)
    ]
    _consider_all(state, plans)


# The last two are controls that the others are compared with.
SEARCHES: dict[str, Search] = {
    "predictive": predictive,
    "greedy": greedy,
    "exhaustive": exhaustive,
    "random": at_random,
}


def _options(state: SearchState) -> dict[str, list[str]]:
    return {site: state.options(operator) for site, operator in state.operators.items()}


def _consider_all(state: SearchState, plans: list[dict[str, str]]) -> None:
    start = state.start.plan
    changed = [{site: plan[site] for site in plan if plan[site] != start[site]} for plan in plans]
    if steps := [step for step in changed if step]:
        state.consider(*steps)
    _stop_all(state, Reason.SEARCHED)


def _stop_all(state: SearchState, reason: Reason) -> None:
    for operator in state.operators.values():
        state.stopped[operator.id] = state.why_fixed(operator) or reason, ""


def _search_within_hold_out(state: SearchState, search: Search, excess: Excess | None) -> None:
    """Search, and repeat it with a smaller budget while the plan is over budget on the hold-out."""
    search(state)
    if excess is None or state.incumbent is state.start:
        return
    share, rounds = 1.0, 0
    while state.incumbent is not state.start:
        beyond = excess(state.incumbent.plan)
        if beyond <= 1:
            return
        if rounds == REPETITIONS:
            break
        rounds += 1
        share *= min(0.5, 1 / beyond) if isfinite(beyond) else 0.5
        state.restart(share)
        search(state)
    state.restart(1.0)
    _stop_all(state, Reason.HOLD_OUT)


def _explained(trial: Trial, budget: float) -> Trial:
    """The trial, refused because of the hold-out if it was within the whole budget."""
    if trial.reason is Reason.OVER_BUDGET and trial.measurement.error <= budget:
        return replace(trial, reason=Reason.HOLD_OUT)
    return trial


def _outcome(state: SearchState, otherwise: Reason) -> Outcome:
    """The outcome of a search. otherwise: the reason for operators that it did not finish."""
    start, best, budget = state.start, state.incumbent, state.problem.budget
    trials = state.trials
    if state.is_tightened:
        trials = [_explained(trial, budget) for trial in trials]
    not_taken = {x: why for trial in trials for x, why in trial.measurement.not_taken.items()}
    held_out = {x for trial in trials if trial.reason is Reason.HOLD_OUT for x in trial.changed}
    verdicts = []
    for operator in state.longest_first():
        reason, detail = state.stopped.get(operator.id, (otherwise, ""))
        if reason is Reason.OVER_BUDGET and operator.id in held_out:
            reason = Reason.HOLD_OUT
        if reason is Reason.UNSUITED:
            detail = operator.unsuited
        elif reason is Reason.NOT_TAKEN:
            detail = detail or not_taken.get(operator.id, "")
        verdicts.append(
            Verdict(
                operator,
                before=start.plan[operator.id],
                after=best.plan[operator.id],
                seconds_before=start.measurement.site_seconds.get(operator.id, 0.0),
                seconds_after=best.measurement.site_seconds.get(operator.id, 0.0),
                reason=reason,
                detail=detail,
            )
        )
    return Outcome(
        plan=best.plan,
        verdicts=tuple(verdicts),
        trials=tuple(trials),
        start=start.measurement,
        best=best.measurement,
        budget=budget,
        interrupted=otherwise is Reason.INTERRUPTED,
    )
