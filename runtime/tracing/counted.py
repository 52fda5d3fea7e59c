"""Calls of small native products that are counted and not traced: tracing one takes longer than
the product.
"""

from collections import deque
from collections.abc import Collection
from itertools import repeat
from math import prod
from operator import length_hint
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixpert_py.runtime.tracing.trace import Trace, TracedCall

MAX_WORK = 1 << 18  # multiply-adds of a small product, which takes about 10 µs
FIRST = 50  # small calls of a site that are traced in any case
PART = 4  # at most a quarter as many calls are counted in a row as have come before
MOST = 1000  # calls that are counted in a row
KEPT = 101  # times of traced calls by which the time of a counted one is told
NONE = repeat(True, 0)  # a site none of whose calls is to be counted


def quick(seconds: Collection[float]) -> float:
    """The time of a small call by several times of it: the lower quartile.

    Of calls that are traced one at a time many find the processor's caches without their code.
    """
    return sorted(seconds)[len(seconds) // 4]


class _Site:
    """A site with small calls. granted: calls that were to be counted since the last traced one.

    call: the last traced call.
    """

    __slots__ = ("call", "calls", "granted", "seconds")

    def __init__(self) -> None:
        self.calls = self.granted = 0
        self.seconds: deque[float] = deque(maxlen=KEPT)
        self.call: TracedCall | None = None


class CountedCalls(dict[str | None, "repeat[bool]"]):
    """The counted calls of one context: site → an iterator with an item for each call to count.

    `next(counted.get(site, NONE), False)` counts a call, which then must run natively; false where
    it is to be traced. A counted call is taken to be like the last traced one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sites: dict[str | None, _Site] = {}

    def begin(self, trace: "Trace", site: str | None, call: "TracedCall") -> None:
        """Record the calls that were counted before a traced native call, and count the next ones
        if it is small.
        """
        is_small = prod(call.shape) <= MAX_WORK
        if not is_small and site not in self._sites:
            return
        with trace.counting:
            if not self._sites:
                trace.counted.append(self)
            known = self._sites.setdefault(site, _Site())
            uncounted = self.get(site, NONE)
            self[site] = NONE
            # Emptied, since another thread may have taken this iterator and count a call by it.
            self._record(trace, site, known, sum(uncounted))
            known.granted = 0
            if not is_small:
                known.calls = 0
                return
            known.calls += 1
            known.call = call
            known.seconds.append(call.seconds)
            if known.calls >= FIRST:
                known.granted = min(known.calls // PART, MOST)
                self[site] = repeat(True, known.granted)

    def record(self, trace: "Trace") -> None:
        """Record the calls that were counted and are not recorded yet."""
        with trace.counting:
            for site, known in self._sites.items():
                self._record(trace, site, known, length_hint(self.get(site, NONE)))

    def begin_child(self) -> None:
        """Forget all calls, in a child process."""
        self._sites = {}
        self.clear()

    def _record(self, trace: "Trace", site: str | None, known: _Site, left: int) -> None:
        """Record the calls that were counted. left: the number that may still be counted."""
        count, known.granted = known.granted - left, left
        if count and known.call is not None:  # with the usual time of a call
            known.calls += count
            trace.add(site, known.call._replace(seconds=quick(known.seconds)), count)
