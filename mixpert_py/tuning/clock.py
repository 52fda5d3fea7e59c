"""The times that a search goes by: measured in runs or in pairs of products, or predicted.

Pairs of a product under a scheme and natively, in turn, say which is faster also on a busy machine,
where times of whole runs do not.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log, prod, sqrt
from typing import TYPE_CHECKING

from mixpert_py.execution.products import NEGLIGIBLE, MeasuredProduct
from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import is_wide, real_products
from mixpert_py.runtime.reasons import Shape
from mixpert_py.runtime.schemes import emulation_of, get
from mixpert_py.runtime.schemes.residues import of_complex
from mixpert_py.runtime.tracing.captures import shared_out
from mixpert_py.tuner.ratio import LARGEST, SMALLEST_GAIN, STUDENT, Pace, Ratio
from mixpert_py.tuner.records import Measurement, StopReason, median_of, time_noise

if TYPE_CHECKING:
    from mixpert_py.runtime.model.kernel_times import KernelTimes

LITTLE = 0.1  # of a product's time: a gain below it that no pair shows leaves nothing undecided
LEAST_SAVED = 0.005  # of the time of all products, for a product to be lowered
NEW_MEMORY = 1e9  # bytes/s of memory that was not used before, at least: what takes longer is load
BYTES = 8  # of an entry
AS_NATIVE = Ratio(1.0, 1.0, 1.0)  # of a product that does not take the scheme

Cost = Callable[[str, SiteResult, str], float]
"""(site id, its native trace, scheme) → the cost of its calls under the scheme, in any unit."""


class Clock:
    """Puts the times that a search goes by into measurements: measured or predicted ones.

    On a machine without tensor cores the time of an emulated product means nothing: the number of
    slice products stands for it, or the time on a device. And times in pairs are known better than
    those of single runs. cost: predicts a site's time; None keeps measured ones. native: the native
    runs as one, by their medians. noise: site → the smallest gain that counts.
    """

    def __init__(
        self, natives: Sequence[Measurement], sites: Mapping[str, SiteResult], cost: Cost | None
    ) -> None:
        self._sites = sites
        self.cost = cost
        self._pairs = cost if isinstance(cost, PairedTimes) else None
        measured = median_of(natives)
        # The program's time beside its products; of another machine that is not known.
        inside = sum(measured.site_seconds.values())
        self._outside = 0.0 if self.predicts else max(measured.seconds - inside, 0.0)
        self.native = self(measured, {})
        self.noise = time_noise(natives) if cost is None else dict.fromkeys(sites, 0.0)
        if self._pairs is not None:
            times = self.native.site_seconds.items()
            self.noise = {site: SMALLEST_GAIN * seconds for site, seconds in times}

    def __call__(self, measured: Measurement, plan: Mapping[str, str]) -> Measurement:
        """A measurement of a plan with the times to go by; a failed one is unchanged."""
        if self.cost is None or measured.problem is not None:
            return measured
        sites, cost = self._sites.items(), self.cost
        costs = {site: cost(site, trace, plan.get(site, "native")) for site, trace in sites}
        seconds = self._outside + sum(costs.values())
        return replace(measured, seconds=seconds, site_seconds=costs)

    @property
    def predicts(self) -> bool:
        """Whether times are predicted, and not measured here."""
        return self.cost is not None and self._pairs is None

    @property
    def device(self) -> str:
        """The GPU that times are predicted for, where it is a certain one."""
        return self.cost.device if isinstance(self.cost, DeviceCost) else ""

    def predicted(self, site: str, schemes: Iterable[str]) -> dict[str, float]:
        if self.cost is None:
            return {}
        return {scheme: self.cost(site, self._sites[site], scheme) for scheme in schemes}

    def excluded(self, site: str) -> dict[str, StopReason]:
        return {} if self._pairs is None else self._pairs.excluded(site)


def by_site(found: Iterable[MeasuredProduct]) -> dict[str, list[MeasuredProduct]]:
    """The measured products of each call site; of a site without any, an empty list."""
    products: dict[str, list[MeasuredProduct]] = defaultdict(list)
    for product in found:
        products[product.site].append(product)
    return products


def site_ratio(
    trace: SiteResult, found: Sequence[MeasuredProduct], scheme: str
) -> Ratio | StopReason:
    """The time of a site's calls under a scheme over their native time; why there is none.

    found: the site's products, one for each shape that was measured, weighted with their parts of
    the site's time; other shapes are taken to have the mean of these. Calls took longer in the
    program where memory was new, or in no cache: no scheme saves that time.
    """
    measured = [(one.shape, one.times[scheme]) for one in found if scheme in one.times]
    if not measured:
        return StopReason.UNCLEAR
    if all(times is None for _, times in measured):
        return StopReason.NOT_TAKEN
    by_shape: dict[Shape, list[Ratio]] = defaultdict(list)
    for shape, times in measured:
        by_shape[shape].append(times.ratio if times else AS_NATIVE)
    parts = shared_out(1.0, trace.shapes)
    left = sum(part for shape, part in parts.items() if shape not in by_shape)
    works = {shape: max(prod(shape), 1) for shape in by_shape}
    weights = {
        shape: parts.get(shape, 0.0) + left * work / sum(works.values())
        for shape, work in works.items()
    }
    ratio = _mean([_mean(its, [1.0] * len(its)) for its in by_shape.values()], weights.values())
    alone = {shape: times.native for shape, times in measured if times}
    calls = [((m, k, n), count) for m, k, n, count in trace.shapes if (m, k, n) in alone]
    taken = trace.seconds * sum(parts[shape] for shape, _ in calls)
    most = sum(count * BYTES * (m * k + k * n + m * n) for (m, k, n), count in calls) / NEW_MEMORY
    waited = min(taken - sum(count * alone[shape] for shape, count in calls), most)
    return ratio.of_part(1 - waited / taken) if waited > 0 else ratio


@dataclass(frozen=True, slots=True)
class PairedTimes:
    """A `Cost` in seconds on this machine: native times of runs, and ratios of pairs.

    native: site → seconds of its calls in the native runs. ratios: site → scheme → ratio, or why
    there is none.
    """

    native: Mapping[str, float]
    ratios: Mapping[str, Mapping[str, Ratio | StopReason]]

    @classmethod
    def of(
        cls,
        native: Mapping[str, float],
        sites: Mapping[str, SiteResult],
        alone: Sequence[MeasuredProduct],
        schemes: Sequence[str],
    ) -> "PairedTimes":
        """Of the products that a profile has made by themselves. sites: its traces."""
        measured = by_site(alone)
        least = NEGLIGIBLE * sum(native.values())

        def ratio(site: str, scheme: str) -> Ratio | StopReason:
            if not measured[site] and native.get(site, 0.0) < least:
                return StopReason.NEGLIGIBLE
            return site_ratio(sites[site], measured[site], scheme)

        return cls(
            native, {site: {scheme: ratio(site, scheme) for scheme in schemes} for site in sites}
        )

    def __call__(self, site: str, trace: SiteResult, scheme: str) -> float:
        """Seconds of a site's calls under a scheme; those of an unknown ratio are native."""
        ratio = self.ratios[site].get(scheme)
        seconds = self.native.get(site, 0.0)
        return seconds * ratio.mean if isinstance(ratio, Ratio) else seconds

    def of_plan(self, plan: Mapping[str, str]) -> Ratio | None:
        """The time of the products that a plan lowers over their native time; None if unknown."""
        weights, ratios = [], []
        for site, scheme in plan.items():
            ratio = self.ratios.get(site, {}).get(scheme)
            if isinstance(ratio, Ratio) and self.native.get(site):
                weights.append(self.native[site])
                ratios.append(ratio)
        return _mean(ratios, weights) if ratios else None

    def excluded(self, site: str) -> dict[str, StopReason]:
        """Scheme → why it is not tried at a site: it is not faster, not known to be, or saves next
        to nothing, which one tuning finds and the next does not.
        """
        found = {}
        least, seconds = LEAST_SAVED * sum(self.native.values()), self.native.get(site, 0.0)
        for scheme, ratio in self.ratios[site].items():
            if isinstance(ratio, StopReason):
                found[scheme] = ratio
            elif ratio.pace is not Pace.FASTER:
                # A gain of a few per cent is shown in one tuning and not in the next: all of them
                # end alike where a gain that is so small at most, and was not shown, is none.
                may_gain = ratio.pace is Pace.UNCLEAR and ratio.least < 1 - LITTLE
                found[scheme] = StopReason.UNCLEAR if may_gain else StopReason.NOT_FASTER
            elif (1 - ratio.mean) * seconds < least:
                found[scheme] = StopReason.TOO_LITTLE
        return found


