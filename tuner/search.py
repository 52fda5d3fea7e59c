"""`tune` finds the fastest plan within a budget, by a search that is a function of `SearchState`.

Every plan is run, judged and adopted or refused by `SearchState.consider`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite, nan

from mixpert_py.errors import BudgetError, ProgramError
from mixpert_py.tuner.records import (
    Measure,
    Measurement,
    Operator,
    Outcome,
    PlanKey,
    Schemes,
    StopReason,
    Trial,
    TuningProblem,
    Verdict,
    plan_key,
)

REPETITIONS = 6  # of a search whose plan is over budget on a hold-out
# Of several refused trials the one whose reason comes first here stands for all: it says most about
# the rungs below.
PRECEDENCE = (
    *(StopReason.KEPT, StopReason.NOT_FASTER, StopReason.OVER_BUDGET),
    *(StopReason.HOLD_OUT, StopReason.NOT_TAKEN, StopReason.FAILED),
)


class SearchState:
    """The incumbent of a search, every trial so far, and why operators are lowered no further.

    problem: with a complete start plan, which is run at once. Raises ProgramError if the program
    fails under it.

    incumbent: the best trial that was run, valid at any moment. budget: the error that trials are
    judged by now, which is the problem's budget or a smaller one. is_tightened: whether that is
    because of a hold-out. stopped: site → the reason and the detail of its Verdict.
    """

    def __init__(self, measure: Measure, problem: TuningProblem) -> None:
        self.problem = problem
        self.operators = {operator.id: operator for operator in problem.operators}
        self.ladder = problem.ladder
        self.budget = problem.budget
        self.is_tightened = False
        self.trials: list[Trial] = []
        self.stopped: dict[str, tuple[StopReason, str]] = {}
        self._measure = measure
        self._measured: dict[PlanKey, Measurement] = {}
        measurement = self._run(problem.start)
        if measurement.problem is not None:
            raise ProgramError(f"the program fails before anything changes: {measurement.problem}")
        self.start = self.incumbent = Trial(dict(problem.start), measurement)
        self.trials.append(self.start)

    def restart(self, share: float) -> None:
        """Return to the start, with a share of the budget. No plan is run a second time."""
        self.is_tightened = True
        self.budget = share * self.problem.budget
        self.incumbent = self.start
        self.stopped.clear()

    def consider(self, *steps: Mapping[str, str]) -> Trial:
        """Try each step (site → scheme) from the incumbent, and adopt the best that passes.

        A step passes if the schemes it changes to took calls, the program's error is within the
        budget, and the sites it changes get faster together by more than the noise. The best is the
        fastest; of those within the noise of it, the one with the smallest error. Returns the new
        incumbent, else the refused trial nearest to passing.
        """
        tried: list[Trial] = []
        try:
            for step in steps:
                plan = {**self.incumbent.plan, **step}
                tried.append(self._judge(plan, self._run(plan)))
                self.trials.append(tried[-1])
        finally:
            # An interrupt comes this way too, and must not lose a trial that has passed.
            passed = [trial for trial in tried if trial.reason is StopReason.KEPT]
            if passed:
                self.incumbent = self._best(passed)
        if passed:
            return self.incumbent
        return min(tried, key=lambda it: (PRECEDENCE.index(it.reason), -it.gain))

    def restore(self, step: Mapping[str, str]) -> None:
        """Try a step whose only purpose is a smaller error; it passes if it is no slower."""
        plan = {**self.incumbent.plan, **step}
        trial = self._judge(plan, self._run(plan))
        if trial.reason is StopReason.NOT_FASTER and trial.gain >= -self.noise(*trial.changed):
            trial = replace(trial, reason=StopReason.KEPT)
        self.trials.append(trial)
        if trial.reason is StopReason.KEPT:
            self.incumbent = trial

    def seconds(self, site: str) -> float:
        """A site's time under the incumbent; 0 if it did not run."""
        return self.incumbent.measurement.site_seconds.get(site, 0.0)

    def noise(self, *sites: str) -> float:
        """The smallest gain of these sites together that counts."""
        if isinstance(self.problem.noise, Mapping):
            return sum(self.problem.noise.get(site, 0.0) for site in sites)
        return self.problem.noise

    def longest_first(self) -> list[Operator]:
        return sorted(self.operators.values(), key=lambda operator: -operator.seconds)

    def why_fixed(self, operator: Operator) -> StopReason | None:
        """Why an operator is not lowered at all; None if it may be."""
        if operator.locked:
            return StopReason.LOCKED
        if operator.elsewhere:
            return StopReason.ELSEWHERE
        if operator.id not in self.start.measurement.site_seconds:
            return StopReason.NEVER_RAN
        if operator.unsuited or (operator.shapes and all(0 in shape for shape in operator.shapes)):
            return StopReason.UNSUITED
        if self.start.measurement.site_seconds[operator.id] <= self.noise(operator.id):
            return StopReason.TOO_SHORT
        lower = self.below(operator)
        if lower and all(scheme in operator.excluded for scheme in lower):
            return operator.excluded[lower[0]]
        return None

    def options(self, operator: Operator) -> list[str]:
        """The schemes that an operator may run under: the start's first, then those below it."""
        scheme = self.start.plan[operator.id]
        if self.why_fixed(operator) is not None:
            return [scheme]
        return [scheme, *(x for x in self.below(operator) if x not in operator.excluded)]

    def below(self, operator: Operator, scheme: str | None = None) -> list[str]:
        """Schemes below one, or the start's; those that take no call only if no other is left."""
        scheme = scheme or self.start.plan[operator.id]
        lower = [x for rung in self.ladder.below(operator.id, scheme) for x in rung]
        return [x for x in lower if operator.excluded.get(x) is not StopReason.NOT_TAKEN] or lower

    def predecessors(self, site: str) -> list[str]:
        """Sites whose result can reach an operand of this one and whose scheme is free."""
        return sorted(
            source
            for source, target in self.problem.edges
            if target == site and source in self.operators and not self.operators[source].locked
        )

    def _run(self, plan: Schemes) -> Measurement:
        key = plan_key(plan)
        if key not in self._measured:
            self._measured[key] = self._measure(dict(plan))
        return self._measured[key]

    def _judge(self, plan: Schemes, measurement: Measurement) -> Trial:
        changed = tuple(site for site in plan if plan[site] != self.incumbent.plan[site])
        after = measurement.site_seconds
        gain = sum(self.seconds(site) - after.get(site, 0.0) for site in changed)
        noise = self.noise(*changed)
        if measurement.problem is not None:
            reason, gain = StopReason.FAILED, nan
        elif not measurement.not_taken.keys().isdisjoint(changed):
            # The same program ran as before: neither a gain nor an error comes from the step.
            reason = StopReason.NOT_TAKEN
        elif not measurement.error <= self.budget:
            is_within = self.is_tightened and measurement.error <= self.problem.budget
            reason = StopReason.HOLD_OUT if is_within else StopReason.OVER_BUDGET
        else:
            reason = StopReason.KEPT if gain > noise else StopReason.NOT_FASTER
        return Trial(plan, measurement, changed, gain, reason)

    def _best(self, passed: list[Trial]) -> Trial:
        fastest = max(passed, key=lambda trial: trial.gain)
        noise = self.noise(*fastest.changed)
        as_fast = [trial for trial in passed if fastest.gain - trial.gain <= noise]
        return min(as_fast or [fastest], key=lambda trial: trial.measurement.error)


