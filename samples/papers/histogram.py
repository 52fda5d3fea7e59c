"""The distribution of the errors of a product's elements."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from samples.papers.columns import Measure
from samples.papers.exhibit import Found, Row
from samples.papers.place import FP32, RANGES, Place
from tests.benchmarks.arrays import Array, wide

SIZE = 2048
BINS = 4  # a decade
DECADES = (-12, 0)
NOTE = "Errors of 0 are in no bin; shares are of all elements."


def histogram(*names: str) -> Measure:
    """Shares of elements by their relative error against the FP32 product, over input ranges."""
    return partial(_histogram, names)


def _histogram(names: Sequence[str], place: Place) -> Found:
    n, rows = place.size(SIZE), []
    for range_, limits in RANGES.items():
        a, b = place.uniform(limits, n, n, n)
        single = wide(place.product(FP32, a, b))
        for name in names:
            error = abs(wide(place.product(name, a, b)) - single)
            bins = _bins(place, error / (abs(single) + (single == 0)))
            rows += [{"name": name, "range": range_, **bin_} for bin_ in bins]
    return Found(rows, note=NOTE)


def _bins(place: Place, errors: Array) -> Iterator[Row]:
    """The middle of every bin that has elements, and their share."""
    logs = place.xp.log10(errors[errors > 0])
    edges = np.linspace(*DECADES, (DECADES[1] - DECADES[0]) * BINS + 1)
    counts, _ = place.xp.histogram(logs, bins=place.xp.asarray(edges))
    for edge, count in zip(edges, counts.tolist(), strict=False):
        if count:
            yield {"error": 10.0 ** (float(edge) + 0.5 / BINS), "share": count / errors.size}
