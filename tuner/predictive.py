"""The predictive search: predictions say which plan to run next, and only runs say what is kept.

Each turn takes the fastest plan whose predicted error is within the budget and runs it; what the
run shows of errors and times goes into the next prediction. When no such plan is left, single steps
whose predicted error is not far beyond the budget are tried, those that save most first.
"""

from collections import defaultdict
from copy import copy
from dataclasses import replace
from functools import partial
from statistics import median

from mixpert_py.tuner.descent import Descent, Plan
from mixpert_py.tuner.greedy import longest_first
from mixpert_py.tuner.knapsack import choose
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.propagation import Propagation
from mixpert_py.tuner.reason import Reason
from mixpert_py.tuner.trial import Trial

SLACK = (1.0, 0.8, 0.6, 0.4)  # parts of the budget that plans are chosen for
AMBITION = 4.0  # times the budget that a single step may be predicted to make
WORTH_A_RUN = 0.01  # of what the search has saved
PASSES = (1.0, 0.5)  # times what is predicted: errors that a run may have if it passes
REFUSED = (1.5, 3.0, 10.0)  # times the budget, if not
SAVED_BY_A_RUNG = 1 / 3  # of an operator's time, where nothing better is known


def predictive(descent: Descent) -> None:
    """Lower operators in as few runs as predictions allow."""
    search = _Search(descent)
    while (plan := search.next_plan()) is not None:
        search.run(plan)
    search.restore_idle()
    for operator in longest_first(descent):
        descent.stopped[operator.id] = search.verdict(operator)


