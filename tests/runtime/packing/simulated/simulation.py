"""Numba's simulator, made quicker: a block's threads take turns instead of all waiting at once."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from tests.runtime.families import Array


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
