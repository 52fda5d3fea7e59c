"""Predictions of a program's error and of its operators' times, and the plan chosen by them.

`place` predicts what a program can gain on a machine: times and errors of single products are known
for each scheme, so no run of the program is needed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import median

import numpy as np

from mixpert_py.tuner.records import Measurement, Operator, Schemes
from mixpert_py.tuner.search import SearchState

STEPS = 100  # iterations of the fit of sensitivities, which has nearly converged after twenty
# The part of an operator's time that a lower rung is taken to save where it was not measured.
SAVED_BY_A_RUNG = 1 / 3
WORTH = 1.2  # the least gain that is worth anyone's time
LARGEST = 100.0  # gains beyond it are written as this
MAX_FRONT = 256  # choices that are kept for the next kind

NumberRows = Sequence[Sequence[float]]


class ErrorModel:
    """error(plan)² ≈ floor² + Σ (sensitivity · local error)² over the operators.

    Rounding errors of different products add up like independent random ones, and each reaches what
    is observed linearly as long as it is small. Where several values are judged, the error is the
    largest share of a budget, which is at most what one such sum for each value adds up to.
    Sensitivities are the operators' own until runs are learned. They are fitted to the measured
    errors by Richardson and Lucy's multiplicative steps: the error of a run is shared out among its
    operators in proportion to the previous estimate, and no sensitivity turns negative.

    floor: the program's error before anything is lowered.
    """

    def __init__(self, operators: Iterable[Operator], floor: float) -> None:
        self._operators = list(operators)
        priors = [squared(operator.sensitivity) for operator in self._operators]
        self._before = np.array([*priors, squared(floor)])  # the floor is the last
        self._squares = self._before
        self._rows: list[np.ndarray] = []

    def learn(self, plan: Schemes, error: float) -> None:
        """Fit the sensitivities to one more run; failed and exact runs have no effect."""
        square = squared(error)
        if not (isfinite(square) and square > 0):
            return
        # Relative to what was measured, so that runs with small errors count as much.
        row = np.array([*(self.weight(x, plan[x.id]) for x in self._operators), 1.0]) / square
        if not np.isfinite(row).all():
            return
        self._rows.append(row)
        rows = np.array(self._rows)
        squares = self._before.copy()
        for _ in range(STEPS):
            found = rows @ squares
            if not (found > 0).all():
                return
            total = rows.sum(axis=0)
            share = (rows / found[:, None]).sum(axis=0)
            squares *= np.divide(share, total, out=np.ones_like(total), where=total > 0)
        self._squares = squares

    def weight(self, operator: Operator, scheme: str) -> float:
        """The squared local error; Inf if the profile shows that the scheme fails."""
        error = operator.local_errors.get(scheme, 0.0)
        return squared(error) if isfinite(error) else inf

    def square(self, operator: Operator, scheme: str) -> float:
        """The part of the program's squared error that an operator contributes under a scheme."""
        weight = self.weight(operator, scheme)
        return float(self._squares[self._operators.index(operator)]) * weight if weight else 0.0

    @property
    def floor(self) -> float:
        """The part of the program's squared error that no plan removes."""
        return float(self._squares[-1])

    def error(self, plan: Schemes) -> float:
        """The predicted error of the program under a plan."""
        return sqrt(self.floor + sum(self.square(x, plan[x.id]) for x in self._operators))


def squared(x: float) -> float:
    """x², or Inf if that is too large for a float, for which `x**2` raises OverflowError."""
    return x * x


class TimeModel:
    """Seconds by operator and scheme: the median of those measured, else a prediction."""

    def __init__(self, state: SearchState) -> None:
        self._state = state
        self._measured: dict[tuple[str, str], list[float]] = defaultdict(list)

    def learn(self, plan: Schemes, measured: Measurement) -> None:
        for site, seconds in measured.site_seconds.items():
            if site in self._state.operators:
                self._measured[site, plan[site]].append(seconds)

    def seconds(self, operator: Operator, scheme: str) -> float:
        if found := self._measured.get((operator.id, scheme)):
            return median(found)
        if scheme in operator.predicted:
            return operator.predicted[scheme]
        state, site = self._state, operator.id
        before = state.start.plan[site]
        if scheme == before:
            return operator.seconds
        rungs = state.ladder.level(site, scheme) - state.ladder.level(site, before)
        start = state.start.measurement.site_seconds.get(site, 0.0)
        return start * (1 - SAVED_BY_A_RUNG) ** max(rungs, 0)


