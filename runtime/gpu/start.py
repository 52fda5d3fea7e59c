"""Whether NumPy arrays are moved to a GPU: never before CuPy, CUDA and the kernels have started.

A thread starts them while products of NumPy arrays stay native, so that no product waits, unless
the project asks for the same bits in every run.
"""

import atexit
import os
import sys
from collections.abc import Callable
from threading import Event, Thread, current_thread

import numpy as np

from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.reference.emulation import is_transpose
from mixpert_py.runtime.request import Request

MAX_EDGE = 1024  # of matrices in the thread's product, which loads the kernels
MAX_WAIT = 10.0  # seconds, for a driver that does not answer
LONG_WAIT = 300.0  # the same where products wait: CuPy is slow to import from a network's disk


def why_not_moved(
    a: Array, b: Array, shape: Shape, scheme: str, *, is_asked: bool
) -> Reason | None:
    """Why no GPU makes the product of NumPy arrays under a scheme, or none with profit; None: one
    does.

    is_asked: whether the program asks for a GPU, with profit or not. It then waits for the start.
    """

    def saved(name: str) -> float:
        return worth.moving_saves(a, b, shape, scheme, worth.figures(name))

    if not is_asked:
        if not device.may_be_here():
            return Reason.NO_TENSOR_CORE
        seconds = saved(worth.SHIPPED)  # by figures of any device, before one is looked for
        if seconds <= 0.0:
            return Reason.TOO_SMALL
        reason = start.why_not_yet(seconds, Request(a, b, scheme))
        if reason is not None:
            return reason
    found = device.find()
    if isinstance(found, device.Absent):
        return found.reason
    return None if is_asked or saved(found.name) > 0.0 else Reason.TOO_SMALL


class Start:
    """The start of CuPy and CUDA in this process.

    A thread imports CuPy once half of the time is lost from which a start is worth it; that costs
    little, and ends with the process. Another thread starts CUDA, which cannot be broken off.

    waits: whether products wait for the start of CUDA, once it has begun, in whatever thread they
    are made. Then the same products are moved in every run. asks: the same, asked once.
    """

    def __init__(self) -> None:
        self.waits = False
        self.asks: Callable[[], bool] = bool
        self._lost = 0.0  # seconds that a GPU would have saved
        self._threads: list[Thread] = []
        self._has_begun, self._has_ended = False, Event()  # CUDA
        self._reason: Reason | None = Reason.TOO_SMALL
        self._is_ending = False

    def why_not_yet(self, saved: float, request: Request) -> Reason | None:
        """Why a product that would gain this many seconds cannot be moved yet, or never; None: it
        can.
        """
        if not self._threads and "cupy" in sys.modules:  # the program has code for a GPU
            return None
        if not self._lost:
            self.waits = self.waits or self.asks()
        self._lost += saved
        if self._lost > worth.STARTING and not self._has_begun:
            self._has_begun, self._reason = True, Reason.STARTING
            self._begin(_like(request))
        elif self._lost > worth.STARTING / 2 and not self._threads:
            self._begin(None)
        if self.waits and self._reason is Reason.STARTING:
            self._has_ended.wait(LONG_WAIT)
            self.waits = False
        return self._reason

    def _begin(self, request: Request | None) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        thread = Thread(target=self._run, args=(request,), daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started, as while the interpreter ends
            self._threads.remove(thread)
            self._has_ended.set()

    def find_spec(self, *_: object) -> None:
        """Find no module; at the end of the process, end our threads at their next import."""
        if self._is_ending and current_thread() in self._threads:
            raise SystemExit

    def _run(self, request: Request | None) -> None:
        """Import what products need; with a request, start CUDA and make the product."""
        try:
            import cupy  # noqa: F401, it takes longest

            from mixpert_py.runtime.gpu.transfer import multiply

            if request is None or self._is_ending:
                return
            found = device.find()
            if isinstance(found, device.Absent):
                self._reason = found.reason
                return
            for x in (request.a, request.b):
                x[...] = np.random.default_rng(0).standard_normal(x.shape)
            if not self._is_ending:
                multiply(request)
            self._reason = None
        except Exception:  # of an installation that is broken
            self._has_begun, self._reason = True, Reason.NO_TENSOR_CORE
        finally:
            if request is not None:
                self._has_ended.set()

    def wait(self) -> None:
        """Wait until what has begun is over."""
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(MAX_WAIT)

    def end(self) -> None:
        """Cut a start short, and wait for it: no process may end while CUDA starts."""
        self._is_ending = self._has_begun = True
        self.wait()


def _like(request: Request) -> Request:
    """A request for a small product of operands of the same types and memory layout."""
    a = _part_like(request.a)
    b = a.T if is_transpose(request.a, request.b) else _part_like(request.b)
    return Request(a, b, request.scheme)


def _part_like(x: Array) -> Array:
    """Memory for an array of at most two matrices, ordered as x is."""
    lengths = (*(2 for _ in x.shape[:-2]), MAX_EDGE, MAX_EDGE)[-x.ndim :]
    return np.empty_like(x[tuple(map(slice, lengths))])


start = Start()  # of this process
atexit.register(start.end)
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=start.wait)  # CUDA does not survive a fork, nor does a thread
