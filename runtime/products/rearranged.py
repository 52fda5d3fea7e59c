"""A product that is one of two matrices once its operands are rearranged, or else is native."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mixpert_py.runtime.dtypes import PRECISION, name_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import DTYPES, Call, Native, matmul_shape


def are_arrays(*operands: Any) -> bool:
    """Whether all are NumPy's own arrays, or all CuPy's: those whose axes may be moved freely."""
    kind = type(operands[0])
    array = getattr(sys.modules.get("cupy"), "ndarray", np.ndarray)
    return kind in (np.ndarray, array) and all(type(x) is kind for x in operands)


def dtype_reason(*operands: Any) -> Reason | None:
    """Why arrays are not worth rearranging, which may copy them: a dtype that no scheme takes."""
    for x in operands:
        if name_of(x.dtype) not in PRECISION:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    return None


def rearranged(run: Callable[[], Any], a: Any, b: Any) -> Call:
    """The product a @ b, which `run` makes as the program wrote it.

    a, b: arrays of one library, one dimension or more, stacks as in np.matmul. run: its result has
    the shape that np.matmul gives, so that what a trace keeps does not depend on who multiplied.
    """

    def native(x: Any, y: Any) -> Any:
        # The schemes that are casts hand over other arrays, which the program never saw.
        return run() if x is a and y is b else x @ y

    return Call(native, a, b, (), None, matmul_shape)


def not_rearranged(native: Native, a: Any, b: Any, reason: Reason) -> Call:
    """A product that no scheme takes: for what its operands are, else for `reason`."""
    return Call(native, a, b, (), None, lambda *_: reason)
