"""Copier threads, because one thread reaches only a fraction of the memory's bandwidth.

One thread is even slower when it writes to fresh pages. A job is divided into parts. The calling
thread and the copiers take parts from one list until it is empty, so a copier that starts late, or
never, costs only time. The caller waits for the copiers at work, even if it is interrupted, so that
none of them writes to memory that the caller has freed.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any

from mixpert_py.runtime import processor

MOST_COPIERS = 6  # enough for the memory's bandwidth; other cores are left to the program

Part = Any


class Job:
    """A job: the parts that no thread has taken yet, and the copiers at work.

    work: is called in each thread with an iterator over parts, which the threads share.
    """

    def __init__(self, work: Callable[[Iterator[Part]], None], parts: Iterable[Part]) -> None:
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

    def _taken(self) -> Iterator[Part]:
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
        self._work = _nothing  # frees the arrays that the function refers to


def _nothing(parts: Iterator[Part]) -> None:
    pass


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
