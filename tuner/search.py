"""Finding a plan: the fastest that a search reaches within the budget."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import isfinite

from mixpert_py.errors import BudgetError, PlanError
from mixpert_py.tuner.controls import at_random, exhaustive
from mixpert_py.tuner.descent import Descent, OnTrial
from mixpert_py.tuner.greedy import greedy, longest_first
from mixpert_py.tuner.ladder import Ladder, Rung
from mixpert_py.tuner.measurement import Expect, Measure
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.outcome import Outcome, Verdict
from mixpert_py.tuner.predictive import predictive
from mixpert_py.tuner.reason import Reason
from mixpert_py.tuner.trial import Trial

SEARCHES: dict[str, Callable[[Descent], None]] = {
    "predictive": predictive,
    "greedy": greedy,
    "exhaustive": exhaustive,
    "random": at_random,
}
DEFAULT = "predictive"
ROUNDS = 3  # of searching again, as long as what is found does not hold elsewhere


def tune(
    measure: Measure,
    operators: Iterable[Operator],
    edges: Iterable[tuple[str, str]],
    ladder: tuple[Rung, ...],
    budget: float,
    *,
    noise: float | Mapping[str, float],
    on_trial: OnTrial | None = None,
    start: Mapping[str, str] | None = None,
    search: str = DEFAULT,
    excess: Callable[[Mapping[str, str]], float] | None = None,
    expect: Expect | None = None,
) -> Outcome:
    """Lower operators until the budget, the clock or the ladder says stop.

    edges: (P, S) where a value computed from P's result can reach an operand of S.
    ladder: rungs of incomparable schemes, best first.
    noise: the smallest gain that counts, in the unit of Measurement.site_seconds; for all, or per
    site (those of the changed sites are added).
    start: site → scheme where the search is not to begin at the top; locked sites keep it.
    on_trial: called with every Trial as it is judged; the start is the first.
    search: one of SEARCHES. excess: how many times its budget a plan's error is elsewhere; as long
    as that is more than once, the search is made again for as much less, or for half, three times
    at most, and then the start stays. expect: told what may be measured next; what is found does
    not depend on it.

    No plan is run twice. Ctrl-C ends the search with the best plan so far, `interrupted` set;
    during the very first run nothing is known yet and KeyboardInterrupt goes on.
    Raises ProgramError if the program fails under the start, PlanError if an unlocked site starts
    with a scheme that is not on the ladder, or an exhaustive search would take too many runs,
    BudgetError unless budget ≥ 0.
    """
    if search not in SEARCHES:
        raise PlanError(f"unknown search {search!r}; known: {', '.join(SEARCHES)}")
    if not budget >= 0:
        raise BudgetError(f"a budget is a number ≥ 0, not {budget}")
    rungs = Ladder(ladder)
    operators = tuple(operators)
    plan = {operator.id: rungs.top for operator in operators} | dict(start or {})
    for operator in operators:
        if not operator.locked:
            rungs.level(operator.id, plan[operator.id])
    descent = Descent(measure, operators, edges, rungs, budget, noise, on_trial, plan, expect)
    if not descent.start.measurement.error <= budget:
        return _outcome(descent, Reason.START_OVER_BUDGET)
    try:
        _search(descent, SEARCHES[search], excess)
    except KeyboardInterrupt:
        return _outcome(descent, Reason.INTERRUPTED)
    return _outcome(descent, Reason.BOTTOM)


def _search(
    descent: Descent,
    search: Callable[[Descent], None],
    excess: Callable[[Mapping[str, str]], float] | None,
) -> None:
    """Search, and again for less as long as what is found does not hold elsewhere."""
    search(descent)
    if excess is None or descent.kept is descent.start:
        return
    share, rounds = 1.0, 0
    while descent.kept is not descent.start:
        beyond = excess(descent.kept.plan)
        if beyond <= 1:
            return
        if rounds == ROUNDS:
            break
        rounds += 1
        share *= min(0.5, 1 / beyond) if isfinite(beyond) else 0.5
        descent.begin_anew(share)
        search(descent)
    descent.begin_anew(1.0)
    for operator in descent.operators.values():
        descent.stopped[operator.id] = descent.unmoved(operator) or Reason.HOLD_OUT, ""


def _explained(trial: Trial, budget: float) -> Trial:
    """A trial that was over a share of the budget, and within it, failed for the hold-out."""
    if trial.reason is Reason.OVER_BUDGET and trial.measurement.error <= budget:
        return replace(trial, reason=Reason.HOLD_OUT)
    return trial


def _outcome(descent: Descent, otherwise: Reason) -> Outcome:
    """The state of a search as a record; `otherwise` is said of operators it did not finish."""
    start, best = descent.start, descent.kept
    trials = [_explained(trial, descent.whole_budget) for trial in descent.trials]
    elsewhere = {x for trial in trials if trial.reason is Reason.HOLD_OUT for x in trial.changed}
    verdicts = []
    for operator in longest_first(descent):
        reason, detail = descent.stopped.get(operator.id, (otherwise, ""))
        if reason is Reason.OVER_BUDGET and operator.id in elsewhere:
            reason = Reason.HOLD_OUT
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
        budget=descent.whole_budget,
        interrupted=otherwise is Reason.INTERRUPTED,
    )
