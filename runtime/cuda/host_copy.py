"""np.copyto by several threads: one alone reaches a fraction of the memory's speed, and less where
it writes to fresh pages, which it takes one by one.

A copy is cut into bands, which its caller and helpers take from one list until none is left: a
helper that comes late, or never, costs nothing but time. Helpers only copy. The caller waits for
those that do, also where it is interrupted: what it has left, nobody writes to any more.
"""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread, get_ident

import numpy as np

from mixpert_py.runtime.call import Array

BAND_BYTES = 1 << 21  # a huge page: of smaller bands, two threads would clear the same one
MOST_THREADS = 8  # they keep the memory busy; other cores are the program's


def copy(target: Array, source: Array, sum_of: np.ufunc | None = None) -> None:
    """As np.copyto, of arrays of one shape that do not overlap. Any thread may call it.

    sum_of: np.add or np.subtract; the target becomes that of itself and the source instead. Of
    overflow and NaN nothing is said, as of products that were made elsewhere.
    """
    work = np.copyto if sum_of is None else partial(_summed, sum_of)
    bands = _bands(target, source)
    if len(bands) == 1:
        work(target, source)
        return
    job = _Job(work, bands)
    try:
        _helpers.call(job, len(bands) - 1)
        job.work()
    finally:
        try:
            job.end()
        finally:  # where it was this that was interrupted
            job.end()
    for error in job.errors:
        raise error


def _summed(sum_of: np.ufunc, target: Array, source: Array) -> None:
    with np.errstate(all="ignore"):
        sum_of(target, source, out=target)


def _bands(target: Array, source: Array) -> list[tuple[Array, Array]]:
    """Parts of both, cut along the first axis that has so many, or else the longest."""
    count = target.nbytes // BAND_BYTES
    if count < 2:
        return [(target, source)]
    lengths = target.shape
    long = (i for i, length in enumerate(lengths) if length >= count)
    axis = next(long, lengths.index(max(lengths)))
    step = -(-lengths[axis] // count)
    parts = (slice(start, start + step) for start in range(0, lengths[axis], step))
    places = [(slice(None),) * axis + (part,) for part in parts]
    return [(target[place], source[place]) for place in places]


class _Job:
    """Bands that nobody has taken yet, and the helpers that copy others. errors: theirs."""

    def __init__(
        self, copy: Callable[[Array, Array], None], bands: list[tuple[Array, Array]]
    ) -> None:
        self._copy = copy
        self._bands = deque(bands)
        self._helping: set[int] = set()
        self._left: SimpleQueue[None] = SimpleQueue()  # an interrupt may leave a Condition locked
        self.errors: list[BaseException] = []

    def work(self) -> None:
        """Copy bands until none is left."""
        while True:
            try:
                band = self._bands.popleft()
            except IndexError:
                return
            self._copy(*band)

    def help(self) -> None:
        """The same, by another thread than the caller's."""
        self._helping.add(get_ident())
        try:
            self.work()
        except BaseException as error:
            self.errors.append(error)
        self._helping.remove(get_ident())
        self._left.put(None)

    def end(self) -> None:
        """Leave no band to take, and wait for those that are being copied."""
        self._bands.clear()
        while self._helping:
            self._left.get()


class _Helpers:
    """Threads that wait for jobs. The first job starts them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """As if none had been started: a forked process has none of its parent's threads."""
        self._lock = Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._count: int | None = None

    def call(self, job: _Job, most: int) -> None:
        """Have up to so many threads work at a job, as soon as they are free."""
        with self._lock:
            if self._count is None:
                self._count = _started(self._jobs, min(MOST_THREADS, _cores()) - 1)
        for _ in range(min(most, self._count)):
            self._jobs.put(job)


def _started(jobs: "SimpleQueue[_Job]", wanted: int) -> int:
    """How many threads are there now; fewer where no more can be."""
    for number in range(wanted):
        try:  # daemons: nobody waits for them at the end of a program
            Thread(target=_serve, args=(jobs,), name=f"host copy {number}", daemon=True).start()
        except RuntimeError:
            return number
    return wanted


def _serve(jobs: "SimpleQueue[_Job]") -> None:
    while True:
        jobs.get().help()


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_helpers = _Helpers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.forget)
