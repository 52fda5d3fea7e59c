"""What happened at each call site: calls, shapes, time, what ran, and why nothing else did."""

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.tracing.buffers import Buffers
from mixpert_py.runtime.tracing.sampling import Sampling

if TYPE_CHECKING:
    from mixpert_py.runtime.tracing.shadow import Shadow


@dataclass(slots=True)
class SiteTrace:
    """All calls of one site. `shapes` counts (m, k, n) of the products; `seconds` is their time,
    `transfer` what moving NumPy arrays to a GPU and back added to it. outliers: largest share of
    an operand pair's blocks that left the integer slices, of those calls that were looked into.

    The rest only where the trace was asked to look at operands. sampled: how many calls were looked
    into; of these, as `tracing.shadow` says it, the worst spread, int8_loss, cancellation and
    errors: scheme → relative Frobenius error, against FP64, that it would make on the operands
    seen. The worst, as what is known of a few calls has to hold for all; that it is too large for
    most of them, the tuner's fit makes up for. fed_by: site → calls with an operand that was that
    site's result.
    """

    calls: int = 0
    seconds: float = 0.0
    transfer: float = 0.0
    shapes: Counter[Shape] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    outliers: float = 0.0
    sampled: int = 0
    errors: dict[str, float] = field(default_factory=dict)
    spread: float = 0.0
    int8_loss: float = 0.0
    cancellation: float = 1.0
    fed_by: Counter[str] = field(default_factory=Counter)

    def add(self, other: "SiteTrace") -> None:
        """Count the calls of another trace of the site as well."""
        self.calls += other.calls
        self.seconds += other.seconds
        self.transfer += other.transfer
        for name in ("shapes", "dtypes", "schemes", "reasons", "fed_by"):
            getattr(self, name).update(getattr(other, name))
        self.outliers = max(self.outliers, other.outliers)
        self.sampled += other.sampled
        self.spread = max(self.spread, other.spread)
        self.int8_loss = max(self.int8_loss, other.int8_loss)
        self.cancellation = max(self.cancellation, other.cancellation)
        self.add_errors(other.errors)

    def add_errors(self, errors: Mapping[str, float]) -> None:
        """Keep the larger ones."""
        for scheme, error in errors.items():
            # NaN is the largest: it means that the scheme failed here.
            self.errors[scheme] = max(
                error, self.errors.get(scheme, 0.0), key=lambda e: (isnan(e), e)
            )


class Trace:
    """Collects the calls of a run. Safe to share between threads.

    levels: None: operands are not looked at. Else those of sampled calls are, and the local error
    of these schemes is measured on them, if any; and it is seen whose results operands are.
    keep: sites whose last non-empty result is kept, in `results`.
    """

    def __init__(self, levels: Collection[str] | None = None, keep: Collection[str] = ()) -> None:
        self.levels = None if levels is None else tuple(levels)
        self.keep = frozenset(keep)
        self.name = uuid4().hex  # by which other processes know it
        self.sites: dict[str, SiteTrace] = {}
        self.results: dict[str, Any] = {}
        self._sampling: dict[tuple[str | None, str], Sampling] = defaultdict(Sampling)
        self._buffers = Buffers()
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
        transfer: float = 0.0,
    ) -> None:
        """Record one call."""
        with self._lock:
            record = self._site(site)
            record.calls += 1
            record.seconds += seconds
            record.transfer += transfer
            record.shapes[shape] += 1
            record.dtypes[dtype] += 1
            record.schemes[scheme] += 1
            record.outliers = max(record.outliers, outliers)
            if reason is not None:
                record.reasons[reason] += 1

    def take(self) -> dict[str, SiteTrace]:
        """What was recorded since this was last asked for; it is no longer here."""
        with self._lock:
            taken, self.sites = self.sites, {}
        return taken

    def merge(self, sites: Mapping[str, SiteTrace]) -> None:
        """Record what another trace took."""
        with self._lock:
            for site, record in sites.items():
                self._site(site).add(record)

    def samples(self, site: str | None, purpose: str, kind: Hashable) -> bool:
        """Whether this call of a site is one to look into. kind: its shape and dtypes."""
        with self._lock:
            return self._sampling[site, purpose].takes(kind)

    def add_shadow(self, site: str | None, shadow: "Shadow") -> None:
        """Record what one sampled call showed; the worst stays."""
        with self._lock:
            record = self._site(site)
            record.sampled += 1
            record.spread = max(record.spread, shadow.spread)
            record.int8_loss = max(record.int8_loss, shadow.int8_loss)
            record.cancellation = max(record.cancellation, shadow.cancellation)
            record.add_errors(shadow.errors)

    def follow(self, site: str, operands: Collection[Any], result: Any | None) -> None:
        """See whose results the operands of a call are; and its own, unless it is None."""
        with self._lock:
            found = set().union(*map(self._buffers.sites, operands))
            if found:
                self._site(site).fed_by.update(found)
            if result is not None:
                self._buffers.write(result, site)

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
