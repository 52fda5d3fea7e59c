"""The two searches: functions of `SearchState`.

`greedy` is the search of MixPert §3.4. In `predictive`, predictions choose the plan to run next,
and runs decide what is adopted. Each step runs the fastest plan whose predicted error is within the
budget; the errors and times of that run improve the next prediction. When no such plan is left,
single steps whose predicted error is not far beyond the budget are tried, those that save most
first. At last the operators that take most of the time are probed, whatever is predicted of them:
an iteration that refines its result removes errors again, which no local error shows.
"""

from collections.abc import Iterator
from itertools import product
from math import inf

from mixpert_py.tuner.prediction import ErrorModel, TimeModel, choose, squared
from mixpert_py.tuner.records import Operator, Rung, Schemes, StopReason, Trial, plan_key
from mixpert_py.tuner.search import Search, SearchState

SLACK = (1.0, 0.8, 0.6, 0.4)  # parts of the budget within which plans are chosen, in turn
MOST_PREDICTED = 4.0  # budgets: the largest predicted error with which a single step is tried
WORTH_A_RUN = 0.01  # the least gain of a step, as a part of what the search has saved
MOST_FAILED_PROBES = 3  # in a row, after which no other is run
TOGETHER = 1 / 8  # part of the time: operators that take less are probed together
WORTH_A_PROBE = 1 / 20  # part of the time: operators that take less together are not probed
FIRST_GAIN = 1 / 100  # the same, as long as nothing has gained
OVER = (StopReason.OVER_BUDGET, StopReason.HOLD_OUT)  # refusals because of the error
# Refusals after which the rungs below are still tried.
PASSED_OVER = (StopReason.NOT_TAKEN, StopReason.NOT_FASTER)


def greedy(state: SearchState) -> None:
    """Lower the operators one after the other, the longest first."""
    for operator in state.longest_first():
        state.stopped[operator.id] = _lower(state, operator)


def _lower(state: SearchState, operator: Operator) -> tuple[StopReason, str]:
    """Lower one operator rung by rung, as far as budget and noise allow; return why it stopped.

    A rung within the budget that is not faster, or that no call takes, is passed over: the next one
    is compared with the incumbent.
    """
    if (fixed := state.why_fixed(operator)) is not None:
        return fixed, ""
    site, reason = operator.id, StopReason.BOTTOM
    rungs = state.ladder.below(site, state.incumbent.plan[site])
    for rung in rungs:
        if state.seconds(site) <= state.noise(site):
            return StopReason.TOO_SHORT, ""
        trial = state.consider(*({site: scheme} for scheme in rung))
        # Raising another operator costs time: it cannot rescue a step that saves none.
        if trial.reason in OVER and trial.gain > 0:
            trial = _raise_predecessor(state, site, rung) or trial
        if trial.reason is StopReason.KEPT:
            reason = StopReason.BOTTOM
        elif trial.reason in PASSED_OVER:
            reason = trial.reason
        else:
            return trial.reason, trial.measurement.problem or ""
    return reason, ""


def _raise_predecessor(state: SearchState, site: str, rung: Rung) -> Trial | None:
    """Lower a site to `rung` and raise one predecessor that takes less time, to offset the error.

    The longest such predecessor is tried first, each by one rung. Returns the trial that was kept,
    or None. Times are the incumbent's: a predecessor may have become shorter by being lowered.
    """
    shorter = [p for p in state.predecessors(site) if state.seconds(p) < state.seconds(site)]
    for predecessor in sorted(shorter, key=state.seconds, reverse=True):
        above = state.ladder.above(predecessor, state.incumbent.plan[predecessor])
        steps = [{site: low, predecessor: high} for low, high in product(rung, above)]
        if steps and (trial := state.consider(*steps)).reason is StopReason.KEPT:
            state.stopped[predecessor] = StopReason.RAISED, site
            return trial
    return None


def predictive(state: SearchState) -> None:
    """Lower operators in as few runs as predictions allow."""
    search = PredictiveSearch(state, state.problem.until)
    while (plan := search.next_plan()) is not None:
        search.run(plan)
    search.restore_idle()
    for operator in state.longest_first():
        state.stopped[operator.id] = search.verdict(operator)