class _Search:
    """options: site → schemes it may run under, the present one first; one if it stays as it is."""

    def __init__(self, descent: Descent) -> None:
        self.descent = descent
        self.operators = list(descent.operators.values())
        start = descent.start
        self.propagation = Propagation(self.operators, start.measurement.error)
        self.options = {x.id: descent.options(x) for x in self.operators}
        self.times: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.tried: list[Plan] = [start.plan]
        self.refused: list[Plan] = []
        for trial in {frozenset(trial.plan.items()): trial for trial in descent.trials}.values():
            self._learn(trial)

    def run(self, plan: Plan) -> None:
        descent = self.descent
        self.tried.append(plan)
        before = len(descent.trials)
        descent.consider(
            {site: plan[site] for site in plan if plan[site] != descent.kept.plan[site]},
            then=partial(self._next, plan),
        )
        (trial,) = descent.trials[before:]
        self._learn(trial)
        if trial.reason in (Reason.OVER_BUDGET, Reason.FAILED):
            self.refused.append(plan)
        for site in trial.measurement.not_taken.intersection(trial.changed):
            self.options[site].remove(plan[site])

    def _learn(self, trial: Trial) -> None:
        measured = trial.measurement
        if measured.problem is None:
            self.propagation.learn(trial.plan, measured.error)
            for site, seconds in measured.site_seconds.items():
                if site in self.options:
                    self.times[site, trial.plan[site]].append(seconds)

    def seconds(self, operator: Operator, scheme: str) -> float:
        """An operator's time under a scheme: measured, or predicted."""
        if found := self.times.get((operator.id, scheme)):
            return median(found)
        if scheme in operator.predicted:
            return operator.predicted[scheme]
        descent, site = self.descent, operator.id
        if scheme == descent.start.plan[site]:
            return operator.seconds
        rungs = descent.ladder.level(site, scheme) - descent.ladder.level(
            site, descent.start.plan[site]
        )
        start = descent.start.measurement.site_seconds.get(site, 0.0)
        return start * (1 - SAVED_BY_A_RUNG) ** max(rungs, 0)

    def next_plan(self) -> Plan | None:
        """What to run next; None if nothing promises to be worth it."""
        operators, propagation = self.operators, self.propagation
        times = [[self.seconds(x, scheme) for scheme in self.options[x.id]] for x in operators]
        squares = [
            [propagation.square(x, scheme) for scheme in self.options[x.id]] for x in operators
        ]
        for slack in SLACK:
            room = (slack * self.descent.budget) ** 2 - propagation.floor
            picked = choose(times, squares, max(room, 0.0))
            if picked is not None:
                plan = {x.id: self.options[x.id][i] for x, i in zip(operators, picked, strict=True)}
                if self._gain(plan) > self._least_gain(plan) and self._is_new(plan):
                    return plan
        return self._single_step()

    def _next(self, plan: Plan) -> list[Plan]:
        """What may be run after a plan, for each of the errors that it may turn out to have."""
        predicted, budget = self.propagation.error(plan), self.descent.budget
        found = [self._after(plan, factor * predicted, passes=True) for factor in PASSES]
        found += [self._after(plan, factor * budget, passes=False) for factor in REFUSED]
        return [choice for choice in found if choice is not None]

    def _after(self, plan: Plan, error: float, *, passes: bool) -> Plan | None:
        """The next plan if this one showed an error, and passed or was refused."""
        before = self.descent.kept, self.refused, self.propagation
        try:
            self.propagation = copy(self.propagation)
            self.propagation.learn(plan, error)
            if passes:
                self.descent.kept = replace(self.descent.kept, plan=plan)
            else:
                self.refused = [*self.refused, plan]
            return self.next_plan()
        finally:
            self.descent.kept, self.refused, self.propagation = before

    def _single_step(self) -> Plan | None:
        kept, budget = self.descent.kept.plan, self.descent.budget
        start = sum(self.seconds(x, self.descent.start.plan[x.id]) for x in self.operators)
        saved = start - sum(self.seconds(x, kept[x.id]) for x in self.operators)
        found: list[tuple[float, Plan]] = []
        for operator in self.operators:
            for scheme in self.options[operator.id]:
                plan = {**kept, operator.id: scheme}
                gain = self._gain(plan)
                if gain <= max(self._least_gain(plan), WORTH_A_RUN * saved):
                    continue
                excess = max(self.propagation.error(plan) / budget, 1.0) if budget else 1.0
                if excess <= AMBITION and self._is_new(plan):
                    found.append((gain / excess, plan))
        return max(found, key=lambda pair: pair[0], default=(0.0, None))[1]

    def _gain(self, plan: Plan) -> float:
        kept = self.descent.kept.plan
        return sum(
            self.seconds(x, kept[x.id]) - self.seconds(x, plan[x.id])
            for x in self.operators
            if kept[x.id] != plan[x.id]
        )

    def _least_gain(self, plan: Plan) -> float:
        kept = self.descent.kept.plan
        return self.descent.noise(*(site for site in plan if plan[site] != kept[site]))

    def _is_new(self, plan: Plan) -> bool:
        """Neither tried, nor nowhere more accurate than a plan that was refused."""
        return plan not in self.tried and not any(
            all(self._not_above(site, plan[site], refused[site]) for site in self.options)
            for refused in self.refused
        )

    def _not_above(self, site: str, scheme: str, other: str) -> bool:
        if scheme == other or len(self.options[site]) == 1:
            return scheme == other
        return self.descent.ladder.level(site, scheme) > self.descent.ladder.level(site, other)

    def restore_idle(self) -> None:
        """Give back what lowering has not made faster: it costs accuracy for nothing."""
        descent = self.descent
        start = descent.start.plan
        idle = {
            x.id: start[x.id]
            for x in self.operators
            if descent.kept.plan[x.id] != start[x.id]
            and self.seconds(x, start[x.id]) - descent.seconds(x.id) <= descent.noise(x.id)
        }
        if idle:
            descent.restore(idle)

    def verdict(self, operator: Operator) -> tuple[Reason, str]:
        """Why an operator stays where it is, with the detail of a Verdict."""
        if (reason := self.descent.unmoved(operator)) is not None:
            return reason, ""
        site, descent = operator.id, self.descent
        kept = descent.kept.plan[site]
        level = descent.ladder.level(site, kept)
        lower = [x for x in self.options[site] if descent.ladder.level(site, x) > level]
        if not lower:
            passed_over = bool(descent.ladder.below(site, kept))
            return (Reason.NOT_TAKEN if passed_over else Reason.BOTTOM), ""
        for trial in reversed(descent.trials):
            # Of steps that lowered others too, nobody knows whose fault it was.
            refused = trial.reason is not Reason.KEPT and trial.plan[site] in lower
            if refused and trial.changed == (site,):
                return trial.reason, trial.measurement.problem or ""
        error = self.propagation.error({**descent.kept.plan, site: lower[0]})
        return (Reason.PREDICTED if error > descent.budget else Reason.NOT_FASTER), ""
