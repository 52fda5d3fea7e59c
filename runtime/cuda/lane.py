"""Ways between NumPy arrays and a device: page-locked memory, through which copies are fast.

Two lanes take turns: while the host fills, or empties, the page-locked memory of one, the device
copies to, computes on, and copies from that of the other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from math import prod
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Array
from mixpert_py.runtime.cuda.host_copy import copy

NO_MEMORY = 2  # cudaErrorMemoryAllocation

# device → streams that nobody uses now. What a stream has used, CuPy keeps for that stream alone:
# with new ones for every product, memory would be allocated anew, and kept for dead streams.
_idle: dict[int, list[Any]] = {}


class Lane:
    """A stream, and page-locked memory of so many bytes for what goes there, and for what comes.

    collected: how often something has come.
    """

    def __init__(self, xp: Any, stream: Any, there: int, back: int) -> None:
        self.stream, self.size = stream, there
        self._there, self._back = _page_locked(xp, there), _page_locked(xp, back)
        self._sent: Any = None
        self._due: tuple[Array, Array, np.ufunc | None] | None = None
        self.collected = 0

    def send(self, target: Any, x: Array) -> Any:
        """Begin to copy a NumPy array to one of the device, of its shape and C-contiguous. Waits
        for what was sent before, for nothing else. Returns the event after which it is there.
        """
        if self._sent is not None:
            self._sent.synchronize()
        held = _held(self._there, target)
        copy(held, x)
        target.set(held, stream=self.stream)
        self._sent = self.stream.record()
        return self._sent

    def fetch(self, target: Array, x: Any, sum_of: np.ufunc | None = None) -> None:
        """Begin to copy an array of the device to a NumPy array; `collect` ends it. sum_of: as in
        `host_copy.copy`.
        """
        self.collect()
        held = _held(self._back, target)
        x.get(stream=self.stream, out=held, blocking=False)
        self._due = target, held, sum_of

    def collect(self) -> None:
        """End what `fetch` has begun, and the stream has to do before."""
        if self._due is not None:
            self.stream.synchronize()
            due, self._due = self._due, None  # once, whatever happens: it may be added
            copy(*due)
            self.collected += 1


@contextmanager
def two_lanes(xp: Any, there: int, back: int) -> Iterator[tuple[Lane, Lane]]:
    """Lanes of the current device, for pieces of so many bytes. Waits for their streams at the end:
    what is freed after it is not in use any more. Raises CuPy's OutOfMemoryError where the
    device, or page-locked memory, is full.
    """
    idle = _idle.setdefault(xp.cuda.runtime.getDevice(), [])
    with _lacking_memory(xp):  # CUDA may begin here, on a device that others have filled
        first, second = _stream(xp, idle), _stream(xp, idle)
    try:
        yield Lane(xp, first, there, back), Lane(xp, second, there, back)
    finally:
        try:
            first.synchronize()
        finally:  # whatever interrupts: page-locked memory that is freed is used again at once
            second.synchronize()
        idle += first, second


def sent(xp: Any, lanes: Sequence[Lane], x: Array, dtype: np.dtype[Any]) -> Any:
    """x on the device, of that type, by lanes in turn; it is there for the stream of the first.

    Its axes lie in memory as they do here: to turn columns into rows takes twenty times as long.
    """
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    stored = x.transpose(order)
    stream = lanes[0].stream
    with stream:  # the caller's may yet write to what it has freed
        target = xp.empty(stored.shape, dtype)
    free = stream.record()  # and this one to what is free for itself alone
    for lane in lanes[1:]:
        lane.stream.wait_event(free)
    pieces = _pieces(stored.shape, lanes[0].size // dtype.itemsize)
    for lane, piece in zip(cycle(lanes), pieces, strict=False):
        stream.wait_event(lane.send(target[piece], stored[piece]))
    return target.transpose(tuple(order.index(axis) for axis in range(x.ndim)))


def fetched(lanes: Sequence[Lane], x: Any) -> Array:
    """An array of the device as a NumPy array, by lanes in turn."""
    value = np.empty(x.shape, x.dtype)
    pieces = _pieces(x.shape, lanes[0].size // x.dtype.itemsize)
    for lane, piece in zip(cycle(lanes), pieces, strict=False):
        lane.fetch(value[piece], x[piece])
    for lane in lanes:
        lane.collect()
    return value


def same(x: Array, y: Array, there: Any) -> Any:
    """x on the device, where y is `there`, and x is y or its transpose. None: it is neither."""
    for found, one in ((there, y), (there.T, y.T)):
        if x.__array_interface__ == one.__array_interface__:
            return found
    return None


def _pieces(shape: tuple[int, ...], most: int) -> Iterator[tuple[Any, ...]]:
    """Places of all contiguous parts, of up to so many elements each, of an array in C order."""
    each = prod(shape[1:])
    if 0 in shape:
        return
    if prod(shape) <= most:
        yield (...,)
    elif each <= most:
        step = most // each
        yield from ((slice(start, start + step),) for start in range(0, shape[0], step))
    else:
        yield from ((row, *rest) for row in range(shape[0]) for rest in _pieces(shape[1:], most))


def _stream(xp: Any, idle: list[Any]) -> Any:
    try:
        return idle.pop()
    except IndexError:
        return xp.cuda.Stream(non_blocking=True)


def _held(memory: Array, like: Any) -> Array:
    """Part of the page-locked memory as an array of that shape and type, in C order."""
    count = prod(like.shape) * like.dtype.itemsize
    held: Array = memory[:count].view(like.dtype)
    return held.reshape(like.shape)


def _page_locked(xp: Any, size: int) -> Array:
    size = 1 << (size - 1).bit_length()  # CuPy keeps it, but only for requests of the same size
    with _lacking_memory(xp):
        memory = xp.cuda.alloc_pinned_memory(size)
    return np.frombuffer(memory, np.uint8, size)


@contextmanager
def _lacking_memory(xp: Any) -> Iterator[None]:
    """CuPy's error for it, which it raises of its memory pool alone, in place of CUDA's."""
    try:
        yield
    except xp.cuda.runtime.CUDARuntimeError as error:
        if error.status != NO_MEMORY:
            raise
        raise xp.cuda.memory.OutOfMemoryError(0, 0) from None
