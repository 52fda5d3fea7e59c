"""One process that runs jobs one after the other, and keeps what it imported and loaded.

A process that has begun CUDA cannot be forked, and a new one takes seconds to import CuPy, begin
CUDA and load kernels. `ReusedProcess` is the parent's end; `main` is the process, which runs each
job in a `__main__` of its own and restores its state between jobs (`ProcessSnapshot`). A job that
fails, or leaves what cannot be restored, is the last one of its process. Nothing else depends on
how this is done: without this file each job on a GPU would get a new process.
"""

import atexit
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np

from mixpert_py import config, observation
from mixpert_py.execution import process, worker
from mixpert_py.execution.fork_server import (
    RUNTIME,
    import_all,
    receive_job,
    redirect_output,
    send_job,
    start_server,
)
from mixpert_py.runtime import context as contexts

READY = b"ready"  # the answer when a job is done and the process may take another
MOST_JOBS = 50
# Modules whose import registers a function at exit: a job that did so would be the last one.
REGISTERING = ("logging", "multiprocessing.util", "concurrent.futures.thread")
MOST_GROWTH = 1 << 28  # bytes that later jobs may leave in use, of the host's memory and CuPy's
LISTS = ("path", "meta_path", "path_hooks", "argv")
HOOKS = ("stdin", "stdout", "stderr", "__stdout__", "excepthook", "displayhook", "unraisablehook")


class ReusedProcess:
    """The parent's end: a process for many jobs, replaced by a new one after a job that broke it.

    modules: imported there beside ours. The process ends with this object.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._modules = tuple(modules)
        self._environment = dict(environment)
        self._server: _Server | None = None

    def run(self, job_file: str, limit: float | None) -> process.Ended:
        """Run a job as `process.run` does; its process stays if it is ready for another."""
        return process.supervise(lambda: self._begin(job_file), limit, self._end)

    def _begin(self, job_file: str) -> "_Server":
        if self._server is None or not self._server.takes(job_file):
            self._server = _Server(self._modules, self._environment)
            self._server.takes(job_file)
        return self._server

    def _end(self, server: "_Server") -> None:
        if not server.is_ready:
            self._server = None
            server.close()


class _Server:
    """A process that takes jobs; see `process.Child`. is_ready: whether it may take another."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self.stdout: IO[bytes] | None = None
        self.is_ready = False
        self._socket, self._process = start_server(__name__, modules, environment)
        self.pid = self._process.pid
        self.close = weakref.finalize(self, _end, self._socket, self._process)

    def takes(self, job_file: str) -> bool:
        """Send it a job; False if the process is gone."""
        self.is_ready = False
        try:
            self.stdout = send_job(self._socket, job_file)
        except OSError:
            return False
        return True

    def wait(self, timeout: float | None = None) -> int:
        """As in `process.Child`, or 0 once it is ready again."""
        self._socket.settimeout(timeout)
        try:
            answer = self._socket.recv(len(READY))
        except TimeoutError:
            raise subprocess.TimeoutExpired("", timeout or 0.0) from None
        except OSError:
            answer = b""
        self.is_ready = answer == READY
        return 0 if self.is_ready else self._process.wait(timeout)


