"""What happened at each call site: calls, shapes, time, what ran, and why nothing else did."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isnan
from typing import Any

Shape = tuple[int, int, int]


class Reason(StrEnum):
    """Why a call ran natively although a scheme was meant for it."""

    TOO_SMALL = "too small"
    NOT_AN_ARRAY = "not a NumPy or GPU array"
    SUBCLASS = "array subclass"
    SPARSE = "sparse operand"
    SCALAR = "scalar operand"
    INTEGER = "integer dtype"
    COMPLEX = "complex dtype"
    DTYPE = "dtype without a scheme"
    SHAPE = "shapes do not match"
    DIMENSIONS = "no product of two matrices"
    OUT = "out= of another kind"
    RANGE = "beyond float32's range"
    SPREAD = "exponent spread"
    GRADIENT = "tensor with a gradient"
    AUTOCAST = "under PyTorch's autocast"
    OTHER_DEVICE = "operands on another device"
    NO_TENSOR_CORE = "no tensor core"
    OLD_GPU = "unsupported GPU"
    OLD_DRIVER = "driver too old"
    FORKED = "forked after CUDA began"
    KERNEL = "kernel did not compile"
    MEMORY = "out of memory"


@dataclass(slots=True)
class SiteTrace:
    """All calls of one site. `shapes` counts (m, k, n) of the products; `seconds` is their time.

    errors: scheme → largest relative Frobenius error, against FP64, that it would make on the
    operands seen (only where the trace was asked for levels). outliers: largest share of an
    operand pair's blocks that left the integer slices.
    """

    calls: int = 0
    seconds: float = 0.0
    shapes: Counter[Shape] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    errors: dict[str, float] = field(default_factory=dict)
    outliers: float = 0.0


class Trace:
    """Collects the calls of a run. Safe to share between threads.

    levels: schemes whose local error is to be measured on the operands of sampled calls.
    keep: sites whose last non-empty result is kept, in `results`.
    """

    def __init__(self, levels: Collection[str] = (), keep: Collection[str] = ()) -> None:
        self.levels = tuple(levels)
        self.keep = frozenset(keep)
        self.sites: dict[str, SiteTrace] = {}
        self.results: dict[str, Any] = {}
        self._lock = threading.Lock()

    def add(
        self,
        site: str | None,
        shape: Shape,
        dtype: str,
        scheme: str,
        reason: Reason | None,
        seconds: float,
        outliers: float = 0.0,
    ) -> int:
        """Record one call; returns how many calls its site has had, this one included."""
        with self._lock:
            record = self._site(site)
            record.calls += 1
            record.seconds += seconds
            record.shapes[shape] += 1
            record.dtypes[dtype] += 1
            record.schemes[scheme] += 1
            record.outliers = max(record.outliers, outliers)
            if reason is not None:
                record.reasons[reason] += 1
            return record.calls

    def add_errors(self, site: str | None, errors: Mapping[str, float]) -> None:
        """Record the local errors of one sampled call; the largest of each scheme stays."""
        with self._lock:
            record = self._site(site)
            for scheme, error in errors.items():
                # NaN is the largest: it means that the scheme failed here.
                record.errors[scheme] = max(
                    error, record.errors.get(scheme, 0.0), key=lambda e: (isnan(e), e)
                )

    def keep_result(self, site: str | None, result: Any) -> None:
        """Keep a result that the run will be judged by."""
        if site is not None:
            with self._lock:
                self.results[site] = result

    def _site(self, site: str | None) -> SiteTrace:
        record = self.sites.get(site or "-")
        if record is None:
            record = self.sites[site or "-"] = SiteTrace()
        return record
