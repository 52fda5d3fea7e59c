"""The error of products, from a few entries or from vectors that they are multiplied by."""

import math
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime.arrays import AnyArray

Array = npt.NDArray[Any]

ROWS = COLUMNS = 8  # of the entries that are compared
VECTORS: Final = 8  # by which a product is multiplied: all of them miss an error by a rare chance
PART: Final = 1 << 22  # elements of an operand that are widened at a time
STRIDE: Final = 40503  # by which entries move from turn to turn: coprime to most sizes


def sampled_error(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> float:
    """‖C − Ĉ‖F / ‖C‖F of a few entries of a product of NumPy arrays; see `error_of`. turn: other
    entries for another.
    """
    with np.errstate(all="ignore"):
        return error_of(*entries(a, b, product, turn))


def entries(a: Any, b: Any, product: Any, turn: int) -> tuple[Any, Any]:
    """A few entries of a product in float64 or complex128, and those of the array that was made,
    on the device where the arrays are; NumPy's, or CuPy's.
    """
    left, right, made = _matrices(a, b, product)
    if made.ndim > 2:
        stack = made.shape[:-2]
        index = tuple(int(i) for i in np.unravel_index(turn % math.prod(stack), stack))
        left, right, made = _matrix(left, index), _matrix(right, index), made[index]
    rows = _spread(made.shape[0], ROWS, turn)
    start = turn * STRIDE % max(made.shape[1] - COLUMNS + 1, 1)
    columns = slice(start, start + COLUMNS)  # side by side: they share cache lines
    wide = np.result_type(product.dtype, np.float64)
    return left[rows].astype(wide) @ right[:, columns].astype(wide), made[rows, columns]


def error_of(exact: Array, found: Array) -> float:
    """‖exact − found‖ / ‖exact‖ over the entries whose exact value is finite; infinite where one
    that was found is not finite there.
    """
    is_known = np.isfinite(exact)
    exact, found = exact[is_known], found[is_known]
    if not np.isfinite(found).all():
        return math.inf
    largest = max(float(np.abs(x).max(initial=0.0)) for x in (exact, found))
    if not largest:
        return 0.0
    # Scaled, as squares may be beyond float64's range.
    scale = math.ldexp(1.0, -max(math.frexp(largest)[1], -1000))
    size = float(np.linalg.norm(exact * scale))
    off = float(np.linalg.norm(found * scale - exact * scale))
    return off / size if size else math.inf if off else 0.0


def whole_error(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> float:
    """About ‖C − Ĉ‖F / ‖C‖F of a whole product of NumPy arrays, or a whole stack; NaN where not
    finite entries are in the way. turn: other vectors for another.
    """
    with np.errstate(all="ignore"):
        return error_of_projections(*projections(np, a, b, product, turn))


def projections(xp: ModuleType, a: Any, b: Any, product: Any, turn: int) -> tuple[Any, Any]:
    """A (B X) and Ĉ X in float64 or complex128, X of VECTORS columns of random numbers.

    E(‖C X‖²) is ‖C‖² times a constant wherever C has its mass, and so it is of C − Ĉ. xp: NumPy, or
    CuPy for arrays on its current device.
    """
    left, right, made = _matrices(a, b, product)
    x = _vectors(xp, right.shape[-1], turn)
    return _times(xp, left, _times(xp, right, x)), _times(xp, made, x)


def error_of_projections(exact: Array, found: Array) -> float:
    """`error_of`, but NaN where no entry is finite."""
    return error_of(exact, found) if np.isfinite(exact).any() else math.nan


def _vectors(xp: ModuleType, length: int, turn: int) -> Any:
    """Numbers in [−1, 1), float64, (length, VECTORS), made where they are used: nothing waits.

    They are SplitMix64's of a counter. Of ±1 alone, two equal columns might cancel in every vector.
    """
    word = xp.arange(1, length * VECTORS + 1, dtype=np.uint64)
    word += np.uint64(turn % (1 << 20) << 40)
    word *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    unit = (word >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return unit.reshape(length, VECTORS)


def _times(xp: ModuleType, x: Any, vectors: Any) -> Any:
    """x @ vectors in float64 or complex128; of x, some rows at a time are widened."""
    wide = np.result_type(x.dtype, np.float64)
    if x.dtype == wide:
        return x @ vectors
    rows = x.shape[-2]
    step = max(PART * rows // x.size, 1)
    parts = (x[..., i : i + step, :].astype(wide) @ vectors for i in range(0, rows, step))
    return xp.concatenate(tuple(parts), axis=-2)


def _matrices(a: Any, b: Any, product: Any) -> tuple[Any, Any, Any]:
    """Operands and the product as matrices, or stacks of them, where some are vectors."""
    left = a if a.ndim > 1 else a[np.newaxis]
    right = b if b.ndim > 1 else b[:, np.newaxis]
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return left, right, product.reshape(*stack, left.shape[-2], right.shape[-1])


def _matrix(x: Any, index: tuple[int, ...]) -> Any:
    """A matrix of an operand that is broadcast to a stack."""
    stack = x.shape[:-2]
    places = index[len(index) - len(stack) :]
    return x[tuple(0 if size == 1 else at for at, size in zip(places, stack, strict=True))]


def _spread(count: int, wanted: int, turn: int) -> slice:
    """This many of `count` rows, evenly spread, different in each turn."""
    step = max(count // wanted, 1)
    last = (min(count, wanted) - 1) * step
    start = turn * STRIDE % max(count - last, 1)
    return slice(start, start + last + 1, step)
