"""The door of every search: `consider` runs a plan, judges it, and stands on it if it passes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import nan

from mixpert_py.errors import ProgramError
from mixpert_py.tuner.ladder import Ladder
from mixpert_py.tuner.measurement import Expect, Measure, Measurement
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.reason import Reason
from mixpert_py.tuner.trial import Trial

OnTrial = Callable[[Trial], None]
Plan = Mapping[str, str]

# Of several refusals, the one that says most about the rungs below comes first.
PRECEDENCE = (
    Reason.KEPT,
    Reason.NOT_FASTER,
    Reason.NO_GAIN,
    Reason.OVER_BUDGET,
    Reason.NOT_TAKEN,
    Reason.FAILED,
)


class Descent:
    """The state of a search. `kept` is the best plan that was run: it holds at any moment.
    `budget`: what errors are held against now, `whole_budget` or a share of it.

    start: a complete plan; it is run at once. Raises ProgramError if the program fails under it.
    `stopped`: site → why it is lowered no further, with the detail of a Verdict.
    """

    def __init__(
        self,
        measure: Measure,
        operators: Iterable[Operator],
        edges: Iterable[tuple[str, str]],
        ladder: Ladder,
        budget: float,
        noise: float | Mapping[str, float],
        on_trial: OnTrial | None,
        start: Mapping[str, str],
        expect: Expect | None = None,
    ) -> None:
        self.operators = {operator.id: operator for operator in operators}
        self.ladder = ladder
        self.whole_budget = self.budget = budget
        self.trials: list[Trial] = []
        self.stopped: dict[str, tuple[Reason, str]] = {}
        self._measure = measure
        self._edges = frozenset(edges)
        self._noise = noise
        self._on_trial = on_trial
        self._expect = expect
        self._measured: dict[frozenset[tuple[str, str]], Measurement] = {}
        measurement = self._run(start)
        if measurement.problem is not None:
            raise ProgramError(f"the program fails before anything changes: {measurement.problem}")
        self.start = self.kept = Trial(dict(start), measurement)
        self._record(self.start)

    def begin_anew(self, share: float) -> None:
        """Stand on the start again, with a share of the budget. What was run is not run again."""
        self.budget = share * self.whole_budget
        self.kept = self.start
        self.stopped.clear()

    def consider(
        self, *steps: Mapping[str, str], then: Callable[[], Iterable[Plan]] = tuple
    ) -> Trial:
        """Try each step (site → scheme) from the plan kept, and stand on the best that passes.

        A step passes if the schemes it changes to took calls, the program's error is within the
        budget, and the sites it changes get faster together by more than the noise. Best is the
        fastest; within the noise of it, the smallest error. Returns the trial now kept, else the
        refused one nearest to passing. then: plans that may be considered next.
        """
        tried: list[Trial] = []
        self._tell(steps, then)
        try:
            for step in steps:
                plan = {**self.kept.plan, **step}
                tried.append(self._judge(plan, self._run(plan)))
                self._record(tried[-1])
        finally:
            # Also on the way out of an interrupt: what has passed is not lost.
            passed = [trial for trial in tried if trial.reason is Reason.KEPT]
            if passed:
                self.kept = self._best(passed)
        return self.kept if passed else min(tried, key=_distance)

    def restore(self, step: Mapping[str, str]) -> None:
        """Try a step that is to save nothing but error; it passes if it is no slower."""
        plan = {**self.kept.plan, **step}
        trial = self._judge(plan, self._run(plan))
        no_slower = trial.reason in (Reason.NOT_FASTER, Reason.NO_GAIN)
        if no_slower and trial.gain >= -self.noise(*trial.changed):
            trial = replace(trial, reason=Reason.KEPT)
        self._record(trial)
        if trial.reason is Reason.KEPT:
            self.kept = trial

    def seconds(self, site: str) -> float:
        """A site's time under the plan kept; 0 if it did not run."""
        return self.kept.measurement.site_seconds.get(site, 0.0)

    def noise(self, *sites: str) -> float:
        """The smallest gain of these sites together that counts."""
        if isinstance(self._noise, Mapping):
            return sum(self._noise.get(site, 0.0) for site in sites)
        return self._noise

    def unmoved(self, operator: Operator) -> Reason | None:
        """Why an operator is not lowered at all, if it is not."""
        if operator.locked:
            return Reason.LOCKED
        if operator.id not in self.start.measurement.site_seconds:
            return Reason.NEVER_RAN
        if self.start.measurement.site_seconds[operator.id] <= self.noise(operator.id):
            return Reason.TOO_SHORT
        return None

    def options(self, operator: Operator) -> list[str]:
        """The schemes that an operator may run under: the start's first, then those below it."""
        scheme = self.start.plan[operator.id]
        if self.unmoved(operator) is not None:
            return [scheme]
        return [scheme, *(x for rung in self.ladder.below(operator.id, scheme) for x in rung)]

    def predecessors(self, site: str) -> list[str]:
        """Sites whose result can reach an operand of this one and whose scheme is free."""
        return sorted(
            source
            for source, target in self._edges
            if target == site and source in self.operators and not self.operators[source].locked
        )

    def _tell(self, steps: Iterable[Plan], then: Callable[[], Iterable[Plan]]) -> None:
        """Say what will be asked for, and may be."""
        if self._expect is not None:
            new: dict[frozenset[tuple[str, str]], Plan] = {}
            for plan in (*({**self.kept.plan, **step} for step in steps), *then()):
                new.setdefault(frozenset(plan.items()), plan)
            self._expect([plan for key, plan in new.items() if key not in self._measured])

    def _run(self, plan: Mapping[str, str]) -> Measurement:
        key = frozenset(plan.items())
        if key not in self._measured:
            self._measured[key] = self._measure(dict(plan))
        return self._measured[key]

    def _judge(self, plan: Mapping[str, str], measurement: Measurement) -> Trial:
        changed = tuple(site for site in plan if plan[site] != self.kept.plan[site])
        after = measurement.site_seconds
        gain = sum(self.seconds(site) - after.get(site, 0.0) for site in changed)
        noise = self.noise(*changed)
        if measurement.problem is not None:
            reason, gain = Reason.FAILED, nan
        elif not measurement.not_taken.isdisjoint(changed):
            # The very same program ran: a gain, or an error beyond the budget, is not the step's.
            reason = Reason.NOT_TAKEN
        elif not measurement.error <= self.budget:
            reason = Reason.OVER_BUDGET
        elif gain > noise:
            reason = Reason.KEPT
        elif gain >= -noise and self._exact(plan, changed):
            reason = Reason.NO_GAIN
        else:
            reason = Reason.NOT_FASTER
        return Trial(plan, measurement, changed, gain, reason)

    def _exact(self, plan: Mapping[str, str], changed: Iterable[str]) -> bool:
        """Whether the profile says that these schemes changed no digit: most likely none ran."""
        return all(self.operators[site].local_errors.get(plan[site]) == 0 for site in changed)

    def _best(self, passed: list[Trial]) -> Trial:
        fastest = max(passed, key=lambda trial: trial.gain)
        noise = self.noise(*fastest.changed)
        as_fast = [trial for trial in passed if fastest.gain - trial.gain <= noise]
        return min(as_fast or [fastest], key=lambda trial: trial.measurement.error)

    def _record(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self._on_trial is not None:
            self._on_trial(trial)


def _distance(refused: Trial) -> tuple[int, float]:
    return PRECEDENCE.index(refused.reason), -refused.gain
