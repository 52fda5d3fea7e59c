"""Ctrl-C, and the signals that end a job, deferred where they would leave something half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Interrupt:
    """Whether a signal came while signals are deferred."""

    def __init__(self) -> None:
        self._came = False
        self._lets_through = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if one was."""
        if self._came:
            raise KeyboardInterrupt

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """One that comes in here, or came before, raises KeyboardInterrupt here."""
        self._lets_through = True
        try:
            self.check()
            yield
        finally:
            self._lets_through = False

    def take_over(self, outer: object) -> None:
        """Let a signal that came to the outer one be this one's."""
        if isinstance(outer, Interrupt) and outer._came:
            self._came, outer._came = True, False

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signals' handler."""
        self._came = True
        if self._lets_through:
            self._lets_through = False  # a second one is not to end what the first one began
            raise KeyboardInterrupt


@contextmanager
def deferred_signals() -> Iterator[Interrupt]:
    """Defer the signals until the caller checks for them.

    Those that are ignored stay ignored. Only the main thread gets signals, and may defer them.
    One that a caller further out has deferred, and not checked for, is this caller's to check for.
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
                    interrupt.take_over(getattr(handler, "__self__", None))
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
