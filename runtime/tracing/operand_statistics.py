"""Statistics of the operands of one call that say which schemes may suit them.

They are the local error that each scheme makes on the operands against float64, and the spread of
their exponents.

Local errors are measured on a sample of large operands. Operands on a GPU are multiplied by its
kernels, and so is the sample of large NumPy operands where a GPU is there; everything else is
emulated.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import AnyArray, Array
from mixpert_py.runtime.complex_product import widened
from mixpert_py.runtime.gpu import device, foreign
from mixpert_py.runtime.gpu.foreign import on_host
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import TYPES, emulate
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.scheme import AS_ACCURATE
from mixpert_py.runtime.schemes import get

MAX_ROWS = 128  # of A, and columns of B, that show what the operands are like
# Of long rows fewer are read, so that about MAX_ELEMENTS of an operand are; but at least MIN_ROWS.
MIN_ROWS, MAX_ELEMENTS = 8, 1 << 19


class OperandStatistics(NamedTuple):
    """Statistics of one call's operands.

    errors: as `local_errors` returns them. spread: the `exponent_spread` of the worse operand.
    """

    errors: dict[str, float]
    spread: float


def operand_statistics(
    a: AnyArray, b: AnyArray, schemes: Sequence[str]
) -> OperandStatistics | None:
    """Statistics of two operands of a product; None where their elements cannot be read.

    a, b: as np.matmul takes them, of types that take schemes, NumPy's or on a GPU. schemes: those
    whose local errors are measured. Everything but the errors is computed from MAX_ROWS rows of A
    and columns of B, evenly apart, or fewer if they are long.
    """
    try:
        count = min(MAX_ROWS, max(MIN_ROWS, MAX_ELEMENTS // max(1, a.shape[-1])))
        left, right = on_host(_few(a, -2, count)), on_host(_few(b, -1, count))
        errors = local_errors(a, b, schemes) if schemes else {}
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None  # an array in name only: being traced, batched, deleted …
    left, right = widened(left), widened(right)
    return OperandStatistics(
        errors, max(exponent_spread(left, -1), exponent_spread(right, -2 if right.ndim > 1 else -1))
    )


def exponent_spread(x: Array, axis: int) -> float:
    """The number of bits by which the entries of a row lie below its largest one, in the mean.

    A scheme with one scale for the row loses these bits. x: float64 or complex128, rows along
    `axis`; the worst row counts. Zeros, rows of zeros, and rows with NaN or Inf do not count. About
    3 for normal data. The mean is taken, and not the smallest entry, because among a million normal
    numbers one is a million times as small, and nothing depends on it.
    """
    if x.size == 0:
        return 0.0
    size = np.abs(x)
    counts = (size > 0) & np.isfinite(size).all(axis, keepdims=True)
    bits = np.log2(size, where=counts, out=np.zeros_like(size))
    largest = np.max(bits, axis, where=counts, initial=-np.inf, keepdims=True)
    below = np.sum(np.subtract(largest, bits, where=counts, out=np.zeros_like(bits)), axis)
    return float(np.max(below / np.maximum(np.sum(counts, axis), 1)))


def _few(x: AnyArray, axis: int, count: int) -> Any:
    """Select at most `count` evenly spaced rows or columns of an array, and MAX_MATRICES of a
    stack.
    """
    if x.ndim == 1:
        return x
    # Slices, which any library takes. Equal lengths get equal steps, so that stacks still fit.
    picked = [slice(None, None, -(-n // MAX_MATRICES) or 1) for n in x.shape[:-2]]
    picked += [slice(None), slice(None)]
    picked[axis] = slice(None, None, -(-x.shape[axis] // count) or 1)
    return x[tuple(picked)]


GROUP = 32  # rows or columns that stay together: every scheme's exponents span a part of it
MAX_SAMPLED_ROWS = 512  # of A, and columns of B, in a sample
MAX_MATRICES = 8  # of a stack in a sample


def local_errors(a: object, b: object, schemes: Sequence[str]) -> dict[str, float]:
    """Scheme → ‖C − Ĉ‖F / ‖C‖F on these operands, C the product in float64, or complex128.

    a, b: as np.matmul takes them; of large ones, rows of A, columns of B and matrices of a stack
    are sampled, K never. Empty for operands that no scheme takes; NaN where a scheme left its
    range, or has NaN and Inf elsewhere than C has; zero where C is zero and so is Ĉ. Waits for the
    device.
    """
    errors = None
    schemes = [scheme for scheme in schemes if get(scheme).kind not in AS_ACCURATE]
    if type(a) is type(b) is np.ndarray:
        with suppress(ImportError, MemoryError):  # CuPy without cuBLAS, a full device
            errors = _errors_after_moving(a, b, schemes)
        return emulated_errors(a, b, schemes) if errors is None else errors
    with suppress(ImportError, MemoryError):
        errors = _errors_on_device(a, b, schemes)
    if errors is None:
        errors = emulated_errors(foreign.on_host(a), foreign.on_host(b), schemes)
    return errors


def emulated_errors(a: Array, b: Array, schemes: Sequence[str]) -> dict[str, float]:
    """The same as `local_errors`, of NumPy arrays, by the reference backend."""
    if a.dtype not in TYPES or b.dtype not in TYPES:
        return {}
    a, b = sampled(a, b)
    with np.errstate(all="ignore"):
        exact = widened(a) @ widened(b)
        return {scheme: relative_error(exact, emulate(a, b, scheme)) for scheme in schemes}


def _errors_on_device(a: object, b: object, schemes: Sequence[str]) -> dict[str, float] | None:
    """Local errors by the operands' own GPU; None where they are on none that can make products."""
    placement = foreign.placement(a, b)
    if not isinstance(placement, foreign.Placement):
        return None
    borrowed = foreign.borrow(placement, a, b)
    if isinstance(borrowed, Reason) or isinstance(device.find(placement.device), device.Absent):
        return None
    if borrowed.a.dtype not in TYPES or borrowed.b.dtype not in TYPES:
        return {}
    with nullcontext() if borrowed.scope is None else borrowed.scope():
        return _kernel_errors(*sampled(borrowed.a, borrowed.b), schemes)


