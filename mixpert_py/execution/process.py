"""One child process with a time limit; its output is read, and its group is killed at the end."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import IO, Protocol

from mixpert_py.files import IMPORTED_FROM
from mixpert_py.interrupts import deferred_signals

TAIL_BYTES = 1 << 16
LINE = 500  # characters of a line that are quoted
POLL = 0.1  # seconds after which a thread looks again whether it is to stop


class Stop(Protocol):
    """Whether a thread is to stop; a threading.Event, for example."""

    def is_set(self) -> bool: ...


stop: ContextVar[Stop | None] = ContextVar("mixpert_stop", default=None)
"""Ends the processes that this thread supervises; signals reach the main thread only."""

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


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    limit: float | None,
    *,
    with_stdin: bool = False,
) -> Ended:
    """Run a command for at most `limit` seconds, as `supervise` does.

    with_stdin: whether it reads what is piped into this process; else, and where that is a
    terminal, its stdin is empty.
    """
    is_piped = with_stdin and sys.stdin is not None and not sys.stdin.isatty()

    def start() -> Child:
        return subprocess.Popen(
            command,
            stdin=None if is_piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )

    return supervise(start, limit)


def kill_group(child: Child) -> None:
    """Kill a process and all of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            os.kill(child.pid, signal.SIGTERM)  # as good as SIGKILL where there are no groups
    child.wait()


def supervise(start: Callable[[], Child], limit: float | None) -> Ended:
    """Start a process that leads a process group, and wait for it at most `limit` seconds.

    However it ends, the whole group is killed then. Ctrl-C, a signal that ends this process, and
    `stop` raise KeyboardInterrupt once that is done.
    """
    code = None
    tail = bytearray()
    with deferred_signals() as interrupt:
        child = start()
        assert child.stdout is not None
        reader = threading.Thread(target=_keep_tail, args=(child.stdout, tail), daemon=True)
        try:
            reader.start()
            with interrupt.let_through():
                code = _exit_code(child, limit)
        finally:
            kill_group(child)
            # The pipe closes with the last of its writers; one that left the group may hold it.
            reader.join(timeout=2)
        interrupt.check()
    return Ended(code, bytes(tail).decode("utf-8", "replace"))


def _exit_code(child: Child, limit: float | None) -> int | None:
    """Its exit code; None where the time is up. Raises KeyboardInterrupt where `stop` is set."""
    to_stop = stop.get()
    end = inf if limit is None else monotonic() + limit
    while to_stop is None or not to_stop.is_set():
        left = end - monotonic()
        if left <= 0:
            return None
        timeout = left if to_stop is None else min(left, POLL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(None if timeout == inf else timeout)
    raise KeyboardInterrupt


def _keep_tail(pipe: IO[bytes], tail: bytearray) -> None:
    """Read a pipe to its end: a program that floods it must not block, nor fill the memory."""
    with pipe:
        while chunk := pipe.read1(TAIL_BYTES):  # type: ignore[attr-defined]
            tail += chunk
            del tail[:-TAIL_BYTES]
