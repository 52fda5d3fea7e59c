"""What the operands of a call are like: the local error that each scheme would make on them, the
spread of their exponents, what int8 schemes lose of them, and how much of the product cancels.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.complex_product import is_complex, widened
from mixpert_py.runtime.gpu.foreign import on_host
from mixpert_py.runtime.reference.emulation import TYPES, emulate
from mixpert_py.runtime.request import Array
from mixpert_py.runtime.tracing.local_errors import MOST_STACKED, relative, sampled

FEW = 128  # rows of A and columns of B that are enough to know what the operands are like
FEWEST, LOOKED_AT = 8, 1 << 19  # of long ones so many, and about so many elements of an operand
ALL_CANCELS = 2.0**53  # no bit of float64 is left
UNIT = 2.0**-24  # u
SUMS = 0.5  # of u · |A||B|: by how much an FP32 product of random numbers is off
ROUNDINGS = 3.5  # of u · √((A∘A)(B∘B)): an error that counts as none, as in `bench.contract`


class Shadow(NamedTuple):
    """One call, looked into. errors: as `local_errors` gives them.

    spread: as `exponent_spread` gives it, of the worse operand. int8_loss, cancellation: see there.
    """

    errors: dict[str, float]
    spread: float
    int8_loss: float
    cancellation: float


def look(a: Any, b: Any, schemes: Sequence[str]) -> Shadow | None:
    """What two operands of a product are like; None where nobody can look at them.

    a, b: as np.matmul takes them, of types that take schemes, NumPy's or on a GPU. For all but
    errors, FEW rows of A and columns of B, evenly apart, are looked at, or fewer that are long.
    """
    try:
        count = min(FEW, max(FEWEST, LOOKED_AT // max(1, a.shape[-1])))
        left, right = on_host(_few(a, -2, count)), on_host(_few(b, -1, count))
        errors = _errors(a, b, schemes) if schemes else {}
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None  # an array in name only: being traced, batched, deleted …
    left, right = widened(left), widened(right)
    spread = max(exponent_spread(left, -1), exponent_spread(right, -2 if right.ndim > 1 else -1))
    return Shadow(errors, spread, int8_loss(left, right), cancellation(left, right))


def _errors(a: Any, b: Any, schemes: Sequence[str]) -> dict[str, float]:
    from mixpert_py.runtime.tracing import gpu_shadow

    numpys = type(a) is type(b) is np.ndarray
    try:
        errors = (gpu_shadow.of_host if numpys else gpu_shadow.local_errors)(a, b, schemes)
    except (ImportError, MemoryError):  # CuPy without cuBLAS, a full device
        errors = None
    if errors is not None:
        return errors
    return local_errors(a if numpys else on_host(a), b if numpys else on_host(b), schemes)


def exponent_spread(x: Array, axis: int) -> float:
    """By how many bits the entries of a row lie below its largest one, in the mean: what a scheme
    that has one scale for the row loses of them.

    x: float64 or complex128, rows along `axis`; the worst of them counts. Zeros, rows of nothing
    else, and rows with NaN or Inf do not. About 3 for normal data. The mean, and not the smallest
    entry: among a million normal numbers one is a million times as small, and nothing hangs on it.
    """
    if x.size == 0:
        return 0.0
    size = np.abs(x)
    counts = (size > 0) & np.isfinite(size).all(axis, keepdims=True)
    bits = np.log2(size, where=counts, out=np.zeros_like(size))
    largest = np.max(bits, axis, where=counts, initial=-np.inf, keepdims=True)
    below = np.sum(np.subtract(largest, bits, where=counts, out=np.zeros_like(bits)), axis)
    return float(np.max(below / np.maximum(np.sum(counts, axis), 1)))


def int8_loss(a: Array, b: Array) -> float:
    """By how many bits `int8x6` is expected to be further off than an FP32 product; 0: by none.

    a, b: float64 or complex128, as np.matmul takes them. Errors are compared in the Frobenius norm.
    Rows of A and columns of B with NaN or Inf do not count. 0 for normal and uniform data, however
    rows of A and columns of B are scaled; 17 where columns of A are in units of 10^±3 that the rows
    of B undo: what is small in a row of A then meets what is large in a column of B.

    Let p base-256 digits, in the unit of its row's largest entry, leave A_p of A, and q digits B_q
    of B, by columns. Of the product int8x6 leaves out Σ A_p B_q over p + q = 3. The signs of what
    is left are as good as random, so the squares of its elements add up to about
    Σ_pq Σ_k ‖A_p(:, k)‖² ‖B_q(k, :)‖². This is no bound, but what these very operands lose. Rows
    that would leave the slices as outliers count like the others.
    """
    rows, columns = _rows(a), _rows(b.swapaxes(-1, -2) if b.ndim > 1 else b)
    with np.errstate(all="ignore"):
        left, right = _squares_left(rows), _squares_left(columns)
        lost = sum(float(np.sum(left[p] * right[3 - p])) for p in range(4))
        terms = float(np.sum(left[0] * right[0]))
        sizes = np.linalg.norm(np.abs(rows) @ np.abs(columns).swapaxes(-1, -2))
    allowed = UNIT * max(ROUNDINGS * math.sqrt(terms), SUMS * float(sizes))
    return max(0.0, math.log2(math.sqrt(lost) / allowed)) if lost and allowed else 0.0


def _rows(x: Array) -> Array:
    """x as (…, rows, k), its largest entry between 1/2 and 1; both parts of a complex one, rows of
    zeros for those that are not finite.
    """
    x = np.atleast_2d(_scaled(x))
    if is_complex(x):
        x = np.concatenate([x.real, x.imag], -2)
    return np.where(np.isfinite(x).all(-1, keepdims=True), x, 0)


def _squares_left(x: Array) -> list[Array]:
    """Sums over rows, (…, k), of the squares of what 0, 1, 2 and 3 digits leave of x (…, rows, k),
    in the unit of each row's largest entry.
    """
    largest = np.max(np.abs(x), -1, keepdims=True, initial=0)
    largest[largest == 0] = 1
    parts = [x]
    for count in (1, 2, 3):
        unit = largest * 2.0 ** (1 - 8 * count)
        parts.append(x - np.rint(x / unit) * unit)
    return [np.einsum("...rk,...rk->...k", part, part) for part in parts]


def cancellation(a: Array, b: Array) -> float:
    """‖|A| |B|‖F / ‖A B‖F, in float64: 1 where nothing cancels, ALL_CANCELS at most.

    As many times as an error bounded by |A| |B| is an error relative to the product larger than the
    bound says: about 0.6 √K for normal data, 1 where no sign differs. Elements that are not finite
    do not count.
    """
    with np.errstate(all="ignore"):
        # Powers of two, so that squares stay in range and nothing is rounded.
        a, b = _scaled(a), _scaled(b)
        sizes, product = np.abs(a) @ np.abs(b), a @ b
        finite = np.isfinite(sizes)
        whole, left = (float(np.linalg.norm(x[finite])) for x in (sizes, product))
    if whole == 0:
        return 1.0
    return max(1.0, whole / left) if left * ALL_CANCELS > whole else ALL_CANCELS


def _scaled(x: Array) -> Array:
    """x times the power of two that takes its largest finite entry below 1."""
    if is_complex(x):
        size = np.maximum(np.abs(x.real), np.abs(x.imag))
        exponent = _exponent(size)
        scaled = np.empty_like(x)  # not a sum: 1j times Inf has a NaN
        scaled.real, scaled.imag = np.ldexp(x.real, -exponent), np.ldexp(x.imag, -exponent)
        return scaled
    return np.ldexp(x, -_exponent(np.abs(x)))


def _exponent(size: Array) -> int:
    largest = np.max(size, where=np.isfinite(size), initial=0.0)
    return int(np.frexp(largest)[1])


def _few(x: Any, axis: int, count: int) -> Any:
    """Some of an array: so many rows, or columns, evenly apart, and MOST_STACKED of a stack."""
    if x.ndim == 1:
        return x
    # Slices, which any library takes. Equal lengths get equal steps, so that stacks still fit.
    picked = [slice(None, None, -(-n // MOST_STACKED) or 1) for n in x.shape[:-2]]
    picked += [slice(None), slice(None)]
    picked[axis] = slice(None, None, -(-x.shape[axis] // count) or 1)
    return x[tuple(picked)]


def local_errors(a: Array, b: Array, schemes: Sequence[str]) -> dict[str, float]:
    """Scheme → ‖C − Ĉ‖F / ‖C‖F on these operands, C the product in float64, or complex128.

    a, b: as np.matmul takes them; of large ones, rows of A, columns of B and matrices of a stack
    are sampled, K never. Empty for operands that no scheme takes; NaN where a scheme left its
    range, or has NaN and Inf elsewhere than C has; zero where C is zero and so is Ĉ.
    """
    if a.dtype not in TYPES or b.dtype not in TYPES:
        return {}
    a, b = sampled(a, b)
    errors = {}
    with np.errstate(all="ignore"):
        exact = widened(a) @ widened(b)
        for scheme in schemes:
            result = emulate(a, b, scheme)
            errors[scheme] = float("nan") if result is None else relative(exact, result)
    return errors
