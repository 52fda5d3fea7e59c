"""Records the launches of a product, and replays them at other addresses.

A product is a few launches. From call to call of one layout only the addresses in their parameters
change. So the launches are recorded once: a `Recording` takes the place of the stream, and the
operands, the result and the workspace have base addresses that no device has. A `Replay` replaces
these by real addresses and launches. Memory pools return the same few blocks in turn, so addresses
soon come again: those that have come often are launched as one CUDA graph.

Beside an H200, three launches take the host 11 to 17 µs and eight 29 to 45, a graph 2 to 5. But to
build a graph takes some 2 ms. Graphs are built of nodes, and not captured: a capture would make
other threads' synchronizations fail. A graph runs in the CUDA context in which it was built, which
is the device's primary one.
"""

import ctypes
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct, calcsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from mixpert_py.runtime.kernels.kernel import ArgumentArray, ArgumentLayout, Kernel

Pointer = ctypes.c_void_p

FEWEST: Final = 2  # launches: a single one takes the host as much time as a graph
MOST_IN_ALL: Final = 512  # graphs of the process: each takes some memory of the driver
RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
KERNEL_NODE: Final = Struct("P7I4xPPPP")  # CUDA_KERNEL_NODE_PARAMS_v2
MEMSET_NODE: Final = Struct("QQIIQQ")  # CUDA_MEMSET_NODE_PARAMS

# A launch: its KERNEL_NODE, which points to the arguments in memory. Or bytes that are set: the
# cell that holds the address of the first one, their number, and their value.
Node = bytes | tuple[ctypes.c_uint64, int, int]


def _add(driver: ctypes.CDLL, graph: Pointer, before: Pointer, node: Pointer, what: Node) -> int:
    """Add a node to a graph, after the node `before` if any; return the status."""
    given = ctypes.byref(node), graph, *((ctypes.byref(before), 1) if before.value else (None, 0))
    if isinstance(what, bytes):
        return int(driver.cuGraphAddKernelNode_v2(*given, what))
    cell, size, value = what
    context = ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    parameters = MEMSET_NODE.pack(cell.value, 0, value, 1, size, 1)
    return int(driver.cuGraphAddMemsetNode(*given, parameters, context))


class LaunchGraph:
    """Launches that the driver makes one after another; destroyed with this object, but not at the
    end of the process, when the driver may have gone before.

    The driver does not allow two threads to use it at the same time.
    """

    __slots__ = ("__weakref__", "_driver", "_ready")

    def __init__(self, driver: ctypes.CDLL, graph: Pointer, ready: Pointer) -> None:
        self._driver, self._ready = driver, ready
        weakref.finalize(self, _destroy, driver, graph, ready).atexit = False
        _graphs.add(self)

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
    """The graph of nodes, one after another, with the arguments that are in memory now; None where
    the driver refuses it, or has many.
    """
    if len(nodes) < FEWEST or len(_graphs) >= MOST_IN_ALL:
        return None
    graph, ready, last = (ctypes.c_void_p() for _ in range(3))
    with relaxed(driver):
        if driver.cuGraphCreate(ctypes.byref(graph), 0):
            return None
        for each in nodes:
            node = ctypes.c_void_p()
            if _add(driver, graph, last, node, each):
                break
            last = node
        else:
            driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, 0)
    if ready:
        return LaunchGraph(driver, graph, ready)
    _destroy(driver, graph, ready)
    return None


# A recorded address is one of these bases plus an offset, which is negative where a stack is stored
# last matrix first. No device address, size or stride reaches 2^57 (addresses have 57 bits at
# most). The bits of a float64 lie between 2^57 and 2^61 only for magnitudes below 1e-200, which are
# no parameter of a recorded launch.
SHIFT: Final = 58
LEFT, RIGHT, RESULT, WORKSPACE, ROW, HOST = BASES = tuple(base << SHIFT for base in range(1, 7))
UNIT: Final = 512  # bytes: the alignment of allocations, as in CuPy's memory pool
STREAM_OFFSET: Final = 32  # bytes, to the stream in the driver's launch configuration

MOST: Final = 64  # graphs of one recording
USES: Final = 128  # the calls with the same addresses after which a graph is built

Addresses = tuple[int, ...]


