"""Transfers of arrays between NumPy and a device, while the device computes.

Copier threads continue a transfer that is larger than one staging slot. A thread that needs the
transferred array waits for it, and copies some of the pieces itself meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import AnyArray, Array, GpuArray
from mixpert_py.runtime.gpu import result_memory, staging
from mixpert_py.runtime.gpu.device import state_of
from mixpert_py.runtime.gpu.staging import CopyPlace, Job, Stager, lacking_memory, pieces, stager

Work = Callable[[Stager, Iterator[CopyPlace]], None]


class Moves:
    """The transfers to and from the current device. stream: on which the device computes.

    own: the stager of this thread. It is taken at the start, so that copies that have begun can end
    even if memory becomes short.
    """

    def __init__(
        self, xp: ModuleType, streams: Sequence[Any], own: Stager, begun: ExitStack
    ) -> None:
        self._xp, self._own, self._begun = xp, own, begun
        self._device, self._thread = xp.cuda.runtime.getDevice(), get_ident()
        self.stream, self._there, self._back = streams

    def send(self, x: Array, dtype: np.dtype[Any]) -> "Sent":
        """Begin to copy x to the device, converted to a type.

        The caller keeps the result alive until all work that uses it has ended: its memory may
        otherwise be reused by the next `send`, which waits for nothing. The order of its axes in
        memory is that of x, because turning columns into rows takes twenty times as long.
        """
        order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
        stored = x.transpose(order)
        with self._there:  # the computing stream may still use memory that it has freed
            target = self._xp.empty(stored.shape, dtype)
        array = target.transpose(tuple(order.index(axis) for axis in range(x.ndim)))
        if stored.dtype == dtype and stored.flags.c_contiguous and result_memory.is_locked(stored):
            target.set(stored, stream=self._there)
            return Sent(array, self.stream, None, [self._there.record()])
        events: list[Any] = []
        self._begun.callback(_wait_for, events)
        free = self._there.record()

        def put(one: Stager, places: Iterator[CopyPlace]) -> None:
            one.stream.wait_event(free)
            one.put(target, stored, places)
            events.append(one.stream.record())

        return Sent(array, self.stream, self._job(put, stored.shape, dtype), events)

    def fetch(self, target: Array, x: GpuArray) -> "Fetched":
        """Begin to copy a computed array of the device to a NumPy array of its shape."""
        if target.flags.c_contiguous and result_memory.is_locked(target):
            x.get(stream=self._back, out=target, blocking=False)
            return Fetched(x, self._back.record().synchronize)

        def get(one: Stager, places: Iterator[CopyPlace]) -> None:
            one.get(target, x, places)

        return Fetched(x, self._job(get, x.shape, x.dtype).end)

    def _job(self, work: Work, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Job:
        places = pieces(shape, staging.SLOT_BYTES // dtype.itemsize)
        job = Job(partial(self._staged, work), places)
        self._begun.callback(job.stop)  # before the job begins: an interrupt may come in between
        return job.begin()

    def _staged(self, work: Work, places: Iterator[CopyPlace]) -> None:
        if get_ident() == self._thread:
            work(self._own, places)
            return
        # Not as a context manager, which would select device 0 at its end: it may lack memory.
        self._xp.cuda.Device(self._device).use()
        with ExitStack() as held:
            try:
                one = held.enter_context(stager(self._xp))
            except self._xp.cuda.memory.OutOfMemoryError:
                return  # the waiting thread copies the pieces
            work(one, places)


class Sent:
    """An array that is being copied to the device.

    job: the copy, which appends to `events`; None: `events` are complete.
    """

    def __init__(self, array: AnyArray, stream: Any, job: Job | None, events: list[Any]) -> None:
        self._array, self._stream, self._job, self._events = array, stream, job, events

    def arrived(self) -> Any:
        """The array on the device; work enqueued from now on waits until all of x is there."""
        if self._job is not None:
            self._job.end()
        for event in self._events:
            self._stream.wait_event(event)
        return self._array


class Fetched:
    """An array x that is being copied from the device, and is kept alive until then.

    end: waits until the copy is complete.
    """

    def __init__(self, x: AnyArray, end: Callable[[], None]) -> None:
        self._x, self.end = x, end


@contextmanager
def moves(xp: ModuleType) -> Iterator[Moves]:
    """Context manager for transfers. At its end it waits for all of them, even after an interrupt,
    so that memory which is freed later is no longer in use.

    Raises CuPy's OutOfMemoryError if the device, or page-locked memory, is full; waiting for a
    transfer may raise it too.
    """
    idle = state_of(xp.cuda.runtime.getDevice()).streams
    with lacking_memory(xp):  # CUDA may begin here, on a device that others have filled
        streams = [_stream(xp, idle) for _ in range(3)]
    try:
        with ExitStack() as begun:
            for one in streams:
                begun.callback(_wait_for, [one])
            yield Moves(xp, streams, begun.enter_context(stager(xp)), begun)
    finally:
        idle += streams


def same(x: Array, y: Array, there: AnyArray) -> Any:
    """The view of `there`, the copy of y on the device, that equals x.

    None unless x and y are the same memory, x being y or its transpose.
    """
    for found, one in ((there, y), (there.T, y.T)):
        if x.__array_interface__ == one.__array_interface__:
            return found
    return None


def _stream(xp: ModuleType, idle: list[Any]) -> Any:
    try:
        return idle.pop()
    except IndexError:
        return xp.cuda.Stream(non_blocking=True)


def _wait_for(them: Sequence[Any]) -> None:
    for one in them:
        one.synchronize()
