"""A product made by a scheme: two float arrays in, the array that np.matmul would give out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

Array = npt.NDArray[Any]
Native = Callable[..., Any]

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

# The largest element of an operand, and the product of both, from which float32 loses nothing to
# underflow: what falls below 2^-126 is then less than the rounding of what the largest contributes.
HELD = 2.0**-100


def emulate(
    a: Array, b: Array, scheme: str, block: int | None = None, native: Native = np.matmul
) -> Any:
    """A·B under a scheme; None where it left the scheme's range.

    a, b: float32 or float64, one dimension or more, stacks broadcast as in np.matmul. The result
    is float64 if either is; a vector times a vector is a scalar. native: makes the products of
    the schemes that are casts. No floating-point warning is given that `native` would not give.
    """
    if scheme == "native":
        return native(a, b)
    if scheme == "float32":
        return _float32(a, b, native)
    if scheme == "float64":
        product = native(a.astype(np.float64, copy=False), b.astype(np.float64, copy=False))
        with np.errstate(all="ignore"):
            return product.astype(np.result_type(a, b), copy=False)
    return _reference(a, b, scheme, block)


def _float32(a: Array, b: Array, native: Native) -> Any:
    if a.dtype == b.dtype == np.float32:
        return native(a, b)
    with np.errstate(all="ignore"):
        left = a.astype(np.float32, copy=False)
        # BLAS makes X·Xᵀ in half the time, and symmetric, if it is told that both are one array.
        right = left.T if _is_transpose(a, b) else b.astype(np.float32, copy=False)
        if not _holds(a, left, b, right):
            return None
        product = native(left, right)
        # A sum is one quick pass, and cannot be finite if any element is not.
        if not np.isfinite(np.sum(product)):
            return None
        return product.astype(np.float64, copy=False)


def _is_transpose(a: Array, b: Array) -> bool:
    if a.ndim != 2 or a.dtype != b.dtype or a.shape != b.shape[::-1]:
        return False
    same_start = a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    return same_start and a.strides == b.strides[::-1]


def _holds(a: Array, left: Array, b: Array, right: Array) -> bool:
    """Whether float32 has room below for these operands, cast to `left` and `right`."""
    one, other = _largest(left), _largest(right)
    if one >= HELD and other >= HELD and one * other >= HELD:
        return True
    return not a.any() or not b.any()


def _largest(x: Array) -> float:
    """The largest magnitude, or less where two such operands hold anyway; NaN if any element is."""
    top = float(x.max(initial=0))
    return top if top * top >= HELD else max(top, -float(x.min(initial=0)))


def _reference(a: Array, b: Array, scheme: str, block: int | None) -> Any:
    """np.matmul by the reference backend: one- and many-dimensional operands as matrices."""
    rows = a[np.newaxis, :] if a.ndim == 1 else a
    columns = b[:, np.newaxis] if b.ndim == 1 else b
    if rows.ndim == columns.ndim == 2:
        product = _reference_2d(rows, columns, scheme, block)
    else:
        stack = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
        rows = np.broadcast_to(rows, stack + rows.shape[-2:])
        columns = np.broadcast_to(columns, stack + columns.shape[-2:])
        shape = (*stack, rows.shape[-2], columns.shape[-1])
        product = np.empty(shape, np.result_type(a, b))
        for index in np.ndindex(*stack):
            product[index] = _reference_2d(rows[index], columns[index], scheme, block)
    if a.ndim == 1:
        product = product[..., 0, :]
    if b.ndim == 1:
        product = product[..., 0]
    return product if product.ndim else product[()]


def _reference_2d(a: Array, b: Array, name: str, block: int | None) -> Array:
    from mixpert_py.runtime.faithful import choose
    from mixpert_py.runtime.reference import multiply

    scheme = get(name)
    if not isinstance(scheme, Scheme):  # `faithful`: the casts and `native` do not come here
        scheme, block = choose(a, b), None
    return multiply(a, b, scheme, block=block).value
