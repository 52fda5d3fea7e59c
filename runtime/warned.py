"""NumPy's warnings of a product, such as of an overflow, given at the program's own line.

Python names the frame that called NumPy, and asks the filters about that frame's module. A filter
of ours makes an error of a RuntimeWarning in the two modules that call for the program; the product
is then made again, and its warnings are given as from the program's frame, to the program's
filters.
"""

import warnings
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from mixpert_py.runtime.program_frames import is_ours, pass_over, warn
from mixpert_py.runtime.request import Native, call_native

ENCOUNTERED = " encountered in "  # as in "overflow encountered in matmul"
CALLERS = r"mixpert_py\.runtime\.(api|warned)\Z"

warnings.filterwarnings("error", category=RuntimeWarning, module=CALLERS)


def call(native: Native, a: object, b: object, *rest: object, **options: object) -> Any:
    """native(a, b, *rest, **options), with its warnings as from the program's frame.

    Warnings name our own frame if the result may lie in memory of an operand: NumPy's `dot` then
    fails where a warning is an error.
    """
    if rest or options:
        for out in (*rest, options.get("out")):
            if out is not None and not _is_apart(out, a, b):
                return call_native(native, a, b, *rest, **options)
    try:
        return native(a, b, *rest, **options)
    except RuntimeWarning as warning:
        return again(warning, partial(native, **options), a, b, *rest)


def call_method(a: Any, b: object, *rest: object, **options: object) -> Any:
    """a.dot(b, *rest, **options), called as a function by `call`."""
    return a.dot(b, *rest, **options)


def _is_apart(out: object, a: object, b: object) -> bool:
    """Whether arrays share no memory; False if that takes more than a look at their bounds."""
    if not (type(out) is type(a) is type(b) is np.ndarray):
        return False
    if out.base is None and out is not a and out is not b and a.base is b.base is None:
        return True  # each owns its memory
    return not (np.may_share_memory(out, a) or np.may_share_memory(out, b))


def again(warning: RuntimeWarning, native: Native, *operands: object) -> Any:
    """The product whose warning became an error, with its warnings as from the program's frame.

    A warning that code of the program has raised is raised.
    """
    if not _ends_in_ours(warning.__traceback__):
        raise warning
    text = str(warning)
    _, is_of_numbers, where = text.partition(ENCOUNTERED)
    kinds: list[str] = []
    if is_of_numbers:
        modes = {kind: "call" if mode == "warn" else mode for kind, mode in np.geterr().items()}
        with np.errstate(**modes, call=lambda kind, flag: kinds.append(kind)):  # type: ignore[arg-type]
            result = native(*operands)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = native(*operands)
    for message in [f"{kind}{ENCOUNTERED}{where}" for kind in kinds] or [text]:
        warn(message, type(warning))
    return result


def _ends_in_ours(traceback: TracebackType | None) -> bool:
    """Whether an exception was raised by what one of our own frames called, and is not Python."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and is_ours(traceback.tb_frame)


pass_over(call, call_method, again)
