"""One child process: bounded in time, heard to the end, and gone with its process group."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from mixpert_py.interrupts import held

TAIL_BYTES = 1 << 16
LINE = 500  # characters of a line that are quoted

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
    package_parent = str(Path(__file__).resolve().parent.parent)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-P", "-c", _BOOT, package_parent, module, *arguments]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. code: its exit code, negative for a signal; None: the time was up.

    tail: the last 64 KiB of what it wrote to stdout and stderr.
    """

    code: int | None
    tail: str

    def last_lines(self, count: int = 5) -> str:
        """The last non-empty lines that it wrote, long ones cut."""
        lines = [line[:LINE] for line in self.tail.splitlines() if line.strip()]
        return "\n".join(lines[-count:])


class Child(Protocol):
    """A process that leads a process group. stdout: what all of that group write."""

    pid: int
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""


def run(command: Sequence[str], environment: Mapping[str, str], limit: float | None) -> Ended:
    """Run a command with a closed stdin for at most `limit` seconds, as in `follow`."""

    def start() -> Child:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )

    return follow(start, limit)


def follow(start: Callable[[], Child], limit: float | None) -> Ended:
    """Start a process, and hear it for at most `limit` seconds.

    The process leads a process group, and the whole group is killed when it ends, however it ends.
    Ctrl-C, and a signal that ends this process, raise KeyboardInterrupt once it is gone.
    """
    code = None
    tail = bytearray()
    with held() as interrupt:
        child = start()
        assert child.stdout is not None
        reader = threading.Thread(target=_keep_tail, args=(child.stdout, tail), daemon=True)
        try:
            reader.start()
            with interrupt.let_through(), contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(limit)
        finally:
            _kill_group(child)
            # The pipe closes with the last of its writers; one that left the group may hold it.
            reader.join(timeout=2)
        interrupt.check()
    return Ended(code, bytes(tail).decode("utf-8", "replace"))


def _kill_group(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            os.kill(child.pid, signal.SIGTERM)  # as good as SIGKILL where there are no groups
    child.wait()


def _keep_tail(pipe: IO[bytes], tail: bytearray) -> None:
    """Read a pipe to its end: a program that floods it must not block, nor fill the memory."""
    with pipe:
        while chunk := pipe.read1(TAIL_BYTES):  # type: ignore[attr-defined]
            tail += chunk
            del tail[:-TAIL_BYTES]
