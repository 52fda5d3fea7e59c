"""Prints tracebacks of the user's program as `python` does, without our own frames."""

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep  # of all of this package


def report(error: BaseException) -> int:
    """Print what a program raised as `python` would, and return its exit code.

    Frames of the launcher and the runtime are removed from both ends of the traceback.
    """
    trim(error)
    if isinstance(error, KeyboardInterrupt):
        sys.excepthook(type(error), error, error.__traceback__)
        return 130
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception as failure:  # of the program's own hook
        print("Error in sys.excepthook:", file=sys.stderr)
        if failure.__context__ is error:
            failure.__context__ = None  # the hook ran because of the error, it did not handle it
        trim(failure)
        traceback.print_exception(failure)
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(error)
    return 1


def trim(error: BaseException) -> None:
    """Remove our frames from both ends of a traceback, and of the tracebacks that led to it."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        pending += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        frames = list(_frames(one.__traceback__))
        theirs = [not _is_ours(frame) for frame in frames]
        if True not in theirs:
            continue
        first = theirs.index(True)
        last = len(theirs) - 1 - theirs[::-1].index(True)
        frames[last].tb_next = None
        one.__traceback__ = frames[first]


def trim_in_threads() -> None:
    """Also remove our frames from printed exceptions that end a thread."""
    original = threading.excepthook

    def hook(args: threading.ExceptHookArgs, /) -> None:
        value = args.exc_value
        if value is not None:
            trim(value)
            fields = (args.exc_type, value, value.__traceback__, args.thread)
            args = threading.ExceptHookArgs(fields)
        original(args)

    threading.excepthook = hook


def _frames(start: TracebackType | None) -> Iterator[TracebackType]:
    while start is not None:
        yield start
        start = start.tb_next


def _is_ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER)
