"""Times that a search goes by: measured ones, or predicted ones where measured ones mean nothing.

On a machine without tensor cores an emulated product takes as long as NumPy needs to emulate it.
What counts there is how many slice products a tensor core would have to make.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime.call import is_wide, real_products
from mixpert_py.runtime.schemes import get
from mixpert_py.tuner.noise import middle, time_noise
from mixpert_py.tuner.records import Measurement

Cost = Callable[[str, SiteResult, str], float]
"""(site id, its native trace, scheme) → what its calls would cost under the scheme; any unit."""


def int8_products(site: str, trace: SiteResult, scheme: str) -> float:
    """Multiply-adds on INT8 tensor cores that take as long as the site's calls under the scheme."""
    if scheme == "native":
        scheme = "float64" if is_wide(*trace.dtypes) else "float32"
    products = max((real_products(dtype, dtype) for dtype in trace.dtypes), default=1)
    volume = sum(m * k * n * calls for m, k, n, calls in trace.shapes)
    return get(scheme).cost * products * volume


class Clock:
    """Puts the times to go by into measurements.

    natives: the native runs. sites: their traces. cost: predicts a site's time; None: times are as
    measured. native: the native runs as one; noise: site → the smallest gain that counts.
    """

    def __init__(
        self,
        natives: Sequence[Measurement],
        sites: Mapping[str, SiteResult],
        cost: Cost | None,
    ) -> None:
        self._sites = sites
        self._cost = cost
        self.native = self(middle(natives), {})
        self.noise = dict.fromkeys(sites, 0.0) if cost else time_noise(natives)

    def __call__(self, measured: Measurement, plan: Mapping[str, str]) -> Measurement:
        """A measurement of a plan with the times to go by; a failed one as it is."""
        if self._cost is None or measured.problem is not None:
            return measured
        costs = {
            site: self._cost(site, trace, plan.get(site, "native"))
            for site, trace in self._sites.items()
        }
        return replace(measured, seconds=sum(costs.values()), site_seconds=costs)

    def predicted(self, site: str, schemes: Iterable[str]) -> dict[str, float]:
        """Scheme → the site's time under it; empty where times are measured."""
        if self._cost is None:
            return {}
        return {scheme: self._cost(site, self._sites[site], scheme) for scheme in schemes}
