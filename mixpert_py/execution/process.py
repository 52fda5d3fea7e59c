"""Child processes with a time limit; their output is read, and their groups are killed at the end.

They are new ones (`run`), or forks of a server that has made its imports (`ForkServer`), which are
quicker: a trial of a program that imports scikit-learn takes 0.4 s in place of 5 s on busy cores.
The server, whose entry is `main`, never multiplies and never runs a user's code. So it has no
threads that a fork would miss, save those that OpenBLAS starts when it is loaded, stops before a
fork, and starts again where they are needed. Each job begins as a copy of the server.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import IO, Protocol

import numpy as np

from mixpert_py.files import IMPORTED_FROM
from mixpert_py.interrupts import deferred_signals

TAIL_BYTES = 1 << 16
LINE = 500  # characters of a line that are quoted
# Only Linux keeps the bounds of packets and reports that the other end was closed. On macOS a fork
# must not multiply either.
AVAILABLE = sys.platform == "linux"
ANSWER = 64  # bytes
LONGEST_NAME = 1 << 16  # bytes of a file name
PATIENCE = 60.0  # seconds for the server's imports and a fork
RUNTIME = ("mixpert_py.runtime.api", "mixpert_py.runtime.reference.reference")
WORKER = "mixpert_py.execution.worker"

# -P keeps the current folder off the path, where a user's `random.py` or `runtime.py` would come
# before Python's and ours; the folder that this package is in goes to the end.
_BOOT = (
    "import sys, importlib; sys.path.append(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def python(module: str, *arguments: str) -> list[str]:
    """The command that calls `main(*arguments)` of one of our modules in a new interpreter.

    The interpreter has the flags of this one (-O, -W, -X).
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-P", "-c", _BOOT, str(IMPORTED_FROM), module, *arguments]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process.

    code: its exit code, negative for a signal, None where it ran out of time. tail: the last 64 KiB
    that it wrote to stdout and stderr.
    """

    code: int | None
    tail: str

    def last_lines(self, count: int = 5) -> str:
        """The last non-empty lines that it wrote, long ones cut."""
        lines = [line[:LINE] for line in self.tail.splitlines() if line.strip()]
        return "\n".join(lines[-count:])


class Child(Protocol):
    """A process that leads a process group. stdout: the output of the whole group."""

    pid: int
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""


def run(command: Sequence[str], environment: Mapping[str, str], limit: float | None) -> Ended:
    """Run a command for at most `limit` seconds, as `supervise` does."""
    return supervise(partial(start, command, environment), limit)


def start(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start a command in a process group of its own, with an empty standard input."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
    )


def kill_group(child: Child) -> None:
    """Kill a process and all of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            os.kill(child.pid, signal.SIGTERM)  # as good as SIGKILL where there are no groups
    child.wait()


def supervise(begin: Callable[[], Child], limit: float | None) -> Ended:
    """Start a process that leads a process group, and wait for it at most `limit` seconds.

    However it ends, the whole group is killed then. Ctrl-C and a signal that ends this process
    raise KeyboardInterrupt once that is done.
    """
    code = None
    tail = bytearray()
    with deferred_signals() as interrupt:
        child = begin()
        assert child.stdout is not None
        reader = threading.Thread(target=_keep_tail, args=(child.stdout, tail), daemon=True)
        try:
            reader.start()
            with interrupt.let_through(), contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(limit)
        finally:
            kill_group(child)
            # The pipe closes with the last of its writers; one that left the group may hold it.
            reader.join(timeout=2)
        interrupt.check()
    return Ended(code, bytes(tail).decode("utf-8", "replace"))


def _keep_tail(pipe: IO[bytes], tail: bytearray) -> None:
    """Read a pipe to its end: a program that floods it must not block, nor fill the memory."""
    with pipe:
        while chunk := pipe.read1(TAIL_BYTES):  # type: ignore[attr-defined]
            tail += chunk
            del tail[:-TAIL_BYTES]


class ForkServer:
    """The parent's end of one server, which ends with this object.

    modules: imported by the server beside ours. Its forks share the seed of `hash` unless
    PYTHONHASHSEED is set; everything else is as in a new process. server: the
    module that has the server's `main`.
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str], server: str = __name__
    ) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            child = subprocess.Popen(
                python(server, str(theirs.fileno()), *modules),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.close = weakref.finalize(self, _end, self._socket, child)

    def start(self, job_file: str) -> Child:
        """A fork that runs a job. It, and its `wait`, raise EOFError or OSError where the server is
        lost, and the job with it.
        """
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
    """A process that the server forked; see `Child`."""

    def __init__(self, server: socket.socket, stdout: IO[bytes]) -> None:
        self.stdout: IO[bytes] | None = stdout
        self._server = server
        self._code = bytearray(ANSWER)
        self.pid = self._receive(bytearray(ANSWER), PATIENCE)

    def wait(self, timeout: float | None = None) -> int:
        """As in `Child`. Raises EOFError if the server is gone."""
        try:
            return self._receive(self._code, timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("", timeout or 0.0) from None

    def _receive(self, answer: bytearray, timeout: float | None) -> int:
        """Receive the server's next answer, unless `answer` holds it already; return its number.

        answer: a buffer of zeros, which receives the answer. Ctrl-C could lose a returned value;
        a second call would then wait for an answer that never comes.
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


def main(descriptor: str, *modules: str) -> None:
    """The server: serve until the parent is gone.

    descriptor: of the socket to it. modules: imported before the first job.
    """
    worker = importlib.import_module(WORKER)
    start = perf_counter()
    for name in (*RUNTIME, *modules):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    seconds = perf_counter() - start
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
