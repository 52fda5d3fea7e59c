"""Launches in Numba's simulator, made quicker, on NumPy arrays laid out as on the device."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import as_dtype
from numba.cuda.simulator import kernel
from numba.cuda.simulator.kernel import BlockManager, BlockThread
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAShared

from mixpert_py import runtime
from mixpert_py.runtime.packing import Operand
from mixpert_py.runtime.packing.launch import PACKAGE, PackingConfig
from mixpert_py.runtime.packing.operand import VECTOR, Form, Layout
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Splitter
from tests.runtime.families import Array
from tests.runtime.packing.cases import KERNELS, Reader, parts, task_of


class Turns(BlockThread):
    """Runs the thread at one place of block after block, whenever it is its turn."""

    def __init__(self) -> None:
        super().__init__(None, SimpleNamespace(_block_dim=(1, 1, 1)), (0,) * 3, (0,) * 3, False)
        self.go = threading.Lock()
        self.go.acquire()
        self.block: Block
        self.start()

    def run(self) -> None:
        while True:
            self.go.acquire()
            self.block.run(self)

    def syncthreads(self) -> None:
        self.block.wait(self)

    def syncthreads_or(self, value: Any) -> int:
        votes = self.block.votes
        votes.add(bool(value))
        self.block.wait(self)
        return int(True in votes)


class Block:
    """A block's threads, one at a time between two barriers: first to last, then last to first, and
    the other way round in the next block, so that what relies on an order fails.

    A thread that ends or waits for the others hands its turn to the next itself; they outlive the
    block, as starting them takes longer than what most of them do.
    """

    threads: ClassVar[list[Turns]] = []

    def __init__(self, manager: BlockManager, work: Callable[[], None], place: tuple[int, ...]):
        self.work = work
        self.failure: Exception | None = None
        self.over = threading.Lock()
        self.over.acquire()
        points = [*np.ndindex(*manager._block_dim)]
        self.threads.extend(Turns() for _ in points[len(self.threads) :])
        self.live = self.threads[: len(points)]
        for thread, point in zip(self.live, points, strict=True):
            thread.block, thread._manager = self, manager
            thread.blockIdx, thread.threadIdx = Dim3(*place), Dim3(*point)
        if place[0] % 2:
            self.live.reverse()
        self.turns = iter([*self.live])
        self.votes: set[bool] = set()  # of those who have come to the barrier that is next

    def finish(self) -> None:
        """Lets all threads end. Raises what the first that fails does."""
        next(self.turns).go.release()
        self.over.acquire()
        if self.failure:
            raise self.failure

    def run(self, thread: Turns) -> None:
        if not self.failure:
            try:
                self.work()
            except Exception as error:
                error.add_note(f"in thread {thread.threadIdx} of block {thread.blockIdx}")
                self.failure = self.failure or error
        self.live.remove(thread)
        following = self._next()
        (following.go if following else self.over).release()

    def wait(self, thread: Turns) -> None:
        following = self._next()
        if following is not thread:
            following.go.release()
            thread.go.acquire()
        if self.failure:
            raise RuntimeError("another thread has failed")

    def _next(self) -> Turns | None:
        following = next(self.turns, None)
        if following is None:
            self.live.reverse()
            self.turns, self.votes = iter([*self.live]), set()
            following = next(self.turns, None)
        return following


_shared_of_any_kind = FakeCUDAShared.array


def _shared(self: FakeCUDAShared, shape: int, dtype: Any, alignment: int = 0) -> Array:
    """One array for all threads that come by here. The simulator's own way reads the source of all
    that is being called, takes two operands' kernels for one, and refuses alignment.
    """
    if shape == 0:
        return _shared_of_any_kind(self, shape, dtype)
    frame = sys._getframe(1)
    here = frame.f_code, frame.f_lineno, shape, dtype
    if here not in self._allocations:
        kind = as_dtype(dtype) if isinstance(dtype, types.Type) else dtype
        self._allocations[here] = np.empty(shape, kind)
    return self._allocations[here]


def _in_turns(self: BlockManager, grid_point: tuple[int, ...], *args: Any) -> None:
    Block(self, lambda: self._f(*args), grid_point).finish()


@contextmanager
def _swapped(function: Callable[..., None], simulated: Any) -> Iterator[None]:
    """`cuda` is the simulator's in all modules of the runtime, not in the kernel's own alone."""
    if isinstance(threading.current_thread(), Turns):  # it is already, where a kernel runs
        yield
        return
    modules = [module for name, module in sys.modules.items() if name.startswith(runtime.__name__)]
    with ExitStack() as stack:
        for module in modules:
            if vars(module).get("cuda") is cuda:
                stack.enter_context(mock.patch.object(module, "cuda", simulated))
        yield


@contextmanager
def simulation() -> Iterator[None]:
    """Around launches: the simulator's own way lets all threads wait for one that asks who waits,
    which takes most of the time.
    """
    with (
        mock.patch.object(BlockManager, "run", _in_turns),
        mock.patch.object(FakeCUDAShared, "array", _shared),
        mock.patch.object(kernel, "swapped_cuda_module", _swapped),
    ):
        yield


GARBAGE = 0xA5  # what fresh memory holds
# A cluster is one block in the simulator: the first that holds K.
HELD = tuple((threads, 1) for threads in (64, 128, 256, 512, 1216))
SMALL: dict[Reader, dict[str, Any]] = {
    "strips": {"threads": 16},
    "rows": {"threads": 32, "most_threads": 32},
    "panels": {"threads": 32, "longest": 2, "blocks": 1},
    "clusters": {"shapes": HELD},
}


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """What a launch leaves of one operand, as `DevicePacked` has it; flat."""

    layout: Layout
    splitter: Splitter
    slices: Array
    scales: Array
    flags: Array
    outliers: Array

    @classmethod
    def fresh(cls, place: Layout, splitter: Splitter) -> "Buffers":
        blocks = place.batch * place.blocks * place.rows
        return cls(
            place,
            splitter,
            np.full(place.batch * place.steps * place.count * place.rows8 * 64, GARBAGE, np.uint8),
            np.full(blocks, -1, np.int32),
            np.full(place.batch * place.rows, GARBAGE, np.uint8),
            np.full(blocks, GARBAGE, np.uint8),
        )

    @property
    def arrays(self) -> tuple[Array, ...]:
        words = self.slices.view(np.uint32)
        return words, self.scales, self.flags, self.outliers


def flat(x: Array) -> Array:
    """Memory that starts at x's first element; what lies before it is at the end, as x[-1]."""
    root: Any = x
    while isinstance(root.base, np.ndarray):
        root = root.base
    storage = root.reshape(-1, order="A") if root.flags.forc else root.ravel()
    offset = x.__array_interface__["data"][0] - storage.__array_interface__["data"][0]
    return np.roll(storage, -offset // x.itemsize)


def operand(x: Array, columns: bool) -> Operand:
    """As `packing.by_rows` and `by_columns` make of CuPy arrays."""
    row, k = (-1, -2) if columns else (-2, -1)
    strides = [stride // x.itemsize for stride in x.strides]
    batch, batch_stride = (x.shape[0], strides[0]) if x.ndim == 3 else (1, 0)
    if batch_stride == 0:
        batch = 1
    address = x.__array_interface__["data"][0]
    shape = batch, x.shape[row], x.shape[k]
    form = Form(x.dtype.name, *shape, batch_stride, strides[row], strides[k], address % VECTOR == 0)
    return Operand(address, form, 0, x)


def pack(
    kernel: Reader,
    a: Array,
    b: Array | None,
    scheme: Scheme,
    tuning: dict[str, Any] | None = None,
) -> list[Buffers]:
    """A kernel on A by rows and B by columns, or on A alone."""
    xs = [operand(a, False)] + ([] if b is None else [operand(b, True)])
    found: list[Buffers] = []
    sizes = SMALL[kernel] if tuning is None else tuning
    for task, its in parts(kernel, task_of(xs, scheme), xs):
        found += _launch(KERNELS[kernel](task, **sizes), its)
    return found


def _launch(how: PackingConfig, xs: list[Operand]) -> list[Buffers]:
    sides = zip(how.layouts, how.task.splitters, strict=True)
    found = [Buffers.fresh(*side) for side in sides]
    between = [_between(how, i) for i in range(len(xs))]
    given: list[tuple[Any, ...]] = [
        (flat(x.owner), *one.arrays[: how.pointers], *theirs, *words)
        for x, one, theirs, words in zip(xs, found, between, how.words, strict=True)
    ]
    if len(xs) == 1:
        # The simulator copies arrays there and back: nothing may be passed twice.
        numbers = len(given[0]) - len(how.words[0])
        given.append((*[np.zeros(1)] * numbers, *how.words[0]))
    module, factory = how.kernel
    function, _ = getattr(import_module(f"{PACKAGE}.{module}"), factory)(*how.constants)
    with simulation():
        launch = cuda.jit(function)[how.grid, how.threads, 0, how.shared]
        for phase in how.phases or (None,):
            last = () if phase is None else (phase,)
            launch(0, 0, *given[0], *given[1], *how.lengths, *last)
    return found


def _between(how: PackingConfig, i: int) -> tuple[Any, ...]:
    """What blocks of a panel leave each other, and their counters; nothing of other kernels."""
    if not how.between[i]:
        return ()
    side = how.constants[0]
    bits = "uint32" if side.memory == "float32" else "uint64"
    ends = *how.between[i], *(how.between[i + 1][:1] if i + 1 < len(how.between) else (how.bytes,))
    kinds = bits, "int32", "float32", "float32", "int32"
    return tuple(
        np.full(size, GARBAGE, np.uint8).view(kind)
        for size, kind in zip(np.diff(ends), kinds, strict=True)
    )
