"""Runs jobs one after the other in one process, which keeps what it imported and loaded."""

import socket
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

from mixpert_py.runs import job_socket, process

READY = b"ready"  # what it says when a job is done and left nothing behind


class ReusedProcess:
    """One `reused_worker` after the other: a new one for the job after one that broke its own.

    modules: to be imported there, besides ours. The last one ends with this object.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._modules = tuple(modules)
        self._environment = dict(environment)
        self._kept: _Kept | None = None

    def run(self, job_file: str, limit: float | None) -> process.Ended:
        """Run a job as `process.run` does; its process is kept if it is as it was before."""
        return process.follow(lambda: self._begun(job_file), limit, self._end)

    def _begun(self, job_file: str) -> "_Kept":
        if self._kept is None or not self._kept.takes(job_file):
            self._kept = _Kept(self._modules, self._environment)
            self._kept.takes(job_file)
        return self._kept

    def _end(self, child: "_Kept") -> None:
        if not child.is_ready:
            self._kept = None
            child.close()


class _Kept:
    """A process that takes jobs; see `process.Child`. `is_ready`: for the next one."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self.stdout: IO[bytes] | None = None
        self.is_ready = False
        self._socket, self._process = job_socket.started(
            "mixpert_py.runs.reused_worker", modules, environment
        )
        self.pid = self._process.pid
        self.close = weakref.finalize(self, _end, self._socket, self._process)

    def takes(self, job_file: str) -> bool:
        """Hand over a job; False if the process is gone."""
        self.is_ready = False
        try:
            self.stdout = job_socket.hand_over(self._socket, job_file)
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


def _end(tuner: socket.socket, worker: "subprocess.Popen[bytes]") -> None:
    process.kill_group(worker)
    tuner.close()
