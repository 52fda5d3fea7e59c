"""Finding a plan: the fastest that a search reaches within the budget."""

from collections.abc import Callable, Iterable, Mapping

from mixpert_py.errors import BudgetError, PlanError
from mixpert_py.tuner.controls import at_random, exhaustive
from mixpert_py.tuner.descent import Descent, OnTrial
from mixpert_py.tuner.greedy import greedy, longest_first
from mixpert_py.tuner.ladder import Ladder, Rung
from mixpert_py.tuner.measurement import Measure
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.outcome import Outcome, Verdict
from mixpert_py.tuner.predictive import predictive
from mixpert_py.tuner.reason import Reason

SEARCHES: dict[str, Callable[[Descent], None]] = {
    "predictive": predictive,
    "greedy": greedy,
    "exhaustive": exhaustive,
    "random": at_random,
}
DEFAULT = "predictive"


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
) -> Outcome:
    """Lower operators until the budget, the clock or the ladder says stop.

    edges: (P, S) where a value computed from P's result can reach an operand of S.
    ladder: rungs of incomparable schemes, best first.
    noise: the smallest gain that counts, in the unit of Measurement.site_seconds; for all, or per
    site (those of the changed sites are added).
    start: site → scheme where the search is not to begin at the top; locked sites keep it.
    on_trial: called with every Trial as it is judged; the start is the first.
    search: one of SEARCHES.

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
    descent = Descent(measure, operators, edges, rungs, budget, noise, on_trial, plan)
    if not descent.start.measurement.error <= budget:
        return _outcome(descent, Reason.START_OVER_BUDGET)
    try:
        SEARCHES[search](descent)
    except KeyboardInterrupt:
        return _outcome(descent, Reason.INTERRUPTED)
    return _outcome(descent, Reason.BOTTOM)


def _outcome(descent: Descent, otherwise: Reason) -> Outcome:
    """The state of a search as a record; `otherwise` is said of operators it did not finish."""
    start, best = descent.start, descent.kept
    verdicts = []
    for operator in longest_first(descent):
        reason, detail = descent.stopped.get(operator.id, (otherwise, ""))
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
        trials=tuple(descent.trials),
        start=start.measurement,
        best=best.measurement,
        budget=descent.budget,
        interrupted=otherwise is Reason.INTERRUPTED,
    )