def _end(parent: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    process.kill_group(server)
    parent.close()


def main(descriptor: str, *modules: str) -> None:
    """The process: serve until the parent is gone.

    descriptor: of the socket to it. modules: imported before the first job.
    """
    parent = socket.socket(fileno=int(descriptor))
    os.set_inheritable(parent.fileno(), False)
    os.register_at_fork(after_in_child=parent.close)  # else the parent would not see this end
    weakref.finalize(parent, int)  # the first one registers what all of them need at exit
    seconds = import_all((*REGISTERING, *RUNTIME, *modules))
    worker.warm_up_gpu(worker.FIRST_PRODUCTS, moved=False)
    snapshot = ProcessSnapshot()
    for number in range(1, MOST_JOBS + 1):
        job_file = receive_job(parent)
        if job_file is None:
            return
        code = _run(job_file, seconds)
        if code not in (0, None) or number == MOST_JOBS or not snapshot.restore():
            sys.exit(code)
        sys.stdout.flush()
        sys.stderr.flush()
        redirect_output(os.open(os.devnull, os.O_WRONLY))
        parent.send(READY)


def _run(job_file: str, seconds: float) -> Any:
    """The code that a job exits with; the exception, and all that it refers to, is released."""
    try:
        worker.main(job_file, seconds)
    except SystemExit as stop:
        return stop.code


class ProcessSnapshot:
    """The state of this process as it was when this was made."""

    def __init__(self) -> None:
        self._modules = dict(sys.modules)
        self._lists = {name: list(getattr(sys, name)) for name in LISTS}
        self._hooks = {name: getattr(sys, name) for name in HOOKS}
        self._folder = os.getcwd()
        self._environment = config.environment()
        self._filters = list(warnings.filters)
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._errors = np.geterr()
        self._printing = np.get_printoptions()
        self._not_restored = _not_restored()
        self._in_use: tuple[int, int] | None = None  # after the first job

    def restore(self) -> bool:
        """Restore what a job may have changed; False where something cannot be restored.

        Libraries that a job imported stay, with the settings it made in them, and so does the
        memory that CuPy's pools hold: the warm-up has allocated it for every job already.
        """
        self._forget_modules()
        for name, entries in self._lists.items():
            getattr(sys, name)[:] = entries
        for name, hook in self._hooks.items():
            setattr(sys, name, hook)
        os.chdir(self._folder)
        config.restore_environment(self._environment)
        warnings.filters[:] = self._filters  # type: ignore[index]
        for number, handler in self._handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
        np.seterr(**self._errors)
        np.set_printoptions(**self._printing)
        observation.forget()
        contexts.set_default(contexts.INITIAL)
        _seed()
        gc.collect()  # arrays in cycles
        in_use = _bytes_in_use()
        self._in_use = self._in_use or in_use
        grown = max(now - before for now, before in zip(in_use, self._in_use, strict=True))
        unchanged = _not_restored() == self._not_restored
        return grown <= MOST_GROWTH and unchanged and not _has_children()

    def _forget_modules(self) -> None:
        """Remove modules that a job made, or found in folders that only it had on its path."""
        own = {os.path.realpath(entry) for entry in sys.path} - set(self._lists["path"])
        for name, module in list(sys.modules.items()):
            if name not in self._modules and _is_in(module, own, self._lists["path"]):
                del sys.modules[name]
        sys.modules.update(self._modules)


def _is_in(module: Any, own: set[str], others: list[str]) -> bool:
    """Whether a module is of one of the folders `own`, and not of one of the others within it."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    place = next((os.path.realpath(place) for place in places if isinstance(place, str)), None)
    if place is None:
        return getattr(module, "__spec__", None) is None  # built in, or made by hand
    nearest = max((f for f in [*others, *own] if f and place.startswith(f + os.sep)), key=len)
    return nearest in own


def _seed() -> None:
    """Seed the generators that a new process seeds."""
    random.seed()
    if "numpy.random" in sys.modules:
        np.random.seed()
    if "cupy.random" in sys.modules:
        sys.modules["cupy.random"]._generator.reset_states()


def _not_restored() -> dict[str, Any]:
    """State that is compared and not restored: hardly a program changes it."""
    import resource  # not on Windows

    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    mask = os.umask(0)
    os.umask(mask)
    return {
        "process": os.getpid(),
        "threads": set(threading.enumerate()),
        "at exit": atexit._ncallbacks(),
        "streams": [getattr(sys, name).closed for name in HOOKS[:3]],
        "limits": [resource.getrlimit(which) for which in limits],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "cores": os.sched_getaffinity(0),
        "nice": os.nice(0),
        "umask": mask,
        "collector": [gc.isenabled(), gc.get_threshold()],
        "depth": sys.getrecursionlimit(),
    }


def _has_children() -> bool:
    """Whether a process that the job started is still there; those that ended are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _bytes_in_use() -> tuple[int, int]:
    """Bytes of the host's memory, and of CuPy's pool on the current device."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    cupy = sys.modules.get("cupy")
    on_device = cupy.get_default_memory_pool().used_bytes() if cupy is not None else 0
    return pages * os.sysconf("SC_PAGE_SIZE"), on_device
