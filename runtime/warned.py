"""NumPy's warnings of a product, such as of an overflow, given at the program's own line.

Python names the frame that called NumPy, and asks the filters about that frame's module. A filter
of ours makes an error of a RuntimeWarning in the two modules that call for the program; the product
is then made again, and its warnings are given as from the program's frame, to the program's
filters.
"""

import sys
import warnings
from types import TracebackType
from typing import Any

import numpy as np

from mixpert_py.runtime.request import Native

PACKAGE = "mixpert_py."
ENCOUNTERED = " encountered in "  # as in "overflow encountered in matmul"
CALLERS = r"mixpert_py\.runtime\.(api|warned)\Z"

warnings.filterwarnings("error", category=RuntimeWarning, module=CALLERS)


def call(native: Native, a: Any, b: Any) -> Any:
    """native(a, b), with its warnings as from the program's frame."""
    try:
        return native(a, b)
    except RuntimeWarning as warning:
        return again(warning, native, a, b)


def call_method(a: Any, b: Any) -> Any:
    """a.dot(b), called as a function by `call`."""
    return a.dot(b)


def again(warning: RuntimeWarning, native: Native, a: Any, b: Any) -> Any:
    """The product whose warning became an error, with its warnings as from the program's frame.

    A warning that code of the program has raised is raised.
    """
    if not _is_ours(warning.__traceback__):
        raise warning
    text = str(warning)
    _, is_of_numbers, where = text.partition(ENCOUNTERED)
    kinds: list[str] = []
    if is_of_numbers:
        modes = {kind: "call" if mode == "warn" else mode for kind, mode in np.geterr().items()}
        with np.errstate(**modes, call=lambda kind, flag: kinds.append(kind)):  # type: ignore[arg-type]
            result = native(a, b)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = native(a, b)
    messages = [f"{kind}{ENCOUNTERED}{where}" for kind in kinds] or [text]
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(PACKAGE):
        frame = frame.f_back
    program = frame.f_globals
    for message in messages:
        warnings.warn_explicit(
            message,
            type(warning),
            frame.f_code.co_filename,
            frame.f_lineno,
            str(program.get("__name__") or "<unknown>"),
            program.setdefault("__warningregistry__", {}),
        )
    return result


def _is_ours(traceback: TracebackType | None) -> bool:
    """Whether an exception was raised by what one of our own frames called, and is not Python."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    return str(traceback.tb_frame.f_globals.get("__name__")).startswith(PACKAGE)
