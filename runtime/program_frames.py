"""Hides the runtime's frames, which lie between the program's line and its callees, from the
program.

Errors lose our frames when they leave the function that the program called. `warnings.warn` and
`logging`, when they look for a caller, pass over frames whose file has the words importlib and
_bootstrap in its name, which Python's own import system has; so the files of our functions that may
call code of the program are named like that. Our own warnings name the program's line.

Under `python -X dev`, all frames are shown.
"""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

PACKAGE = "mixpert_py"
HIDDEN = "#importlib._bootstrap"  # at the end of the names of files whose frames are passed over

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the program's own line."""
    frame = sys._getframe(1)
    # A block of ours ends below contextlib, which the program does not call by a line of its own.
    while frame.f_back and (is_ours(frame) or frame.f_globals.get("__name__") == "contextlib"):
        frame = frame.f_back
    program = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        str(program.get("__name__") or "<unknown>"),
        program.setdefault("__warningregistry__", {}),
    )


def trim(error: BaseException) -> None:
    """Take our frames off an error that is about to leave the function that the program called.

    To be called where it is caught, and raised again by a `raise` without arguments: Python adds no
    frame then.
    """
    if sys.flags.dev_mode:
        return
    error.__traceback__ = behind_ours(error.__traceback__)
    while (context := error.__context__) is not None and _begins_in_ours(context.__traceback__):
        error.__context__ = context.__context__


def behind_ours(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is not ours; None if all are."""
    while traceback is not None and is_ours(traceback.tb_frame):
        traceback = traceback.tb_next
    return traceback


def trimmed(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that the program calls: its errors lose our frames, its frames are passed over."""

    @wraps(function)
    def trimmed_call(*operands: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return function(*operands, **named)
        except BaseException as error:
            trim(error)
            raise

    pass_over(function, trimmed_call)
    return trimmed_call


def pass_over(*functions: Any) -> None:
    """Make warnings and logging skip the frames of some functions."""
    if not sys.flags.dev_mode:
        for function in functions:
            function.__code__ = _hidden(function.__code__)


def _hidden(code: CodeType) -> CodeType:
    if code.co_filename.endswith(HIDDEN):
        return code
    constants = (_hidden(it) if isinstance(it, CodeType) else it for it in code.co_consts)
    return code.replace(co_filename=f"{code.co_filename}{HIDDEN}", co_consts=tuple(constants))


def is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE


def _begins_in_ours(traceback: TracebackType | None) -> bool:
    return traceback is not None and is_ours(traceback.tb_frame)
