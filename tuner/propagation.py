"""What local errors say of the program's error, to first order, corrected by every run."""

from collections.abc import Iterable, Mapping
from math import inf, isfinite, sqrt

import numpy as np

from mixpert_py.tuner.operator import Operator

STEPS = 100  # of the fit; it is nearly there after twenty


class Propagation:
    """error(plan)² ≈ floor² + Σ (sensitivity · local error)² over the operators.

    Rounding errors of different products add up like independent random ones, and each reaches what
    is observed linearly as long as it is small. Where several values are judged, the error is the
    largest share of a budget, which is at most what one such sum for each value adds up to.
    Sensitivities are the operators' own until runs say otherwise. They are fitted to the measured
    errors by Richardson and Lucy's multiplicative steps: what a run says of several operators
    together is shared out as before, and none turns negative.

    floor: the program's error before anything is lowered.
    """

    def __init__(self, operators: Iterable[Operator], floor: float) -> None:
        self._operators = list(operators)
        priors = [squared(operator.sensitivity) for operator in self._operators]
        self._before = np.array([*priors, squared(floor)])  # the floor is the last
        self._squares = self._before
        self._rows: list[np.ndarray] = []

    def learn(self, plan: Mapping[str, str], error: float) -> None:
        """Take in one run: its plan and its error. Failed runs, and exact ones, say nothing."""
        square = squared(error)
        if not (isfinite(square) and square > 0):
            return
        # Relative to what was measured, so that runs with small errors count as much.
        row = np.array([*(self.weight(x, plan[x.id]) for x in self._operators), 1.0]) / square
        if not np.isfinite(row).all():
            return
        self._rows = [*self._rows, row]  # a copy of this object keeps its own
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
        """The local error squared; Inf where the profile says that the scheme fails."""
        error = operator.local_errors.get(scheme, 0.0)
        return squared(error) if isfinite(error) else inf

    def square(self, operator: Operator, scheme: str) -> float:
        """What an operator adds to the square of the program's error."""
        weight = self.weight(operator, scheme)
        return float(self._squares[self._operators.index(operator)]) * weight if weight else 0.0

    @property
    def floor(self) -> float:
        """What stays of the square whatever is chosen."""
        return float(self._squares[-1])

    def error(self, plan: Mapping[str, str]) -> float:
        """The predicted error of the program under a plan."""
        return sqrt(self.floor + sum(self.square(x, plan[x.id]) for x in self._operators))


def squared(x: float) -> float:
    """Its square, Inf where that is too large for a float; `x**2` is an OverflowError there."""
    return x * x
