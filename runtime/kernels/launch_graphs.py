"""CUDA graphs of launches at addresses that occur again: one call of the driver in place of many.

Memory pools return the same few blocks in turn, so the products of a loop soon have the addresses
of earlier ones. Eight launches take the host 40 to 50 µs, as a graph 10 to 17; three launches take
20 µs, as a graph 10. On a busy device single launches are better, because the first one overlaps
with the end of the work before it (up to 6 % at 2048³).

Graphs are built of nodes, and not captured: a capture would make other threads' synchronizations
fail. A graph runs in the CUDA context in which it was built, which is the device's primary one.
"""

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final, NamedTuple

Addresses = tuple[int, ...]
Pointer = ctypes.c_void_p

FEWEST: Final = 3  # launches: for fewer, a graph costs the host as much time
MOST: Final = 16  # graphs of one recording
MOST_IN_ALL: Final = 512  # graphs of the process: each takes some memory of the driver
# At MOST graphs, a new one replaces the longest unused one only if each was launched so often, on
# average.
LAUNCHES_PER_GRAPH: Final = 8
RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
KERNEL_NODE: Final = Struct("P7I4xPPPP")  # CUDA_KERNEL_NODE_PARAMS_v2
MEMSET_NODE: Final = Struct("QQIIQQ")  # CUDA_MEMSET_NODE_PARAMS


class KernelNode(NamedTuple):
    """A launch. shape: thread blocks, threads of a block, bytes of shared memory. arguments: the
    address of an array of pointers to the arguments.
    """

    kernel: int
    shape: tuple[int, int, int]
    arguments: int

    def add(self, driver: ctypes.CDLL, graph: Pointer, before: Pointer, node: Pointer) -> int:
        """Add the launch to a graph, after the node `before` if any; return the status."""
        grid, block, shared = self.shape
        values = self.kernel, grid, 1, 1, block, 1, 1, shared, self.arguments, 0, 0, 0
        return int(
            driver.cuGraphAddKernelNode_v2(
                ctypes.byref(node), graph, *_list_of(before), KERNEL_NODE.pack(*values)
            )
        )


class MemsetNode(NamedTuple):
    """Bytes that are set to zero. address: the cell that holds the address of the first one."""

    address: ctypes.c_uint64
    bytes: int

    def add(self, driver: ctypes.CDLL, graph: Pointer, before: Pointer, node: Pointer) -> int:
        """Add this node to a graph, as `KernelNode.add` does."""
        context = ctypes.c_void_p()
        driver.cuCtxGetCurrent(ctypes.byref(context))
        parameters = MEMSET_NODE.pack(self.address.value, 0, 0, 1, self.bytes, 1)
        return int(
            driver.cuGraphAddMemsetNode(
                ctypes.byref(node), graph, *_list_of(before), parameters, context
            )
        )


Node = KernelNode | MemsetNode


def _list_of(node: ctypes.c_void_p) -> tuple[Any, int]:
    return (ctypes.byref(node), 1) if node.value else (None, 0)


class LaunchGraphs:
    """The graphs of one recording, by the addresses of its arrays; the last used one is last.

    Several threads may call at once. A graph is removed from the table while it is launched,
    because the driver does not allow two threads to launch it at the same time.
    """

    __slots__ = ("_built", "_driver", "_given_up", "_graphs", "_launched", "_seen")

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        self._graphs: dict[Addresses, _Graph] = {}
        self._seen: set[Addresses] = set()
        self._built = self._launched = 0
        self._given_up = False

    def launch(self, addresses: Addresses, stream: int) -> bool:
        """Launch the graph of these addresses; returns False if there is none.

        A graph that the driver refuses to launch is dropped: nothing was enqueued, and the result
        is False.
        """
        graph = self._graphs.pop(addresses, None)
        if graph is None or graph.launch(stream):
            return False
        self._launched += 1
        self._graphs[addresses] = graph
        return True

    def wants(self, addresses: Addresses) -> bool:
        """Whether to build a graph for these addresses, because an earlier call had them too."""
        if addresses not in self._seen:
            if len(self._seen) >= 4 * MOST:
                self._seen.clear()
            self._seen.add(addresses)
            return False
        is_full = self._built >= MOST and self._launched < LAUNCHES_PER_GRAPH * self._built
        return not (self._given_up or is_full or len(_graphs) >= MOST_IN_ALL)

    def build(self, addresses: Addresses, nodes: Sequence[Node]) -> None:
        """Build the graph of these addresses. If the driver fails, no other graph is tried."""
        graph = _built(self._driver, nodes)
        if graph is None:
            self._given_up = True
            return
        self._built += 1
        for oldest in list(self._graphs)[: max(0, len(self._graphs) - MOST + 1)]:
            self._graphs.pop(oldest, None)
        self._graphs[addresses] = graph


class _Graph:
    """A graph that can be launched; it is destroyed with this object, but not at the end of the
    process, when the driver may have gone before.
    """

    __slots__ = ("__weakref__", "_driver", "_handle")

    def __init__(self, handle: ctypes.c_void_p, driver: ctypes.CDLL) -> None:
        self._handle, self._driver = handle, driver
        weakref.finalize(self, _destroy, handle, driver).atexit = False
        _graphs.add(self)

    def launch(self, stream: int) -> int:
        """The status of the driver."""
        return int(self._driver.cuGraphLaunch(self._handle, stream))


_graphs: weakref.WeakSet[_Graph] = weakref.WeakSet()  # all graphs of the process


def is_idle(driver: ctypes.CDLL, stream: int) -> bool:
    """Whether all work of a stream is done."""
    mode = ctypes.c_int(RELAXED)  # as in `relaxed`, which takes longer
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    status = driver.cuStreamQuery(stream)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    return not status


@contextmanager
def relaxed(driver: ctypes.CDLL) -> Iterator[None]:
    """Context manager: calls inside it do not invalidate captures of other threads."""
    mode = ctypes.c_int(RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def _destroy(handle: ctypes.c_void_p, driver: ctypes.CDLL) -> None:
    with relaxed(driver):
        driver.cuGraphExecDestroy(handle)


def _built(driver: ctypes.CDLL, nodes: Sequence[Node]) -> _Graph | None:
    """The graph of nodes, one after another; None where the driver refuses it."""
    graph, ready, last = (ctypes.c_void_p() for _ in range(3))
    with relaxed(driver):
        if driver.cuGraphCreate(ctypes.byref(graph), 0):
            return None
        try:
            for each in nodes:
                node = ctypes.c_void_p()
                if each.add(driver, graph, last, node):
                    return None
                last = node
            if driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, 0):
                return None
        finally:
            driver.cuGraphDestroy(graph)
    return _Graph(ready, driver)
