"""A worker that has made its imports, and forks a process for every job: see `fork_server`.

It never multiplies and never runs a user's code. So it has no threads that a fork would miss, save
those that OpenBLAS starts when it is loaded, stops before a fork, and starts anew where they are
needed. Nothing passes from one job to the next: each begins as a copy of this process.
"""

import contextlib
import importlib
import os
import socket
import sys
from collections.abc import Iterable
from time import perf_counter

import numpy as np

from mixpert_py.runs import worker

LONGEST = 1 << 16  # bytes of a file name
RUNTIME = ("mixpert_py.runtime.dispatch", "mixpert_py.runtime.emulation.reference")


def main(descriptor: str, *modules: str) -> None:
    """Serve until the tuner is gone. descriptor: of the socket to it. modules: to be imported."""
    seconds = import_all((*RUNTIME, *modules))
    job_file = _fork_for_each_job(socket.socket(fileno=int(descriptor)))
    if job_file is not None:
        _begin_anew()
        worker.main(job_file, seconds)


def import_all(modules: Iterable[str]) -> float:
    """Import what can be; returns the seconds that it took."""
    start = perf_counter()
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return perf_counter() - start


def _fork_for_each_job(tuner: socket.socket) -> str | None:
    """Returns in each process that was forked, with its job; here, at the end, with None.

    A request is the job's file name and where its output goes; the answers are the process's
    number, then its exit code. Each is one packet.
    """
    while True:
        request, descriptors, _, _ = socket.recv_fds(tuner, LONGEST, 1)
        if not request:
            return None
        (output,) = descriptors
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            tuner.close()
            return os.fsdecode(request)
        # Here as well, for the group must be there when the tuner is told of it.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        os.close(output)
        tuner.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        tuner.send(str(os.waitstatus_to_exitcode(status)).encode())


def _begin_anew() -> None:
    """Seed what a new process seeds and a fork copies; Python's own `random` sees to itself."""
    if "numpy.random" in sys.modules:
        np.random.seed()
