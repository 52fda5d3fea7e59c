"""CUDA graphs of launches: one call of the driver in place of many.

Beside an H200, three launches take the host 11 to 17 µs and eight 29 to 45. A graph takes 2 to 5,
and another 1 to 1.5 for each launch whose addresses have changed.

Graphs are built of nodes, and not captured: a capture would make other threads' synchronizations
fail. A graph runs in the CUDA context in which it was built, which is the device's primary one.
"""

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final, NamedTuple

Pointer = ctypes.c_void_p

FEWEST: Final = 2  # launches: a single one takes the host as much time as a graph
MOST_IN_ALL: Final = 512  # graphs of the process: each takes some memory of the driver
RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
KERNEL_NODE: Final = Struct("P7I4xPPPP")  # CUDA_KERNEL_NODE_PARAMS_v2
MEMSET_NODE: Final = Struct("QQIIQQ")  # CUDA_MEMSET_NODE_PARAMS


class KernelNode(NamedTuple):
    """A launch. parameters: CUDA_KERNEL_NODE_PARAMS; they point to the arguments in memory."""

    parameters: bytes

    def add(self, driver: ctypes.CDLL, graph: Pointer, before: Pointer, node: Pointer) -> int:
        """Add the launch to a graph, after the node `before` if any; return the status."""
        given = ctypes.byref(node), graph, *_list_of(before)
        return int(driver.cuGraphAddKernelNode_v2(*given, self.parameters))

    def update(self, driver: ctypes.CDLL, ready: Pointer, node: Pointer) -> int:
        """Give the launch in a finished graph the arguments that are in memory now."""
        return int(driver.cuGraphExecKernelNodeSetParams_v2(ready, node, self.parameters))


class MemsetNode(NamedTuple):
    """Bytes that are set to zero. address: the cell that holds the address of the first one."""

    address: ctypes.c_uint64
    size: int

    def add(self, driver: ctypes.CDLL, graph: Pointer, before: Pointer, node: Pointer) -> int:
        """Add this node to a graph, as `KernelNode.add` does."""
        given = ctypes.byref(node), graph, *_list_of(before)
        return int(driver.cuGraphAddMemsetNode(*given, *self._parameters(driver)))

    def update(self, driver: ctypes.CDLL, ready: Pointer, node: Pointer) -> int:
        """Give this node in a finished graph its address of now."""
        given = self._parameters(driver)
        return int(driver.cuGraphExecMemsetNodeSetParams(ready, node, *given))

    def _parameters(self, driver: ctypes.CDLL) -> tuple[bytes, Pointer]:
        context = ctypes.c_void_p()
        driver.cuCtxGetCurrent(ctypes.byref(context))
        return MEMSET_NODE.pack(self.address.value, 0, 0, 1, self.size, 1), context


Node = KernelNode | MemsetNode


def _list_of(node: ctypes.c_void_p) -> tuple[Any, int]:
    return (ctypes.byref(node), 1) if node.value else (None, 0)


class LaunchGraph:
    """Launches that the driver makes one after another; destroyed with this object, but not at the
    end of the process, when the driver may have gone before.

    The driver does not allow two threads to use it at the same time.
    """

    __slots__ = ("__weakref__", "_driver", "_nodes", "_ready")

    def __init__(
        self, driver: ctypes.CDLL, graph: Pointer, ready: Pointer, nodes: list[tuple[Node, Pointer]]
    ) -> None:
        self._driver, self._ready, self._nodes = driver, ready, nodes
        weakref.finalize(self, _destroy, driver, graph, ready).atexit = False
        _graphs.add(self)

    def update(self) -> bool:
        """Take over the arguments that are in memory now; return whether the driver did."""
        with relaxed(self._driver):
            return not any(node.update(self._driver, self._ready, it) for node, it in self._nodes)

    def launch(self, stream: int) -> bool:
        """Return whether the driver launched it; if not, nothing was enqueued."""
        return not self._driver.cuGraphLaunch(self._ready, stream)


_graphs: weakref.WeakSet[LaunchGraph] = weakref.WeakSet()  # all graphs of the process


@contextmanager
def relaxed(driver: ctypes.CDLL) -> Iterator[None]:
    """Context manager: calls inside it do not invalidate captures of other threads."""
    mode = ctypes.c_int(RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def _destroy(driver: ctypes.CDLL, graph: Pointer, ready: Pointer) -> None:
    with relaxed(driver):
        if ready:
            driver.cuGraphExecDestroy(ready)
        driver.cuGraphDestroy(graph)


def built(driver: ctypes.CDLL, nodes: Sequence[Node]) -> LaunchGraph | None:
    """The graph of nodes, one after another; None where the driver refuses it, or has many."""
    if len(nodes) < FEWEST or len(_graphs) >= MOST_IN_ALL:
        return None
    graph, ready, last = (ctypes.c_void_p() for _ in range(3))
    added = []
    with relaxed(driver):
        if driver.cuGraphCreate(ctypes.byref(graph), 0):
            return None
        for each in nodes:
            node = ctypes.c_void_p()
            if each.add(driver, graph, last, node):
                break
            added.append((each, node))
            last = node
        if len(added) == len(nodes):
            driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, 0)
    if ready:
        return LaunchGraph(driver, graph, ready, added)
    _destroy(driver, graph, ready)
    return None
