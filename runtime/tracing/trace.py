"""The record of a run: the calls of each site, their shapes, times, schemes and reasons."""

import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isnan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.tracing.captures import Captures
from mixpert_py.runtime.tracing.counted import CountedCalls

if TYPE_CHECKING:
    from mixpert_py.runtime.tracing.operand_statistics import OperandStatistics

MAX_KINDS = 16  # of calls of one site that are sampled separately
MAX_PARTS = 64  # of one array that are distinguished; those written earliest are dropped
MAX_WORK = 1000  # of deciding whether two views overlap; beyond it they are taken not to


class TracedCall(NamedTuple):
    """A call of a site. shape: (m, k, n). scheme: the scheme that made the product, or "native".

    reason: why the scheme in force did not make it. seconds: the time of the call; transfer: the
    part of it in which NumPy arrays were moved to a GPU and back. outliers: the share of the
    operands' blocks that left the scheme's slices, where that was asked for. unsuited: of a native
    call for which nobody asked for a scheme: why a processor would not make it in float32,
    or by `exact`.
    """

    shape: Shape
    dtype: str
    scheme: str
    reason: Reason | None
    seconds: float
    outliers: float = 0.0
    transfer: float = 0.0
    unsuited: Reason | None = None


@dataclass(slots=True)
class SiteTrace:
    """The calls of one site. counted: the number of calls that were only counted, not traced.
    seconds, transfer: sums over the calls. outliers: the largest share.

    The rest is recorded only where the trace samples operands. sampled: the number of sampled
    calls. errors, spread: the worst of these calls, as `tracing.operand_statistics` defines them;
    errors maps a scheme to its relative Frobenius error against FP64. The worst is recorded because
    the few sampled calls stand for all; the tuner's fit makes up for its being too large for most.
    fed_by: for each site the number of calls with an operand that was that site's result.
    """

    calls: int = 0
    counted: int = 0
    seconds: float = 0.0
    transfer: float = 0.0
    shapes: Counter[Shape] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    unsuited: Counter[Reason] = field(default_factory=Counter)
    outliers: float = 0.0
    sampled: int = 0
    errors: dict[str, float] = field(default_factory=dict)
    spread: float = 0.0
    fed_by: Counter[str] = field(default_factory=Counter)

    def add(self, other: "SiteTrace") -> None:
        """Count the calls of another trace of the site as well."""
        for name in ("calls", "counted", "seconds", "transfer", "sampled"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("shapes", "dtypes", "schemes", "reasons", "unsuited", "fed_by"):
            getattr(self, name).update(getattr(other, name))
        self.outliers = max(self.outliers, other.outliers)
        self.add_worst(other)

    def add_worst(self, found: "SiteTrace | OperandStatistics") -> None:
        """Keep the worst of what sampled calls show, and the larger error of each scheme."""
        self.spread = max(self.spread, found.spread)
        for scheme, error in found.errors.items():
            # NaN is the largest: it means that the scheme failed here.
            self.errors[scheme] = max(
                error, self.errors.get(scheme, 0.0), key=lambda e: (isnan(e), e)
            )


class Sampling:
    """Chooses the calls of a site whose operands are read: early ones, then fewer and fewer.

    Of every kind of call, a shape with its dtypes, these are calls 1, 2, 3, 5, 8, 13, …: Fibonacci
    numbers. Powers of two are even, and a site that alternates would show half of its calls. The
    choice depends on counts and not on the clock, so that two runs sample the same calls. Kinds
    beyond the first MAX_KINDS count as one, so that O(log n) of n calls are sampled in any case.
    """

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        # kind → calls so far, the next call to sample, and the one after that
        self._kinds: dict[Hashable, tuple[int, int, int]] = {}

    def takes(self, kind: Hashable) -> bool:
        """Count a call of this kind; True if it is one to sample."""
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            kind = None
        calls, due, after = self._kinds.get(kind, (0, 1, 2))
        calls += 1
        is_due = calls == due
        self._kinds[kind] = (calls, after, due + after) if is_due else (calls, due, after)
        return is_due


class Trace:
    """Collects the calls of a run. Safe to share between threads.

    levels: None if no operands are read. Otherwise those of sampled calls are read, the local
    errors of these schemes are measured on them, and operands are recognised as results of other
    sites. keep: the sites whose last non-empty result is stored, in `results`. captures: takes the
    operands of sampled calls as well. children: the file in which children of this process leave
    the names of the sites that they call, see `begin_child`.
    """

    def __init__(
        self,
        levels: Collection[str] | None = None,
        keep: Collection[str] = (),
        captures: Captures | None = None,
        children: str | None = None,
    ) -> None:
        self.children = children
        self.is_child = False
        self.levels = None if levels is None else tuple(levels)
        self.captures = captures
        self.keep = frozenset(keep)
        self.name = uuid4().hex  # the name by which other processes send records to it
        self._sites: dict[str, SiteTrace] = {}
        self.others: dict[str, SiteTrace] = {}  # calls of functions that are no known product
        self.counted: list[CountedCalls] = []  # those of all contexts with this trace
        self.counting = threading.Lock()  # held where what was counted is recorded
        self.results: dict[str, Any] = {}
        self._sampling: dict[tuple[str | None, str], Sampling] = defaultdict(Sampling)
        self._buffers = Buffers()
        self._lock = threading.Lock()

    @property
    def sites(self) -> dict[str, SiteTrace]:
        """The calls of each site, those that were only counted included."""
        for counted in self.counted:
            counted.record(self)
        return self._sites

    def add(self, site: str | None, call: TracedCall, counted: int = 0) -> None:
        """Record a call, or so many counted ones that are like it."""
        count = counted or 1
        with self._lock:
            record = self._site(site)
            record.calls += count
            record.counted += counted
            record.seconds += count * call.seconds
            record.transfer += count * call.transfer
            record.shapes[call.shape] += count
            record.dtypes[call.dtype] += count
            record.schemes[call.scheme] += count
            record.outliers = max(record.outliers, call.outliers)
            if call.reason is not None:
                record.reasons[call.reason] += count
            if call.unsuited is not None:
                record.unsuited[call.unsuited] += count

    def add_other(self, site: str | None) -> None:
        """Record one call of a function that is no product which can take a scheme."""
        with self._lock:
            record = self.others.setdefault(site or "-", SiteTrace())
            record.calls += 1
            record.shapes[0, 0, 0] += 1
            record.schemes["native"] += 1
            record.reasons[Reason.FUNCTION] += 1

    def begin_child(self) -> None:
        """In a child process: record only the names of sites, in `children`, from here on.

        A child may be ended at any moment, as those of a pool are, so each name is written at once.
        """
        self.is_child = True
        # Another thread may have held them when this one forked.
        self._lock, self.counting = threading.Lock(), threading.Lock()
        self.levels = self.captures = None
        self.keep = frozenset()
        self._sites, self.results = {}, {}
        for counted in self.counted:
            counted.begin_child()
        self.counted = []

    def take(self) -> dict[str, SiteTrace]:
        """Remove and return the records of all sites."""
        taken = self.sites
        with self._lock:
            self._sites = {}
        return taken

    def merge(self, sites: Mapping[str, SiteTrace]) -> None:
        """Add the records that another trace's `take` returned."""
        with self._lock:
            for site, record in sites.items():
                self._site(site).add(record)

    def samples(self, site: str | None, purpose: str, kind: Hashable) -> bool:
        """Whether this call of a site is sampled. kind: its shape and dtypes."""
        with self._lock:
            return self._sampling[site, purpose].takes(kind)

    def add_statistics(self, site: str | None, found: "OperandStatistics") -> None:
        """Record the operands of one sampled call; the worst values stay."""
        with self._lock:
            record = self._site(site)
            record.sampled += 1
            record.add_worst(found)

    def follow(self, site: str, operands: Collection[AnyArray], result: AnyArray | None) -> None:
        """Record which sites' results the operands of a call are; remember its own result."""
        with self._lock:
            found = set().union(*map(self._buffers.sites, operands))
            if found:
                self._site(site).fed_by.update(found)
            if result is not None:
                self._buffers.write(result, site)

    def keep_result(self, site: str | None, result: object) -> None:
        """Store a result that the run will be judged by."""
        if site is not None:
            with self._lock:
                self.results[site] = result

    def _site(self, site: str | None) -> SiteTrace:
        record = self._sites.get(site or "-")
        if record is None:
            record = self._sites[site or "-"] = SiteTrace()
            if self.is_child and self.children is not None:
                with suppress(OSError), open(self.children, "a", encoding="utf-8") as file:
                    file.write(f"{site or '-'}\n")
        return record


class _WrittenArray(NamedTuple):
    """An array, and the sites whose results lie in it: each with the `__array_interface__` of its
    part, None for all of it.
    """

    reference: "weakref.ref[Any]"
    written: list[tuple[str, dict[str, Any] | None]]


class Buffers:
    """The results that are still alive, held by weak references.

    Each is identified by the array that owns its memory, and not by its address, which is used
    again once that array is deleted. Writes of other code to the memory are not noticed.
    """

    def __init__(self) -> None:
        self._owners: dict[int, _WrittenArray] = {}

    def sites(self, x: object) -> set[str]:
        """The sites whose results an operand shares memory with."""
        owner = _owner_of(x)
        known = self._owners.get(id(owner))
        if known is None or known.reference() is not owner:
            return set()
        return {site for site, part in known.written if part is None or _overlap(x, part)}

    def write(self, x: object, site: str) -> None:
        """Record that a site's result lies in the memory of x, in place of what it overwrites."""
        owner = _owner_of(x)
        region = None
        if x is not owner:
            if not isinstance(x, np.ndarray):
                return  # the place of a part of another library's array is not known
            if x.size != owner.size:
                region = dict(x.__array_interface__)
        known = self._owners.get(id(owner))
        if known is None or known.reference() is not owner:
            try:
                known = self._watched(owner)
            except TypeError:  # a scalar, say
                return
        if region is None:
            known.written[:] = [(site, None)]
        else:
            known.written[:] = [it for it in known.written if it[1] != region] + [(site, region)]
            del known.written[:-MAX_PARTS]

    def _watched(self, owner: object) -> _WrittenArray:
        """A record of an array, which is dropped with it, before its id can be another array's."""
        owners, key = self._owners, id(owner)
        record = owners[key] = _WrittenArray(
            weakref.ref(owner, lambda _: owners.pop(key, None)), []
        )
        return record


def _owner_of(x: object) -> Any:
    """The array whose memory x is a view of; x itself where its library does not say."""
    if type(x) is np.ndarray and x.base is None:
        return x  # most are
    arrays = (np.ndarray, getattr(sys.modules.get("cupy"), "ndarray", np.ndarray))
    while isinstance(x, arrays) and isinstance(x.base, arrays):
        x = x.base
    return x


def _overlap(x: object, region: dict[str, Any]) -> bool:
    if not isinstance(x, np.ndarray):
        return False
    there = np.asarray(SimpleNamespace(__array_interface__=region))
    try:
        # NumPy takes any number; its types know two.
        return np.shares_memory(x, there, max_work=MAX_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False
