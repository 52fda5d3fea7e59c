"""What every operator takes under every scheme, as far as that is known."""

from collections import defaultdict
from statistics import median

from mixpert_py.tuner.descent import Descent, Plan
from mixpert_py.tuner.measurement import Measurement
from mixpert_py.tuner.operator import Operator

SAVED_BY_A_RUNG = 1 / 3  # of an operator's time, where nothing better is known
# Outliers from which a rung may take longer than the one above it, in which they may stay. What
# leaves the slices is multiplied by itself: 5 % of a Cholesky factor's rows in int8x8 made products
# of NumPy arrays, with K = 24576, take an H200 1.7 times as long.
OUTLIERS = 0.01


class Times:
    """Seconds by operator and scheme: the median of those measured, else a prediction."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._measured: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._outlying: set[tuple[str, str]] = set()

    def learn(self, plan: Plan, measured: Measurement) -> None:
        """Take in one run."""
        for site, seconds in measured.site_seconds.items():
            if site in self._descent.operators:
                self._measured[site, plan[site]].append(seconds)
                if measured.outliers.get(site, 0.0) > OUTLIERS:
                    self._outlying.add((site, plan[site]))

    def seconds(self, operator: Operator, scheme: str) -> float:
        """An operator's time under a scheme."""
        if found := self._measured.get((operator.id, scheme)):
            return median(found)
        if scheme in operator.predicted:
            return operator.predicted[scheme]
        descent, site = self._descent, operator.id
        before = descent.start.plan[site]
        if scheme == before:
            return operator.seconds
        if (below := self._outlying_below(site, scheme)) is not None:
            return (1 - SAVED_BY_A_RUNG) * self.seconds(operator, below)
        rungs = descent.ladder.level(site, scheme) - descent.ladder.level(site, before)
        start = descent.start.measurement.site_seconds.get(site, 0.0)
        return start * (1 - SAVED_BY_A_RUNG) ** max(rungs, 0)

    def _outlying_below(self, site: str, scheme: str) -> str | None:
        """A scheme of the next rung under which a run has had outliers."""
        below = self._descent.ladder.below(site, scheme)[:1]
        return next((x for rung in below for x in rung if (site, x) in self._outlying), None)
