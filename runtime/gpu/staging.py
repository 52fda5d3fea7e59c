"""Page-locked memory through which arrays reach a device and come back, and threads that copy."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime import processor
from mixpert_py.runtime.arrays import AnyArray, Array
from mixpert_py.runtime.gpu.device import state_of

SLOT_BYTES = 1 << 22  # half or twice as much is slower, with 8 threads on 16 cores
NO_MEMORY = 2  # cudaErrorMemoryAllocation

CopyPlace = tuple[Any, ...]


class Stager:
    """A stream of the current device, and two slots."""

    def __init__(self, xp: ModuleType) -> None:
        with lacking_memory(xp):
            self.stream = xp.cuda.Stream(non_blocking=True)
            memory = xp.cuda.alloc_pinned_memory(2 * SLOT_BYTES)
        self._slots = np.frombuffer(memory, np.uint8, 2 * SLOT_BYTES).reshape(2, SLOT_BYTES)
        self._used: list[Any] = [None, None]  # events
        self._turn = 0

    def slot(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The slot whose turn it is, as an array in C order. Waits until the device has left it."""
        self._turn = 1 - self._turn
        if self._used[self._turn] is not None:
            self._used[self._turn].synchronize()
        held: Array = self._slots[self._turn, : prod(shape) * dtype.itemsize].view(dtype)
        return held.reshape(shape)

    def use(self) -> Any:
        """Record the event after which the device no longer uses the slot."""
        self._used[self._turn] = event = self.stream.record()
        return event

    def put(self, target: AnyArray, x: Array, places: Iterator[CopyPlace]) -> None:
        """Begin to copy parts of a NumPy array to one of the device."""
        for place in places:
            part = target[place]
            held = self.slot(part.shape, part.dtype)
            np.copyto(held, x[place])
            part.set(held, stream=self.stream)
            self.use()

    def get(self, target: Array, x: AnyArray, places: Iterator[CopyPlace]) -> None:
        """Copy parts of an array of the device to a NumPy array."""
        end = None
        for place in places:
            part = x[place]
            held = self.slot(part.shape, part.dtype)
            part.get(stream=self.stream, out=held, blocking=False)
            begun = partial(self._arrive, self.use(), target[place], held)
            if end is not None:
                end()
            end = begun
        if end is not None:
            end()

    @staticmethod
    def _arrive(event: Any, target: Array, held: Array) -> None:
        event.synchronize()
        np.copyto(target, held)


@contextmanager
def stager(xp: ModuleType) -> Iterator[Stager]:
    """A free stager of the current device.

    Raises CuPy's OutOfMemoryError if the device, or page-locked memory, is full.
    """
    idle = state_of(xp.cuda.runtime.getDevice()).stagers
    try:
        one: Stager = idle.pop()
    except IndexError:
        one = Stager(xp)
    try:
        yield one
    except BaseException:
        one.stream.synchronize()  # a slot may be in use without an event
        raise
    finally:
        idle.append(one)


@contextmanager
def lacking_memory(xp: ModuleType) -> Iterator[None]:
    """Context manager: CUDA's error for a lack of memory becomes CuPy's OutOfMemoryError."""
    try:
        yield
    except xp.cuda.runtime.CUDARuntimeError as error:
        if error.status != NO_MEMORY:
            raise
        raise xp.cuda.memory.OutOfMemoryError(0, 0) from None


def pieces(shape: tuple[int, ...], most: int) -> Iterator[CopyPlace]:
    """Indices of contiguous parts of an array in C order, each of at most `most` elements."""
    each = prod(shape[1:])
    if 0 in shape:
        return
    if prod(shape) <= most:
        yield (...,)
    elif each <= most:
        step = most // each
        yield from ((slice(start, start + step),) for start in range(0, shape[0], step))
    else:
        yield from ((row, *rest) for row in range(shape[0]) for rest in pieces(shape[1:], most))


MOST_COPIERS = 6  # enough for the memory's bandwidth; other cores are left to the program

CopyPart = Any


class Job:
    """A job: the parts that no thread has taken yet, and the copiers at work.

    work: is called in each thread with an iterator over parts, which the threads share.
    """

    def __init__(
        self, work: Callable[[Iterator[CopyPart]], None], parts: Iterable[CopyPart]
    ) -> None:
        self._work = work
        self._parts = deque(parts)
        self._helping: set[int] = set()
        self._left: SimpleQueue[None] = SimpleQueue()  # an interrupt may leave a Condition locked
        self._errors: list[BaseException] = []

    def begin(self) -> "Job":
        """Start copiers if there is more work than the caller should do alone."""
        if len(self._parts) > 1:
            _copiers.call(self, len(self._parts))
        return self

    def _taken(self) -> Iterator[CopyPart]:
        while True:
            try:
                part = self._parts.popleft()
            except IndexError:
                return
            yield part

    def help(self) -> None:
        """Do remaining parts, in a thread other than the caller's."""
        if not self._parts:
            return
        self._helping.add(get_ident())
        try:
            self._work(self._taken())
        except BaseException as error:
            self._errors.append(error)
        self._helping.remove(get_ident())
        self._left.put(None)

    def end(self) -> None:
        """Do remaining parts in the caller's thread, wait for the copiers, and raise their
        errors.
        """
        try:
            if self._parts:
                self._work(self._taken())
        finally:
            self.stop()
        errors, self._errors = self._errors, []
        try:
            if errors:
                raise errors[0]
        finally:  # an exception keeps its frames alive, and they the arrays
            errors.clear()

    def stop(self) -> None:
        """Drop the remaining parts, and wait for copiers at work."""
        try:
            self._stop()
        finally:  # again, if the first call was interrupted
            self._stop()

    def _stop(self) -> None:
        self._parts.clear()
        while self._helping:
            self._left.get()
        self._work = lambda parts: None  # frees the arrays that the function refers to


class _Copiers:
    """Threads that wait for jobs; the first job starts them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all threads, because a forked process has none of its parent's."""
        self._lock = Lock()
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._count: int | None = None

    def call(self, job: Job, most: int) -> None:
        """Let at most this many threads work on a job as soon as they are free."""
        with self._lock:
            if self._count is None:
                self._count = _started(self._jobs, min(MOST_COPIERS, processor.cores() - 1))
        for _ in range(min(most, self._count)):
            self._jobs.put(job)


def _started(jobs: "SimpleQueue[Job]", wanted: int) -> int:
    """Start `wanted` threads; returns how many were started, fewer if the system refuses more."""
    for number in range(wanted):
        try:  # daemons: nobody waits for them at the end of a program
            Thread(target=_serve, args=(jobs,), name=f"copier {number}", daemon=True).start()
        except RuntimeError:
            return number
    return wanted


def _serve(jobs: "SimpleQueue[Job]") -> None:
    while True:
        jobs.get().help()


_copiers = _Copiers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_copiers.forget)
