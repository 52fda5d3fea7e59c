"""Stagers: each thread that transfers arrays has a stream and two slots of page-locked memory.

The device reaches its full speed only with page-locked memory. The two slots are used in turn, and
are small enough to stay in a core's caches, so staging adds little load to the host's memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.gpu.device_state import state_of
from mixpert_py.runtime.request import Array

SLOT_BYTES = 1 << 22  # half or twice as much is slower, with 8 threads on 16 cores
NO_MEMORY = 2  # cudaErrorMemoryAllocation

Place = tuple[Any, ...]


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

    def put(self, target: Any, x: Array, places: Iterator[Place]) -> None:
        """Begin to copy parts of a NumPy array to one of the device."""
        for place in places:
            part = target[place]
            held = self.slot(part.shape, part.dtype)
            np.copyto(held, x[place])
            part.set(held, stream=self.stream)
            self.use()

    def get(self, target: Array, x: Any, places: Iterator[Place]) -> None:
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


def pieces(shape: tuple[int, ...], most: int) -> Iterator[Place]:
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
