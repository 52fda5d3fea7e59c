"""Launches at addresses that come again, as CUDA graphs: one call of the driver in place of many.

Memory pools hand out the same few blocks in turn, so that the products of a loop soon lie where
earlier ones lay. A product of eight launches costs the host 40 to 50 µs, and as a graph 10 to 17;
one of three launches 20, and 10. On a device that is busy with other work single launches are as
good, and better: the first of them overlaps with the end of that work (up to 6 % at 2048³).
"""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Final

Addresses = tuple[int, ...]

FEWEST: Final = 3  # launches: of fewer, a graph costs the host as much
MOST: Final = 16  # graphs of one recording, each of which keeps some memory of the driver's
WORTH: Final = 8  # launches that graphs have to have had, each, for more to be built past MOST
RELAXED: Final = 2  # captures that leave other threads, and what this one calls besides, alone
NON_BLOCKING: Final = 1


class _Graph:
    """A graph that can be launched; it is destroyed with this object, but not at the end of the
    process, when the driver may have gone before.
    """

    __slots__ = ("__weakref__", "_driver", "_handle")

    def __init__(self, handle: ctypes.c_void_p, driver: Any) -> None:
        self._handle, self._driver = handle, driver
        weakref.finalize(self, driver.cuGraphExecDestroy, handle).atexit = False

    def launch(self, stream: int) -> int:
        """The status of the driver."""
        return int(self._driver.cuGraphLaunch(self._handle, stream))


class LaunchGraphs:
    """The graphs of one recording, by the addresses of its arrays, the latest used last.

    Any number of threads may call at once: a graph is taken out while it is launched, which the
    driver does not let two threads do.
    """

    __slots__ = ("_built", "_driver", "_graphs", "_launched", "_seen")

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._graphs: dict[Addresses, _Graph] = {}
        self._seen: set[Addresses] = set()
        self._built = self._launched = 0

    def launch(self, addresses: Addresses, stream: int) -> bool:
        """Launch the graph of these addresses, if there is one; whether that was so.

        A graph that the driver does not launch is gone, and nothing of it was enqueued.
        """
        graph = self._graphs.pop(addresses, None)
        if graph is None or graph.launch(stream):
            return False
        self._launched += 1
        self._graphs[addresses] = graph
        return True

    def note(self, addresses: Addresses, enqueue: Callable[[int], None]) -> None:
        """Build the graph of addresses that have been noted before.

        enqueue: enqueues the launches at these addresses on a stream. Where launches cannot be
        captured, none is built any more.
        """
        if addresses not in self._seen:
            if len(self._seen) >= 4 * MOST:
                self._seen.clear()
            self._seen.add(addresses)
            return
        if self._built >= MOST and self._launched < WORTH * self._built:
            return
        self._built += 1
        graph = _captured(self._driver, enqueue)
        if graph is None:
            self._built = 1 << 62
            return
        while len(self._graphs) >= MOST:
            self._graphs.pop(next(iter(self._graphs)), None)
        self._graphs[addresses] = graph


def _captured(driver: Any, enqueue: Callable[[int], None]) -> _Graph | None:
    """The graph of what a function enqueues on a stream; None where that cannot be captured."""
    stream, graph, ready = (ctypes.c_void_p() for _ in range(3))
    if driver.cuStreamCreate(ctypes.byref(stream), NON_BLOCKING):
        return None
    try:
        if driver.cuStreamBeginCapture_v2(stream, RELAXED):
            return None
        try:
            enqueue(stream.value or 0)
        except Exception:  # the driver's: what it is, the launches that are not captured will say
            driver.cuStreamEndCapture(stream, ctypes.byref(graph))
            return None
        if driver.cuStreamEndCapture(stream, ctypes.byref(graph)):
            return None
        failed = driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, 0)
        driver.cuGraphDestroy(graph)
        return None if failed else _Graph(ready, driver)
    finally:
        driver.cuStreamDestroy_v2(stream)