def _errors_after_moving(a: Array, b: Array, schemes: Sequence[str]) -> dict[str, float] | None:
    """Local errors of NumPy operands by the current GPU; None where there is none, or where the
    sample is too small to be worth moving.
    """
    if a.dtype not in TYPES or b.dtype not in TYPES or min(a.ndim, b.ndim) < 2:
        return None
    left, right = sampled(a, b)
    is_small = left.size * right.shape[-1] < worth.MIN_SAMPLE_TO_MOVE
    if is_small or isinstance(device.find(), device.Absent):
        return None
    import cupy

    return _kernel_errors(cupy.asarray(left), cupy.asarray(right), schemes)


def _kernel_errors(a: AnyArray, b: AnyArray, schemes: Sequence[str]) -> dict[str, float] | None:
    """Local errors of CuPy arrays; None where the device cannot make one of the products."""
    import cupy

    from mixpert_py.runtime.gpu.multiply import multiply

    exact = cupy.matmul(widened(a), widened(b)).get()
    errors = {}
    with np.errstate(all="ignore"):
        for scheme in schemes:
            if get(scheme).kind in ("native", "cast"):
                product = emulate(foreign.on_host(a), foreign.on_host(b), scheme)
                errors[scheme] = relative_error(exact, product)
                continue
            emulated = multiply(Request(a, b, scheme))
            if isinstance(emulated, Reason):
                return None
            errors[scheme] = relative_error(exact, emulated.value.get())
    return errors


def sampled(a: AnyArray, b: AnyArray, rows: int = MAX_SAMPLED_ROWS) -> tuple[Any, Any]:
    """Operands of the same K and structure, small enough for every scheme to be tried.

    rows: at most so many of A, and columns of B; a multiple of GROUP.
    """
    left: Any = a
    right: Any = b
    if a.ndim > 1 and a.shape[-2] > rows:
        left = a[..., _spread(a.shape[-2], rows), :]
    if b.ndim > 1 and b.shape[-1] > rows:
        right = b[..., _spread(b.shape[-1], rows)]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(stack)
    if count > MAX_MATRICES:
        picked = np.unravel_index(np.linspace(0, count - 1, MAX_MATRICES, dtype=int), stack)
        left, right = (
            np.broadcast_to(x, stack + x.shape[-2:])[picked] if x.ndim > 1 else x
            for x in (left, right)
        )
    return left, right


def _spread(length: int, count: int) -> npt.NDArray[np.intp]:
    """Indices of count / GROUP whole groups, the first to the last, each where a tile begins."""
    groups = np.linspace(0, length // GROUP - 1, count // GROUP, dtype=int)
    return (groups[:, np.newaxis] * GROUP + np.arange(GROUP)).ravel()


def relative_error(exact: Array, product: Array | None) -> float:
    """‖exact − product‖F / ‖exact‖F; NaN where there is no product, or NaN and Inf differ."""
    if product is None:
        return float("nan")
    exact, product = np.asarray(exact), np.asarray(product)
    finite = np.isfinite(exact)
    if not np.array_equal(exact[~finite], product[~finite], equal_nan=True):
        return float("nan")
    exact, product = exact[finite], product[finite]
    scale = np.max(np.abs(exact), initial=0.0)
    if scale == 0.0:
        return 0.0 if not np.any(product) else float("inf")
    # Scaled first: squares of elements near the ends of float64's range are out of it.
    return float(np.linalg.norm((exact - product) / scale) / np.linalg.norm(exact / scale))