class Reserved(NamedTuple):
    """Memory of a recording's workspace. ptr: its address, as in CuPy's pointers."""

    ptr: int

    def __add__(self, offset: int) -> "Reserved":  # type: ignore[override]
        return Reserved(self.ptr + offset)


class _Launch(NamedTuple):
    kernel: "Kernel"
    layout: "ArgumentLayout"
    shape: tuple[int, int, int]
    values: tuple[float, ...]
    moving: tuple[tuple[int, int, int], ...]  # the place of each address, its base and its offset


class _Clear(NamedTuple):
    address: int
    bytes: int
    value: int


class Recording:
    """Records what a product enqueues, in place of a stream. bytes: the workspace that it needs.
    row: the address of a row that GEMM kernels add to each row of the product; 0: of none. mark:
    the number of steps after which the host is told what the device found; None: it is not.
    """

    def __init__(self, row: int = 0) -> None:
        self.steps: list[_Launch | _Clear] = []
        self.bytes, self.row = 0, row
        self.mark: int | None = None
        self._used = 0

    def reserve(self, size: int) -> Reserved:
        """Uninitialized memory of the workspace, of `size` bytes."""
        found = Reserved(WORKSPACE + self._used)
        self._used += -(-size // UNIT) * UNIT
        self.bytes = max(self.bytes, self._used)
        return found

    def release(self, memory: Reserved) -> None:
        """Let later steps take this memory, and what was reserved after it, again."""
        self._used = memory.ptr - WORKSPACE

    def launch(
        self,
        kernel: "Kernel",
        layout: "ArgumentLayout",
        shape: tuple[int, int, int],
        values: Iterable[float],
    ) -> None:
        """Record a launch. shape: thread blocks, threads of a block, bytes of shared memory."""
        values = tuple(values)
        moving = tuple(
            (place, *parts)
            for place, value in zip(layout.places, values, strict=True)
            if (parts := parted(value))[0]
        )
        self.steps.append(_Launch(kernel, layout, shape, values, moving))

    def clear(self, address: int, size: int, value: int) -> None:
        """Record that `size` bytes are set to a value."""
        self.steps.append(_Clear(address, size, value))


Stream = int | Recording
LEGACY: Final = 1  # streams 0 and 1 are CUDA's legacy default stream, which cannot be captured


def is_capturing(cuda: Any, stream: Stream) -> bool:
    """Whether a stream is being captured into a CUDA graph. cuda: CuPy's module."""
    if isinstance(stream, Recording) or stream <= LEGACY:
        return False
    return bool(cuda.runtime.streamIsCapturing(stream))


def allocate(size: int, stream: Stream) -> Any:
    """Memory of the current device, for use on a stream; `ptr` is its address.

    Raises CuPy's OutOfMemoryError.
    """
    if isinstance(stream, Recording):
        return stream.reserve(size)
    import cupy

    return cupy.cuda.alloc(size)


def clear(address: int, size: int, stream: Stream, value: int = 0) -> None:
    """Enqueue that each of `size` bytes is set to a value."""
    if isinstance(stream, Recording):
        stream.clear(address, size, value)
        return
    import cupy

    cupy.cuda.runtime.memsetAsync(address, value, size, stream)


class _Bound:
    """The arguments of all launches, in memory, with the addresses of the last call.

    calls: for each launch, a function of the driver and its arguments; nodes: the same for a graph.
    addresses: of the arrays, in the order of BASES, and of the stream; cells: where the arguments
    hold them. keep: owns the memory that the arguments point to.
    """

    __slots__ = ("addresses", "calls", "cells", "keep", "nodes")

    def __init__(self, steps: Iterable[_Launch | _Clear], driver: Any) -> None:
        found: dict[int, list[tuple[Any, int]]] = {base: [] for base in (*BASES, 0)}
        self.keep: list[ArgumentArray] = []
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.nodes: list[Node] = []
        for step in steps:
            if isinstance(step, _Clear):
                target, stream = ctypes.c_uint64(), ctypes.c_void_p()
                base, offset = parted(step.address)
                found[base].append((target, offset))
                found[0].append((stream, 0))
                size = ctypes.c_size_t(step.bytes)
                value = ctypes.c_ubyte(step.value)
                self.calls.append((driver.cuMemsetD8Async, (target, value, size, stream)))
                self.nodes.append((target, step.bytes, step.value))
                continue
            arguments = step.kernel.filled(step.layout, step.shape, step.values)
            self.keep.append(arguments)
            memory = arguments.memory
            found[0].append((ctypes.c_uint64.from_buffer(memory, STREAM_OFFSET), 0))
            for place, base, offset in step.moving:
                found[base].append((ctypes.c_uint64.from_buffer(memory, place), offset))
            call = arguments.config, step.kernel.handle, arguments.where, None
            self.calls.append((driver.cuLaunchKernelEx, call))
            (grid, block, shared), where = step.shape, arguments.where
            values = step.kernel.handle, grid, 1, 1, block, 1, 1, shared, where, 0, 0, 0
            self.nodes.append(KERNEL_NODE.pack(*values))
        self.cells = tuple(tuple(found[base]) for base in (*BASES, 0))
        self.addresses = [-1] * len(self.cells)

    def move(self, addresses: Iterable[int]) -> None:
        """Put the addresses of a call into the arguments."""
        last = self.addresses
        for index, address in enumerate(addresses):
            if address != last[index]:
                last[index] = address
                for cell, offset in self.cells[index]:
                    cell.value = address + offset


class Replay:
    """The launches of a recording, or of a part of it, at the addresses of each call.

    Several threads may call at once: each takes arguments that no other thread is using.
    """

    __slots__ = ("_driver", "_graphs", "_idle", "_steps", "_uses", "bytes")

    def __init__(self, recording: Recording, driver: Any, part: slice = slice(None)) -> None:
        self._steps = tuple(recording.steps[part])
        self._driver = driver
        self._graphs: dict[Addresses, LaunchGraph] = {}  # the last used one last
        self._idle: list[_Bound] = []
        self._uses: dict[Addresses, int] = {}
        self.bytes = recording.bytes

    def enqueue(self, addresses: Addresses, stream: int, *, as_graph: bool = True) -> None:
        """Enqueue the launches on a stream of the current device, for which they were recorded.

        addresses: in the order of BASES. as_graph: whether they may be launched as one CUDA
        graph, which a stream that is being captured does not accept. Does not wait for the device.
        Raises CuPy's CUDADriverError.
        """
        graph = self._graphs.pop(addresses, None) if as_graph else None
        if graph is not None and graph.launch(stream):
            self._graphs[addresses] = graph
            return
        try:
            bound = self._idle.pop()
        except IndexError:
            bound = _Bound(self._steps, self._driver)
        bound.move((*addresses, stream))
        for function, arguments in bound.calls:
            if status := function(*arguments):
                import cupy

                raise cupy.cuda.driver.CUDADriverError(status)
        if as_graph and self._are_frequent(addresses):
            self._keep(addresses, built(self._driver, bound.nodes))
        self._idle.append(bound)

    def _are_frequent(self, addresses: Addresses) -> bool:
        """Count a use of addresses without a graph; return whether they are to have one now."""
        if len(self._uses) >= 4 * MOST:  # many that do not come again
            self._uses.clear()
        uses = self._uses[addresses] = self._uses.get(addresses, 0) + 1
        return uses == USES

    def _keep(self, addresses: Addresses, graph: LaunchGraph | None) -> None:
        """Keep a graph. Where there are MOST already, the least recently used one goes.

        Its addresses get no other graph until `_uses` is cleared: if more than MOST addresses
        took turns, each graph would be built anew after USES calls, at a loss.
        """
        kept = list(self._graphs)
        if len(kept) >= MOST:
            self._graphs.pop(kept[0], None)
        if graph is not None:
            self._graphs[addresses] = graph


def parted(value: float) -> tuple[int, int]:
    """The base and the offset of a recorded address; (0, 0) for other values."""
    if isinstance(value, int):
        base = value + (1 << (SHIFT - 1)) >> SHIFT << SHIFT  # the nearest one
        if base in BASES:
            return base, value - base
    return 0, 0


def places_of(format: str, start: int) -> tuple[int, ...]:
    """The byte offset of each value of a `struct` format; the first value is at `start` or after
    it.
    """
    codes = "".join(
        code * int(count or 1) if code != "x" else f"{count}x"
        for count, code in re.findall(r"(\d*)([a-zA-Z])", format)
    )
    places, before = [], ""
    for one in re.findall(r"\d*x|[a-wyzA-Z]", codes):
        before += one
        if not one.endswith("x"):
            places.append(start + calcsize(before) - calcsize(one))
    return tuple(places)
