"""A server process that has made its imports and forks a process for every job.

A fork is quicker than a new interpreter. `ForkServer` is the parent's end; `main` is the server.
The server never multiplies and never runs a user's code. So it has no threads that a fork would
miss, save those that OpenBLAS starts when it is loaded, stops before a fork, and starts again where
they are needed. Nothing passes from one job to the next: each begins as a copy of the server.
"""

import contextlib
import gc
import importlib
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import IO

import numpy as np

from mixpert_py.execution import process, worker

# Only Linux keeps the bounds of packets and reports that the other end was closed. On macOS a fork
# must not multiply either.
AVAILABLE = sys.platform == "linux"
ANSWER = 64  # bytes
LONGEST_NAME = 1 << 16  # bytes of a file name
PATIENCE = 60.0  # seconds for the server's imports and a fork
RUNTIME = ("mixpert_py.runtime.api", "mixpert_py.runtime.reference.reference")


class ForkServer:
    """The parent's end of one server, which ends with this object.

    modules: imported by the server beside ours. Its forks share the seed of `hash` unless
    PYTHONHASHSEED is set; everything else is as in a new process. server: the module that has the
    server's `main`.
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str], server: str = __name__
    ) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process_of_server = subprocess.Popen(
                process.python(server, str(theirs.fileno()), *modules),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.close = weakref.finalize(self, _end, self._socket, process_of_server)

    def run(self, job_file: str, limit: float | None) -> process.Ended | None:
        """Run a job as `process.run` does. None: the server was lost, and the job with it."""
        try:
            return process.supervise(lambda: self._fork(job_file), limit)
        except (EOFError, OSError):
            self.close()
            return None

    def _fork(self, job_file: str) -> "Forked":
        read_end, write_end = os.pipe()
        stdout = os.fdopen(read_end, "rb")
        try:
            try:
                socket.send_fds(self._socket, [os.fsencode(job_file)], [write_end])
            finally:
                os.close(write_end)
            return Forked(self._socket, stdout)
        except BaseException:
            stdout.close()
            raise


class Forked:
    """A process that the server forked; see `process.Child`."""

    def __init__(self, server: socket.socket, stdout: IO[bytes]) -> None:
        self.stdout: IO[bytes] | None = stdout
        self._server = server
        self._code = bytearray(ANSWER)
        self.pid = self._receive(bytearray(ANSWER), PATIENCE)

    def wait(self, timeout: float | None = None) -> int:
        """As in `process.Child`. Raises EOFError if the server is gone."""
        try:
            return self._receive(self._code, timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("", timeout or 0.0) from None

    def _receive(self, answer: bytearray, timeout: float | None) -> int:
        """The number in the server's next answer, which is received only once.

        answer: a buffer of zeros until then, afterwards the answer itself: Ctrl-C could lose a
        returned value, and the next answer would be waited for in vain.
        """
        if not any(answer):
            self._server.settimeout(timeout)
            if not self._server.recv_into(answer):
                raise EOFError
        return int(answer.rstrip(b"\0"))


def _end(parent: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    parent.close()
    server.kill()
    server.wait()


def _import_all(modules: Iterable[str]) -> float:
    """Import those modules that can be; returns the seconds that it took."""
    start = perf_counter()
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return perf_counter() - start


def main(descriptor: str, *modules: str) -> None:
    """The server: serve until the parent is gone.

    descriptor: of the socket to it. modules: imported before the first job.
    """
    seconds = _import_all((*RUNTIME, *modules))
    gc.freeze()  # a collection in a fork would copy all that it shares with the server
    job_file = _fork_for_each_job(socket.socket(fileno=int(descriptor)))
    if job_file is not None:
        # A new process seeds NumPy, a fork copies its seed; Python's own `random` sees to itself.
        if "numpy.random" in sys.modules:
            np.random.seed()
        worker.main(job_file, seconds)


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
        # Set here as well, since the group must exist when the parent learns its number.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        os.close(output)
        parent.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        parent.send(str(os.waitstatus_to_exitcode(status)).encode())
