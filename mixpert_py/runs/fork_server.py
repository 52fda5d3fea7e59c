"""Runs jobs in forks of one process that has made its imports: quicker than a new interpreter."""

import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

from mixpert_py.runs import job_socket, process

# Only there do packets have bounds and does the other end's close count; on macOS, besides, a fork
# must not multiply.
AVAILABLE = sys.platform == "linux"
ANSWER = 64  # bytes
PATIENCE = 60.0  # seconds for its imports and a fork


class ForkServer:
    """One `warm_worker`, which ends with this object.

    modules: to be imported there, besides ours. Its forks share the seed of `hash`, as long as
    PYTHONHASHSEED does not set it; all else is as in a new process.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, server = job_socket.started(
            "mixpert_py.runs.warm_worker", modules, environment
        )
        self.close = weakref.finalize(self, _end, self._socket, server)

    def run(self, job_file: str, limit: float | None) -> process.Ended | None:
        """Run a job as `process.run` does. None: the server was lost, and the job with it."""
        try:
            return process.follow(lambda: self._fork(job_file), limit)
        except (EOFError, OSError):
            self.close()
            return None

    def _fork(self, job_file: str) -> "Forked":
        stdout = job_socket.hand_over(self._socket, job_file)
        try:
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
        self.pid = self._answer(bytearray(ANSWER), PATIENCE)

    def wait(self, timeout: float | None = None) -> int:
        """As in `process.Child`. Raises EOFError if the server is gone."""
        try:
            return self._answer(self._code, timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("", timeout or 0.0) from None

    def _answer(self, said: bytearray, timeout: float | None) -> int:
        """The next answer, which is kept in `said`, zeros until then: of a result, Ctrl-C could
        leave nothing, and the next one would be waited for in vain.
        """
        if not any(said):
            self._server.settimeout(timeout)
            if not self._server.recv_into(said):
                raise EOFError
        return int(said.rstrip(b"\0"))


def _end(tuner: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    tuner.close()
    server.kill()
    server.wait()
