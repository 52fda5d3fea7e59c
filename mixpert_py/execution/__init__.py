"""Child processes with a time limit: their output is read, and their groups end with them.

Ctrl-C, and the signals that end a job, are deferred where they would leave work half done.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO

from mixpert_py.files import IMPORTED_FROM

TAIL_BYTES = 1 << 16
LINE = 500  # characters of a line that are quoted
WORKER = "mixpert_py.execution.worker"
SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]

# -P keeps the current folder off the path, where a user's `random.py` or `runtime.py` would come
# before Python's and ours; the folder that this package is in goes to the end.
_BOOT = (
    "import sys, importlib; sys.path.append(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def python(module: str, *arguments: str) -> list[str]:
    """The command that calls a module's `main(*arguments)` in an interpreter with our flags."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-P", "-c", _BOOT, str(IMPORTED_FROM), module, *arguments]


@dataclass(frozen=True, slots=True)
class EndedProcess:
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


def start(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command in a process group of its own, with an empty standard input."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
    )


def kill_group(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            os.kill(child.pid, signal.SIGTERM)  # as good as SIGKILL where there are no groups
    child.wait()


def run(
    command: Sequence[str], environment: Mapping[str, str], limit: float | None
) -> EndedProcess:
    """Run a command in a process group of its own, for at most `limit` seconds.

    However it ends, the whole group is killed then. Ctrl-C and a signal that ends this process
    raise KeyboardInterrupt once that is done.
    """
    code = None
    tail = bytearray()
    with deferred_signals() as interrupt:
        child = start(command, environment)
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
    return EndedProcess(code, bytes(tail).decode("utf-8", "replace"))


def _keep_tail(pipe: IO[bytes], tail: bytearray) -> None:
    """Read a pipe to its end: a program that floods it must not block, nor fill the memory."""
    with pipe:
        while chunk := pipe.read1(TAIL_BYTES):  # type: ignore[attr-defined]
            tail += chunk
            del tail[:-TAIL_BYTES]


class Interrupt:
    """Keeps a signal that arrives while signals are deferred, until the caller asks for it."""

    def __init__(self) -> None:
        self._came = False
        self._lets_through = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal arrived."""
        if self._came:
            raise KeyboardInterrupt

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """A block in which a signal, or one that is pending, raises KeyboardInterrupt."""
        self._lets_through = True
        try:
            self.check()
            yield
        finally:
            self._lets_through = False

    def note(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if self._lets_through:
            self._lets_through = False  # a second one is not to end what the first one began
            raise KeyboardInterrupt


@contextmanager
def deferred_signals() -> Iterator[Interrupt]:
    """Defer the signals until the caller checks for them. Ignored signals stay ignored.

    Only the main thread receives signals and may defer them. A signal that an outer block has
    deferred and not checked for is left to this block.
    """
    interrupt = Interrupt()
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):
                    before[number] = handler
                    signal.signal(number, interrupt.note)
                    outer = getattr(handler, "__self__", None)
                    if isinstance(outer, Interrupt) and outer._came:
                        interrupt._came, outer._came = True, False
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