def choose(
    values: NumberRows, weights: NumberRows, *capacities: float
) -> list[tuple[int, ...] | None]:
    """Choose one option of each kind, with the least values, whose weights fit a capacity.

    values, weights: kind → option → number ≥ 0. Returns the options' numbers for each capacity,
    None if nothing fits. Of the choices among the first kinds, all are kept that no other one
    surpasses in weight and value; where they are many, as many as MAX_FRONT of them, spread evenly.
    """
    capacity, least = max(capacities), [min(row) for row in weights]
    front: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ())]  # by weight, then value
    for kind, (row, its) in enumerate(zip(values, weights, strict=True), 1):
        room = capacity - sum(least[kind:])
        found = sorted(
            (weight + its[i], value + row[i], (*chosen, i))
            for weight, value, chosen in front
            for i in range(len(row))
            if weight + its[i] <= room
        )
        front = []
        for one in found:
            if not front or one[1] < front[-1][1]:
                front.append(one)
        if len(front) > MAX_FRONT:
            step = (len(front) - 1) / (MAX_FRONT - 1)
            front = [front[round(number * step)] for number in range(MAX_FRONT)]
    return [next((x for w, _, x in reversed(front) if w <= most), None) for most in capacities]


@dataclass(frozen=True, slots=True)
class PredictedGain:
    """The likely gain of a program on one machine, with its products' seconds under the plan.

    device: the short name of a GPU, for which times are predicted; None for this machine. error:
    the program's predicted error.
    """

    device: str | None
    gain: float
    seconds: float
    plan: Schemes
    error: float = 0.0

    @property
    def name(self) -> str:
        """The place as words of a sentence."""
        if self.device is None:
            return "here"
        # The article goes by the sound of an abbreviation's first letter.
        return f"on a{'n' * (self.device[0] in 'AEFHILMNORSX')} {self.device}"


def program_gain(share: float, products_gain: float) -> float:
    """The gain of a program whose products, a share of its time, gain by a factor (Amdahl)."""
    left = 1 - share + (share / products_gain if products_gain else inf)
    return 1 / left if left > 0 else inf


def ceiling(share: float) -> float:
    """The gain if the products took no time."""
    return program_gain(share, inf)


def likely_plan(operators: Sequence[Operator], budget: float) -> dict[str, str]:
    """The fastest plan whose predicted error is within the budget, before any run is known.

    operators: `predicted` has the times of the schemes that may be chosen, and of the native one.
    The prediction is the one with which a tuning begins: errors of products add up like independent
    errors, and each reaches the result unchanged.
    """
    errors = ErrorModel(operators, 0.0)
    pairs = list(zip(operators, map(_options, operators), strict=True))
    times = [[x.predicted[scheme] for scheme in its] for x, its in pairs]
    squares = [[errors.square(x, scheme) for scheme in its] for x, its in pairs]
    chosen = choose(times, squares, budget**2)[0] or (0,) * len(pairs)
    return {x.id: its[i] for (x, its), i in zip(pairs, chosen, strict=True)}


def place(
    device: str | None, share: float, operators: Sequence[Operator], budget: float
) -> PredictedGain:
    """The likely gain on a machine for which the operators have their times."""
    plan = likely_plan(operators, budget)
    before = sum(x.predicted["native"] for x in operators)
    after = sum(x.predicted[plan[x.id]] for x in operators)
    gain = program_gain(share, before / after if after else inf) if before else 1.0
    return PredictedGain(device, gain, after, plan, ErrorModel(operators, 0.0).error(plan))


def worth(places: Sequence[PredictedGain]) -> PredictedGain | None:
    """The place where an effort is worth it: this machine, else the first GPU, else None."""
    return next((place for place in places[:2] if place.gain >= WORTH), None)


def verdict(share: float, places: Sequence[PredictedGain], budget: str) -> str:
    """A sentence that says whether an effort is worth it here, or on the first of the GPUs."""
    here, *gpus = places
    gpu, best = gpus[0] if gpus else None, worth(places)
    products = f"Products are {100 * share:.0f} % of the time"
    if ceiling(share) < WORTH:
        there = ", and on a GPU where their share is the same" if gpu else ""
        return f"{products}: at most {times_text(ceiling(share))} here{there}; not worth it."
    on_gpu = f", {times_text(gpu.gain)} {gpu.name}" if gpu else ""
    gains = f"{times_text(here.gain)} is likely at {budget} here{on_gpu}"
    if best is None:
        return f"{products}, but {gains}; not worth it."
    if best is here:
        return f"Worth it: {gains}."
    return (
        f"Worth it {best.name}: {times_text(best.gain)} is likely at {budget} if products have the "
        f"same share of the time there; {times_text(here.gain)} here."
    )


def times_text(gain: float) -> str:
    return f"{gain:.2f}×" if gain < LARGEST else f"over {LARGEST:.0f}×"


def _options(operator: Operator) -> list[str]:
    """The schemes of an operator whose time and error are known, the native product first."""
    known = operator.local_errors
    return ["native"] + [
        scheme
        for scheme in operator.predicted
        if scheme != "native" and isfinite(known.get(scheme, inf))
    ]