def _mean(ratios: Sequence[Ratio], weights: Collection[float]) -> Ratio:
    """The weighted mean of ratios of independent times, and its interval, to first order.

    The standard errors add up as squares, and the degrees of freedom of their sum are those of
    Satterthwaite (1946): shapes that were timed a few times each are together known well.
    """
    whole = sum(weights)
    terms = [
        (weight / whole * ratio.mean, ratio) for weight, ratio in zip(weights, ratios, strict=True)
    ]
    mean = sum(part for part, _ in terms)
    errors = [(part * x.half_width / STUDENT[x.freedom - 1], x.freedom) for part, x in terms]
    variance = sum(error**2 for error, _ in errors)
    if not variance:
        return Ratio(mean, mean, mean)
    satterthwaite = variance**2 / sum(error**4 / freedom for error, freedom in errors)
    freedom = max(min(round(satterthwaite), len(STUDENT)), 1)
    half = min(STUDENT[freedom - 1] * sqrt(variance) / mean, LARGEST)
    return Ratio(mean, mean * exp(-half), mean * exp(min(half, LARGEST - log(mean))), freedom)


def int8_products(site: str, trace: SiteResult, scheme: str) -> float:
    """A `Cost`: multiply-adds on INT8 tensor cores that take as long as the site's calls."""
    if scheme == "native":
        scheme = "float64" if is_wide(*trace.dtypes) else "float32"
    cost = get(scheme).cost
    products = max((real_products(dtype, dtype) for dtype in trace.dtypes), default=1)
    if products == 4 and scheme.startswith("crt"):
        cost, products = 2 * len(of_complex(emulation_of(scheme).moduli)), 1
    return cost * products * sum(m * k * n * calls for m, k, n, calls in trace.shapes)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCost:
    """A `Cost` in seconds on a GPU that need not be here, by its model. device: CUDA's name."""

    device: str
    times: "KernelTimes"

    @classmethod
    def of(cls, name: str) -> "DeviceCost":
        """The cost on a device, by words of its name. DeviceError without a model or kernels."""
        from mixpert_py.runtime.model import device_model, prediction
        from mixpert_py.runtime.model.kernel_times import KernelTimes

        times = KernelTimes(device_model.find(name))
        prediction.require(times)
        return cls(times.model.device, times)

    def __call__(self, site: str, trace: SiteResult, scheme: str) -> float:
        """Seconds of a site's calls there; native ones where the scheme would be no faster."""
        wide = is_wide(*trace.dtypes)
        # Both operands of a complex result are assumed to be complex.
        products = max((real_products(dtype, dtype) for dtype in trace.dtypes), default=1)
        of = partial(self._product, scheme=scheme, wide=wide, products=products)
        return sum(calls * of((m, k, n)) for m, k, n, calls in trace.shapes)

    def _product(
        self, shape: tuple[int, int, int], scheme: str, wide: bool, products: int
    ) -> float:
        """Seconds of one call. A stack of matrices counts in m; products: real ones it takes."""
        from mixpert_py.runtime.model import prediction

        m, k, n = shape
        if 0 in shape:
            return 0.0
        native = prediction.native(self.times, m, k, n, products, wide=wide and scheme != "float32")
        if scheme in ("native", "float32", "float64"):
            return native
        if not worth.figures(self.device).faster(scheme, (m, k), (k, n), wide, products):
            return native
        emulation = worth.emulation_on_gpu(scheme, products * m * k * n)
        if products == 4 and emulation.moduli:
            return prediction.joined(self.times, emulation, shape, wide=wide).seconds
        emulated = prediction.product(self.times, emulation, shape, products, wide=wide).seconds
        if products == 1:
            return emulated
        return emulated + prediction.joining(self.times, m, n, products, products, wide=wide)
