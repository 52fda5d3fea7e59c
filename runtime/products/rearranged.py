"""Calls of products whose operands are rearranged into matrices, or that stay native.

A function that the program has replaced by its own is called instead.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import PRECISION, AnyArray, name_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import DTYPES, Call, Native, matmul_shape
from mixpert_py.runtime.select import are_half, are_integers
from mixpert_py.runtime.signatures import device_of


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
    if are_integers(*operands) or are_half(*operands):
        return None
    for x in operands:
        if name_of(x.dtype) not in PRECISION:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    return None


def pairs_of(a: AnyArray, b: AnyArray, axes: object) -> tuple[list[int], list[int]] | Reason:
    """The axes of a and of b to sum over, from 0; or the reason why they are left to `native`."""
    if a.ndim == 0 or b.ndim == 0:
        return Reason.SCALAR
    reason = dtype_reason(a, b)
    if reason is not None:
        return reason
    if type(axes) is int:
        given: Sequence[object] = (range(-axes, 0), range(axes))
    elif isinstance(axes, (list, tuple)) and len(axes) == 2:
        given = axes
    else:
        return Reason.SHAPE
    left, right = _normal(given[0], a.ndim), _normal(given[1], b.ndim)
    if left is None or right is None or len(left) != len(right):
        return Reason.SHAPE
    if [a.shape[axis] for axis in left] != [b.shape[axis] for axis in right]:
        return Reason.SHAPE
    return left, right


def _normal(axes: object, ndim: int) -> list[int] | None:
    """Axes as distinct numbers from 0; None if they are anything else."""
    several: Sequence[Any] = axes if isinstance(axes, (list, tuple, range)) else (axes,)
    if not all(type(axis) is int and -ndim <= axis < ndim for axis in several):
        return None
    normal = [axis % ndim for axis in several]
    return normal if len(set(normal)) == len(normal) else None


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


def _own(module: str, public: ModuleType, name: str) -> Callable[..., Any]:
    """NumPy's function from the module that defines it, which programs do not modify; from the
    public module if this version of NumPy defines it elsewhere.
    """
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        found = getattr(public, name)
    return found


EINSUM = _own("numpy._core.einsumfunc", np, "einsum")
TENSORDOT = _own("numpy._core.numeric", np, "tensordot")
INNER = _own("numpy._core.multiarray", np, "inner")
MULTI_DOT = _own("numpy.linalg._linalg", np.linalg, "multi_dot")
MATRIX_POWER = _own("numpy.linalg._linalg", np.linalg, "matrix_power")
OTHERS = frozenset({"cupy", "cupyx", "dask"})  # libraries, by the first part of a module's name


def is_replaced(native: Native, *operands: object) -> bool:
    """Whether the function that a program calls as einsum, tensordot, inner or multi_dot is none of
    NumPy's, CuPy's or Dask's; then it is called, and no product replaces it.

    If an operand is of a GPU's type, the function counts as that library's. A primitive of autograd
    stands for the function that it wraps.
    """
    for x in operands:
        if type(x) in device_of:
            return False
    function = getattr(native, "fun", native) if type(native) is FunctionType else native
    if function is EINSUM or function is TENSORDOT or function is INNER or function is MULTI_DOT:
        return False
    return str(getattr(function, "__module__", "")).partition(".")[0] not in OTHERS
