"""What the operands of a call are like: the local error that each scheme would make on them, the
spread of their exponents, and how much of the product cancels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.call import Array
from mixpert_py.runtime.complex_product import is_complex, widened
from mixpert_py.runtime.cuda.foreign import on_host
from mixpert_py.runtime.emulation.emulation import TYPES, emulate
from mixpert_py.runtime.tracing.local_errors import MOST_STACKED, relative, sampled

FEW = 128  # rows of A and columns of B that are enough to know what the operands are like
FEWEST, LOOKED_AT = 8, 1 << 19  # of long ones so many, and about so many elements of an operand
ALL_CANCELS = 2.0**53  # no bit of float64 is left


class Shadow(NamedTuple):
    """One call, looked into. errors: as `local_errors` gives them.

    spread: as `exponent_spread` gives it, of the worse operand. cancellation: see there.
    """

    errors: dict[str, float]
    spread: float
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
    return Shadow(errors, spread, cancellation(left, right))


def _errors(a: Any, b: Any, schemes: Sequence[str]) -> dict[str, float]:
    from mixpert_py.runtime.cuda import shadow

    numpys = type(a) is type(b) is np.ndarray
    try:
        errors = (shadow.of_host if numpys else shadow.local_errors)(a, b, schemes)
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


def cancellation(a: Array, b: Array) -> float:
    """‖|A| |B|‖F / ‖A B‖F, in float64: 1 where nothing cancels, ALL_CANCELS at most.

    As many times as an error bounded by |A| |B| is an error relative to the product larger than the
    bound says: about 0.6 √K for normal data, 1 where no sign differs. Elements that are not finite
    do not count.
    """
    with np.errstate(all="ignore"):
        # Powers of two, so that squares stay in range and nothing is rounded.
        a, b = _scaled(a), _scaled(b)
        sizes, product = np.matmul(np.abs(a), np.abs(b)), np.matmul(a, b)
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
        scaled: Array = np.ldexp(x.real, -exponent) + 1j * np.ldexp(x.imag, -exponent)
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
        exact = np.matmul(widened(a), widened(b))
        for scheme in schemes:
            result = emulate(a, b, scheme)
            errors[scheme] = float("nan") if result is None else relative(exact, result)
    return errors