Search = Callable[[SearchState], None]
Excess = Callable[[Schemes], float]
"""The error of a plan on hold-out data, as a multiple of the budget there."""


def tune(
    measure: Measure, problem: TuningProblem, *, search: Search, excess: Excess | None = None
) -> Outcome:
    """Lower operators as far as the budget, the noise of the clock and the ladder allow.

    excess: as long as it is more than 1 for the plan found, the search is repeated with a budget
    smaller by that factor, and by at least a half, six times at most; then the start stays. No plan
    is run twice. Ctrl-C ends the search with the best plan so far, `interrupted` set; in the very
    first run it raises KeyboardInterrupt. Raises ProgramError if the program fails under the start,
    PlanError if an unlocked site starts with a scheme that is not on the ladder, BudgetError unless
    budget ≥ 0.
    """
    if not problem.budget >= 0:
        raise BudgetError(f"a budget is a number ≥ 0, not {problem.budget}")
    top = dict.fromkeys((x.id for x in problem.operators), problem.ladder.top)
    problem = replace(problem, start=top | dict(problem.start))
    for operator in problem.operators:
        if not operator.locked:
            problem.ladder.level(operator.id, problem.start[operator.id])
    state = SearchState(measure, problem)
    if not state.start.measurement.error <= problem.budget:
        return _outcome(state, StopReason.START_OVER_BUDGET)
    try:
        _search_within_hold_out(state, search, excess)
    except KeyboardInterrupt:
        return _outcome(state, StopReason.INTERRUPTED)
    return _outcome(state, StopReason.BOTTOM)


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
    for operator in state.operators.values():
        state.stopped[operator.id] = state.why_fixed(operator) or StopReason.HOLD_OUT, ""


def _outcome(state: SearchState, otherwise: StopReason) -> Outcome:
    """The outcome of a search. otherwise: the reason for operators that it did not finish."""
    start, best = state.start, state.incumbent
    not_taken = {x: why for trial in state.trials for x, why in trial.measurement.not_taken.items()}
    verdicts = []
    for operator in state.longest_first():
        reason, detail = state.stopped.get(operator.id, (otherwise, ""))
        if reason is StopReason.UNSUITED:
            detail = operator.unsuited
        elif reason is StopReason.NOT_TAKEN:
            detail = detail or not_taken.get(operator.id, "")
        schemes = start.plan[operator.id], best.plan[operator.id]
        before, after = (x.measurement.site_seconds.get(operator.id, 0.0) for x in (start, best))
        verdicts.append(Verdict(operator, *schemes, before, after, reason, detail))
    return Outcome(
        plan=best.plan,
        verdicts=tuple(verdicts),
        trials=tuple(state.trials),
        start=start.measurement,
        best=best.measurement,
        budget=state.problem.budget,
        interrupted=otherwise is StopReason.INTERRUPTED,
    )
