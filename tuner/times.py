"""What every operator takes under every scheme, as far as that is known."""

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from mixpert_py.tuner.descent import Descent, Plan
from mixpert_py.tuner.operator import Operator

SAVED_BY_A_RUNG = 1 / 3  # of an operator's time, where nothing better is known


class Times:
    """Seconds by operator and scheme: the median of those measured, else a prediction."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._measured: dict[tuple[str, str], list[float]] = defaultdict(list)

    def learn(self, plan: Plan, site_seconds: Mapping[str, float]) -> None:
        """Take in one run."""
        for site, seconds in site_seconds.items():
            if site in self._descent.operators:
                self._measured[site, plan[site]].append(seconds)

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
        rungs = descent.ladder.level(site, scheme) - descent.ladder.level(site, before)
        start = descent.start.measurement.site_seconds.get(site, 0.0)
        return start * (1 - SAVED_BY_A_RUNG) ** max(rungs, 0)
