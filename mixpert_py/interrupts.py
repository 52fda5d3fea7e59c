"""Defers Ctrl-C, and the signals that end a job, where they would leave work half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Interrupt:
    """Whether a signal arrived while signals were deferred."""

    def __init__(self) -> None:
        self._came = False
        self._lets_through = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal arrived."""
        if self._came:
            raise KeyboardInterrupt

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Context manager: a signal inside the block, or pending before it, raises
        KeyboardInterrupt.
        """
        self._lets_through = True
        try:
            self.check()
            yield
        finally:
            self._lets_through = False

    def take_over(self, outer: object) -> None:
        """Take over a signal that the outer block has received."""
        if isinstance(outer, Interrupt) and outer._came:
            self._came, outer._came = True, False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
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
                    interrupt.take_over(getattr(handler, "__self__", None))
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
