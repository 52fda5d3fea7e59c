"""Calls of products that become matrix products by rearranging their operands, or stay native."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.dtypes import PRECISION, name_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import DTYPES, Call, Native, matmul_shape


def as_arrays(*operands: object) -> tuple[AnyArray, ...] | None:
    """The operands if all are NumPy's own arrays, or all CuPy's, whose axes may be moved freely."""
    kind = type(operands[0])
    array = getattr(sys.modules.get("cupy"), "ndarray", np.ndarray)
    if kind in (np.ndarray, array) and all(type(x) is kind for x in operands):
        arrays: tuple[Any, ...] = operands
        return arrays
    return None


def dtype_reason(*operands: AnyArray) -> Reason | None:
    """The reason not to rearrange arrays, which may copy them: a dtype that no scheme takes."""
    for x in operands:
        if name_of(x.dtype) not in PRECISION:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    return None


def rearranged(run: Callable[[], Any], a: AnyArray, b: AnyArray) -> Call:
    """The call of the matrix product a @ b that stands for the program's own call, `run`.

    a, b: arrays of one library, one dimension or more, stacks as in np.matmul. run: returns its
    result in the shape that np.matmul gives, so that a trace stores the same for every scheme.
    """

    def native(x: AnyArray, y: AnyArray) -> Any:
        # Schemes that are casts pass other arrays, which are not the program's.
        return run() if x is a and y is b else x @ y

    return Call(native, a, b, (), None, matmul_shape)


def not_rearranged(native: Native, a: object, b: object, reason: Reason) -> Call:
    """The call of a product that stays native: because of its operands' types, or `reason`."""
    return Call(native, a, b, (), None, lambda *_: reason)
