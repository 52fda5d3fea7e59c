"""A limit on the processor time that one file may take."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mixpert_py.errors import SourceError


class _Expired(BaseException):
    """No error, so that nothing on the way takes it for one of its own."""


def _expire(number: int, frame: FrameType | None) -> None:
    raise _Expired


@contextmanager
def time_limit(seconds: float, path: str) -> Iterator[None]:
    """Raise SourceError, naming `path`, when what runs under this takes longer.

    Only the main thread of a process can be stopped, and only where Python has interval timers.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, _expire)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _Expired:
        raise SourceError(f"{path}: takes more than {seconds:g} s; the file is skipped") from None
    finally:
        signal.signal(signal.SIGPROF, before)
