"""A worker that runs jobs one after the other, each in a `__main__` of its own: `reused_process`.

A job that fails, or leaves what `surroundings` cannot put back, is the last one of its process,
which then ends as Python ends.
"""

import os
import socket
import sys
import weakref
from typing import Any

from mixpert_py.runs import warm_up, worker
from mixpert_py.runs.reused_process import READY
from mixpert_py.runs.surroundings import Surroundings
from mixpert_py.runs.warm_worker import LONGEST, RUNTIME, import_all

MOST_JOBS = 50
# Whose import registers something to be done at exit: a job that does so is the last one.
FIRST = ("logging", "multiprocessing.util", "concurrent.futures.thread")


def main(descriptor: str, *modules: str) -> None:
    """Serve until the tuner is gone. descriptor: of the socket to it. modules: to be imported."""
    tuner = socket.socket(fileno=int(descriptor))
    os.set_inheritable(tuner.fileno(), False)
    os.register_at_fork(after_in_child=tuner.close)  # else nobody would hear this process end
    weakref.finalize(tuner, int)  # the first one registers what all of them need
    seconds = import_all((*FIRST, *RUNTIME, *modules))
    warm_up.on_gpu(warm_up.FIRST, moved=False)
    surroundings = Surroundings()
    for number in range(1, MOST_JOBS + 1):
        job_file = _next_job(tuner)
        if job_file is None:
            return
        code = _run(job_file, seconds)
        if code not in (0, None) or number == MOST_JOBS or not surroundings.restore():
            sys.exit(code)
        _write_nowhere()
        tuner.send(READY)


def _run(job_file: str, seconds: float) -> Any:
    """The code that a job exits with. What the exception holds is let go with it."""
    try:
        worker.main(job_file, seconds)
    except SystemExit as stop:
        return stop.code


def _next_job(tuner: socket.socket) -> str | None:
    """Its file name, and from here on output goes where the tuner hears it; None: it is gone."""
    request, descriptors, _, _ = socket.recv_fds(tuner, LONGEST, 1)
    if not request:
        return None
    _write_to(descriptors[0])
    return os.fsdecode(request)


def _write_nowhere() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    _write_to(os.open(os.devnull, os.O_WRONLY))


def _write_to(descriptor: int) -> None:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
