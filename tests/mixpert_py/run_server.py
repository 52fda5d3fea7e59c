"""The server of these tests' runs: it has made its imports, and each run is a fork of it."""

import gc
import os
import socket
from importlib import import_module

import numpy as np

from tests.mixpert_py.command_server import keep_imported, known_code

# What every run imports, or many.
IMPORTS = (
    "mixpert_py.runtime.api",
    "mixpert_py.runtime.reference.reference",
    "mixpert_py.runtime.tracing.operand_statistics",
    "multiprocessing.spawn",
    "numpy.random",
    "runpy",
)
LONGEST_NAME = 1 << 16  # bytes of a file name


def main(descriptor: str) -> None:
    """Serve until the parent is gone. descriptor: of the socket to it."""
    keep_imported()
    worker = import_module("mixpert_py.execution.worker")
    for name in IMPORTS:
        import_module(name)
    gc.freeze()  # a collection in a fork would copy all that it shares with the server
    with known_code():
        job_file = _fork_for_each_job(socket.socket(fileno=int(descriptor)))
        if job_file is not None:
            np.random.seed()  # as a new process does; Python's own `random` sees to itself
            worker.main(job_file)


def _fork_for_each_job(parent: socket.socket) -> str | None:
    """Returns the job's file in each process that was forked, and at the end None in the server.

    A request is the job's file name and the descriptor for its output. The answers are the
    process's number, then its exit code, each in one packet.
    """
    while True:
        request, descriptors, _, _ = socket.recv_fds(parent, LONGEST_NAME, 1)
        if not request:
            return None
        (output,) = descriptors
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            parent.close()
            return os.fsdecode(request)
        os.setpgid(pid, pid)  # the group must exist when the parent learns its number
        os.close(output)
        parent.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        parent.send(str(os.waitstatus_to_exitcode(status)).encode())
