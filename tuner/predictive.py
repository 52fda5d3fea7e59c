"""The predictive search: predictions say which plan to run next, and only runs say what is kept.

Each turn takes the fastest plan whose predicted error is within the budget and runs it; what the
run shows of errors and times goes into the next prediction. When no such plan is left, single steps
whose predicted error is not far beyond the budget are tried, those that save most first. At last
the operators that take most of the time are probed, whatever is predicted of them: an iteration
that refines its result takes errors away again, which no local error tells.
"""

from copy import copy
from dataclasses import replace
from functools import partial
from math import inf

from mixpert_py.tuner.descent import Descent, Plan
from mixpert_py.tuner.greedy import longest_first
from mixpert_py.tuner.knapsack import choose
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.probing import groups
from mixpert_py.tuner.propagation import Propagation
from mixpert_py.tuner.reason import Reason
from mixpert_py.tuner.times import Times
from mixpert_py.tuner.trial import Trial

SLACK = (1.0, 0.8, 0.6, 0.4)  # parts of the budget that plans are chosen for
AMBITION = 4.0  # times the budget that a single step may be predicted to make
WORTH_A_RUN = 0.01  # of what the search has saved
PATIENCE = 3  # probes in a row that are refused
PASSES = (1.0, 0.5)  # times what is predicted: errors that a run may have if it passes
REFUSED = (1.5, 3.0, 10.0)  # times the budget, if not


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
        self.times = Times(descent)
        self.tried: list[Plan] = [start.plan]
        self.refused: list[Plan] = []
        self.in_vain = 0  # probes that were refused since one was kept
        for trial in {frozenset(trial.plan.items()): trial for trial in descent.trials}.values():
            self._learn(trial)

    def run(self, plan: Plan) -> None:
        descent = self.descent
        self.tried.append(plan)
        before, is_probe = len(descent.trials), self._is_probe(plan)
        descent.consider(
            {site: plan[site] for site in plan if plan[site] != descent.kept.plan[site]},
            then=partial(self._next, plan),
        )
        (trial,) = descent.trials[before:]
        self._learn(trial)
        if trial.reason in (Reason.OVER_BUDGET, Reason.FAILED):
            self.refused.append(plan)
        if is_probe:
            self.in_vain = 0 if trial.reason is Reason.KEPT else self.in_vain + 1
        for site in trial.measurement.not_taken.intersection(trial.changed):
            self.options[site].remove(plan[site])

    def _learn(self, trial: Trial) -> None:
        measured = trial.measurement
        if measured.problem is None:
            self.propagation.learn(trial.plan, measured.error)
            self.times.learn(trial.plan, measured)

    def next_plan(self) -> Plan | None:
        """What to run next; None if nothing promises to be worth it."""
        operators, propagation = self.operators, self.propagation
        times = [
            [self.times.seconds(x, scheme) for scheme in self.options[x.id]] for x in operators
        ]
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
        return self._single_step() or self._probe()

    def _next(self, plan: Plan) -> list[Plan]:
        """What may be run after a plan, for each of the errors that it may turn out to have."""
        predicted, budget = self.propagation.error(plan), self.descent.budget
        passing = min(predicted, budget)
        found = [self._after(plan, factor * passing, passes=True) for factor in PASSES]
        found += [self._after(plan, factor * budget, passes=False) for factor in REFUSED]
        return [choice for choice in found if choice is not None]

    def _after(self, plan: Plan, error: float, *, passes: bool) -> Plan | None:
        """The next plan if this one showed an error, and passed or was refused."""
        before = self.descent.kept, self.refused, self.in_vain, self.propagation
        if self._is_probe(plan):
            self.in_vain = 0 if passes else self.in_vain + 1
        try:
            self.propagation = copy(self.propagation)
            self.propagation.learn(plan, error)
            if passes:
                self.descent.kept = replace(self.descent.kept, plan=plan)
            else:
                self.refused = [*self.refused, plan]
            return self.next_plan()
        finally:
            self.descent.kept, self.refused, self.in_vain, self.propagation = before

    def _single_step(self) -> Plan | None:
        kept, budget = self.descent.kept.plan, self.descent.budget
        start = sum(self.times.seconds(x, self.descent.start.plan[x.id]) for x in self.operators)
        saved = start - sum(self.times.seconds(x, kept[x.id]) for x in self.operators)
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

    def _probe(self) -> Plan | None:
        """A step of one or several operators, whatever is predicted."""
        if self.in_vain >= PATIENCE:
            return None
        kept = self.descent.kept
        steps = {x.id: step for x in self.operators if (step := self._unprobed(x)) is not None}
        times = {
            x.id: self.times.seconds(x, kept.plan[x.id]) for x in self.operators if x.id in steps
        }
        for group in groups(times, kept.measurement.seconds):
            plan = {**kept.plan, **{site: steps[site] for site in group}}
            if self._is_new(plan):
                return plan
        return None

    def _is_probe(self, plan: Plan) -> bool:
        """Whether a plan is run in spite of what is predicted."""
        return self.propagation.error(plan) > AMBITION * self.descent.budget

    def _unprobed(self, operator: Operator) -> str | None:
        """The most accurate scheme under which no run speaks against an operator."""
        kept = self.descent.kept.plan
        for scheme in self.options[operator.id]:
            plan = {**kept, operator.id: scheme}
            fails = self.propagation.weight(operator, scheme) == inf
            if not fails and self._gain(plan) > self._least_gain(plan) and self._is_new(plan):
                return scheme
        return None

    def _gain(self, plan: Plan) -> float:
        kept = self.descent.kept.plan
        return sum(
            self.times.seconds(x, kept[x.id]) - self.times.seconds(x, plan[x.id])
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
            and self.times.seconds(x, start[x.id]) - descent.seconds(x.id) <= descent.noise(x.id)
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
