"""Times of products that were made by themselves, under each scheme in turn with the native one.

Such pairs say which is faster also on a busy machine, where times of whole runs do not.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, prod, sqrt

from mixpert_py.execution.products import NEGLIGIBLE, MeasuredProduct
from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime.reasons import Shape
from mixpert_py.runtime.tracing.captures import shared_out
from mixpert_py.tuner.ratio import LARGEST, STUDENT, Pace, Ratio
from mixpert_py.tuner.records import Reason

LITTLE = 0.1  # of a product's time: a gain below it that no pair shows leaves nothing undecided
LEAST_SAVED = 0.005  # of the time of all products, for a product to be lowered
NEW_MEMORY = 1e9  # bytes/s of memory that was not used before, at least: what takes longer is load
BYTES = 8  # of an entry
AS_NATIVE = Ratio(1.0, 1.0, 1.0)  # of a product that does not take the scheme


def by_site(found: Sequence[MeasuredProduct]) -> dict[str, list[MeasuredProduct]]:
    """The measured products of each call site; of a site without any, an empty list."""
    products: dict[str, list[MeasuredProduct]] = defaultdict(list)
    for product in found:
        products[product.site].append(product)
    return products


def site_ratio(trace: SiteResult, found: Sequence[MeasuredProduct], scheme: str) -> Ratio | Reason:
    """The time of a site's calls under a scheme over their native time; why there is none.

    found: the site's products, one for each shape that was measured. The ratio is that of the
    shapes, weighted with their parts of the site's time; shapes that were not measured are taken to
    have the mean of the others. Calls took longer in the program where memory was new, or in no
    cache: no scheme saves that time.
    """
    measured = [(one.shape, one.times[scheme]) for one in found if scheme in one.times]
    if not measured:
        return Reason.UNCLEAR
    if all(times is None for _, times in measured):
        return Reason.NOT_TAKEN
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
    ratios: Mapping[str, Mapping[str, Ratio | Reason]]

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

        def ratio(site: str, scheme: str) -> Ratio | Reason:
            if not measured[site] and native.get(site, 0.0) < least:
                return Reason.NEGLIGIBLE
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

    def excluded(self, site: str) -> dict[str, Reason]:
        """Scheme → why it is not tried at a site: it is not faster, not known to be, or saves next
        to nothing, which one tuning finds and the next does not.
        """
        found = {}
        least, seconds = LEAST_SAVED * sum(self.native.values()), self.native.get(site, 0.0)
        for scheme, ratio in self.ratios[site].items():
            reason = _exclusion(ratio) if isinstance(ratio, Ratio) else ratio
            if reason is None and isinstance(ratio, Ratio) and (1 - ratio.mean) * seconds < least:
                reason = Reason.TOO_LITTLE
            if reason is not None:
                found[scheme] = reason
        return found


def _exclusion(ratio: Ratio) -> Reason | None:
    """Why a scheme of such times is not tried.

    A gain of a few per cent is shown in one tuning and not in the next: all of them end alike where
    a gain that is that small at most, and was not shown, is none.
    """
    if ratio.pace is Pace.FASTER:
        return None
    may_gain = ratio.pace is Pace.UNCLEAR and ratio.least < 1 - LITTLE
    return Reason.UNCLEAR if may_gain else Reason.NOT_FASTER


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
    errors = [
        (part * ratio.half_width / STUDENT[ratio.freedom - 1], ratio.freedom)
        for part, ratio in terms
    ]
    variance = sum(error**2 for error, _ in errors)
    if not variance:
        return Ratio(mean, mean, mean)
    satterthwaite = variance**2 / sum(error**4 / freedom for error, freedom in errors)
    freedom = max(min(round(satterthwaite), len(STUDENT)), 1)
    half = min(STUDENT[freedom - 1] * sqrt(variance) / mean, LARGEST)
    return Ratio(mean, mean * exp(-half), mean * exp(min(half, LARGEST - log(mean))), freedom)