class PredictiveSearch:
    """The plans tried so far and the models fitted to them.

    options: maps each site to the schemes that it may run under, the start's first; a fixed site
    has one. worth_a_step: the least gain for which a plan is run, as a part of the program's time.
    If less is left to gain, even when predicted errors are a few times too large, the search ends.
    """

    def __init__(self, state: SearchState, worth_a_step: float = 0.0) -> None:
        self.state = state
        self.worth_a_step = worth_a_step
        self.operators = list(state.operators.values())
        self.errors = ErrorModel(self.operators, state.start.measurement.error)
        self.times = TimeModel(state)
        self.options = {x.id: state.options(x) for x in self.operators}
        self.tried: list[Schemes] = [state.start.plan]
        self.refused: list[Schemes] = []
        self.failed_probes = 0  # in a row
        for trial in {plan_key(trial.plan): trial for trial in state.trials}.values():
            self._learn(trial)

    def run(self, plan: Schemes) -> None:
        state = self.state
        self.tried.append(plan)
        is_probe = self.errors.error(plan) > MOST_PREDICTED * state.budget
        before = len(state.trials)
        state.consider(
            {site: plan[site] for site in plan if plan[site] != state.incumbent.plan[site]}
        )
        (trial,) = state.trials[before:]
        self._learn(trial)
        if trial.reason in (*OVER, StopReason.FAILED):
            self.refused.append(plan)
        if is_probe:
            self.failed_probes = 0 if trial.reason is StopReason.KEPT else self.failed_probes + 1
        for site in trial.measurement.not_taken.keys() & set(trial.changed):
            self.options[site].remove(plan[site])

    def _learn(self, trial: Trial) -> None:
        measured = trial.measurement
        if measured.problem is None:
            self.errors.learn(trial.plan, measured.error)
            self.times.learn(trial.plan, measured)

    def next_plan(self) -> Schemes | None:
        """The plan to run next; None if none promises to be worth a run."""
        for plan in self._fastest_within(*(slack * self.state.budget for slack in SLACK)):
            if self._gain(plan) > self._least_gain(plan) and self._is_new(plan):
                return plan
        return self._single_step() or self._probe()

    def _fastest_within(self, *budgets: float) -> Iterator[Schemes]:
        """The fastest plan whose predicted error is within each budget, where there is one."""
        operators, errors = self.operators, self.errors
        times = [
            [self.times.seconds(x, scheme) for scheme in self.options[x.id]] for x in operators
        ]
        squares = [[errors.square(x, scheme) for scheme in self.options[x.id]] for x in operators]
        capacities = (max(squared(budget) - errors.floor, 0.0) for budget in budgets)
        for chosen in choose(times, squares, *capacities):
            if chosen is not None:
                yield {x.id: self.options[x.id][i] for x, i in zip(operators, chosen, strict=True)}

    def _single_step(self) -> Schemes | None:
        """The plan that lowers one operator with the largest gain for its predicted error."""
        plan_now, budget = self.state.incumbent.plan, self.state.budget
        start = sum(self.times.seconds(x, self.state.start.plan[x.id]) for x in self.operators)
        saved = start - sum(self.times.seconds(x, plan_now[x.id]) for x in self.operators)
        found: list[tuple[float, Schemes]] = []
        for operator in self.operators:
            for scheme in self.options[operator.id]:
                plan = {**plan_now, operator.id: scheme}
                gain = self._gain(plan)
                if gain <= max(self._least_gain(plan), WORTH_A_RUN * saved):
                    continue
                excess = max(self.errors.error(plan) / budget, 1.0) if budget else 1.0
                if excess <= MOST_PREDICTED and self._is_new(plan):
                    found.append((gain / excess, plan))
        return max(found, key=lambda pair: pair[0], default=(0.0, None))[1]

    def _probe(self) -> Schemes | None:
        """A plan that lowers one or several operators in spite of the predicted error."""
        if self.failed_probes >= MOST_FAILED_PROBES:
            return None
        incumbent = self.state.incumbent
        steps = {x.id: step for x in self.operators if (step := self._unprobed(x)) is not None}
        probed = (x for x in self.operators if x.id in steps)
        times = {x.id: self.times.seconds(x, incumbent.plan[x.id]) for x in probed}
        is_first = incumbent.plan == self.state.start.plan
        least = (FIRST_GAIN if is_first else WORTH_A_PROBE) * incumbent.measurement.seconds
        groups: list[list[str]] = [[]]  # short operators are joined
        for site in sorted(times, key=lambda site: -times[site]):
            groups[-1].append(site)
            if sum(times[it] for it in groups[-1]) >= TOGETHER * incumbent.measurement.seconds:
                groups.append([])
        for group in groups:
            plan = {**incumbent.plan, **{site: steps[site] for site in group}}
            if sum(times[site] for site in group) >= least and self._is_new(plan):
                return plan
        return None

    def _unprobed(self, operator: Operator) -> str | None:
        """The most accurate scheme of an operator that no run has refused yet."""
        for scheme in self.options[operator.id]:
            plan = {**self.state.incumbent.plan, operator.id: scheme}
            fails = self.errors.weight(operator, scheme) == inf
            if not fails and self._gain(plan) > self._least_gain(plan) and self._is_new(plan):
                return scheme
        return None

    def _gain(self, plan: Schemes) -> float:
        now = self.state.incumbent.plan
        return sum(
            self.times.seconds(x, now[x.id]) - self.times.seconds(x, plan[x.id])
            for x in self.operators
            if now[x.id] != plan[x.id]
        )

    def _least_gain(self, plan: Schemes) -> float:
        now, whole = self.state.incumbent.plan, self.state.incumbent.measurement.seconds
        noise = self.state.noise(*(site for site in plan if plan[site] != now[site]))
        return max(noise, self.worth_a_step * whole)

    def _is_new(self, plan: Schemes) -> bool:
        """Whether a plan is untried, and more accurate at some site than each refused plan."""
        return plan not in self.tried and not any(
            all(self._is_at_most(site, plan[site], refused[site]) for site in self.options)
            for refused in self.refused
        )

    def _is_at_most(self, site: str, scheme: str, other: str) -> bool:
        if scheme == other or len(self.options[site]) == 1:
            return scheme == other
        return self.state.ladder.level(site, scheme) > self.state.ladder.level(site, other)

    def restore_idle(self) -> None:
        """Raise operators that lowering has not made faster: it would cost accuracy for no gain."""
        state = self.state
        start = state.start.plan
        idle = {
            x.id: start[x.id]
            for x in self.operators
            if state.incumbent.plan[x.id] != start[x.id]
            and self.times.seconds(x, start[x.id]) - state.seconds(x.id) <= state.noise(x.id)
        }
        if idle:
            state.restore(idle)

    def verdict(self, operator: Operator) -> tuple[StopReason, str]:
        """The reason why an operator is lowered no further, with the detail of a Verdict."""
        site, state = operator.id, self.state
        scheme = state.incumbent.plan[site]
        if (reason := state.why_fixed(operator)) is not None:
            if reason is StopReason.UNCLEAR and self._is_over_budget(operator):
                reason = StopReason.PREDICTED  # which is certain, however noisy the clock
            return reason, ""
        level = state.ladder.level(site, scheme)
        lower = [x for x in self.options[site] if state.ladder.level(site, x) > level]
        if not lower:
            below = state.below(operator, scheme)
            reason = StopReason.BOTTOM
            if below:
                reason = operator.excluded.get(below[0], StopReason.NOT_TAKEN)
            is_last = reason is StopReason.NOT_TAKEN and scheme != state.start.plan[site]
            return (StopReason.BOTTOM if is_last else reason), ""
        for trial in reversed(state.trials):
            # A refused step of several operators does not show which of them was the cause.
            refused = trial.reason is not StopReason.KEPT and trial.plan[site] in lower
            if refused and trial.changed == (site,):
                return trial.reason, trial.measurement.problem or ""
        if self._is_over_budget(operator):
            return StopReason.PREDICTED, ""
        plan = {**state.incumbent.plan, site: lower[0]}
        gains = self.worth_a_step and self._gain(plan) > state.noise(site)
        return (StopReason.TOO_LITTLE if gains else StopReason.NOT_FASTER), ""

    def _is_over_budget(self, operator: Operator) -> bool:
        """Whether the next lower level of an operator is predicted to be over the budget."""
        plan = self.state.incumbent.plan
        below = self.state.below(operator, plan[operator.id])
        step = {operator.id: below[0]} if below else {}
        return self.errors.error({**plan, **step}) > self.state.budget


SEARCHES: dict[str, Search] = {"predictive": predictive, "greedy": greedy}
