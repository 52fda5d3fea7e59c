"""A product of NumPy arrays made by a scheme: by a cast, or by the reference backend."""

import math
import operator
from typing import Any

import numpy as np

from mixpert_py.runtime import complex_product, warned
from mixpert_py.runtime.arrays import PRECISION, Array, Scratch, is_transposed, is_wide
from mixpert_py.runtime.complex_product import is_complex, widened
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import DOT, MATMUL, Native, Product, Request, result_shape
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import FEWEST, NONE, Rows, moduli_for
from mixpert_py.runtime.schemes.integers import scheme_for

TYPES = tuple(map(np.dtype, PRECISION))

# Functions of NumPy's that keep no operand, and how each is called with `out`.
NUMPYS: dict[Native, Native] = {
    operator.matmul: MATMUL,
    MATMUL: MATMUL,
    DOT: DOT,
    warned.call_method: DOT,
}

# The largest element of an operand, and the product of both, from which float32 loses nothing to
# underflow: what falls below 2^-126 is then less than the rounding of what the largest contributes.
HELD = 2.0**-100


def emulate(a: Array, b: Array, scheme: str, native: Native = np.matmul) -> Any:
    """A·B under a scheme; None where it left the scheme's range.

    a, b: of TYPES, one dimension or more, stacks broadcast as in np.matmul. The result has the type
    that np.matmul gives it; a vector times a vector is a scalar. native: makes the products of
    the schemes that are casts. No floating-point warning is given that `native` would not give.
    """
    if scheme == "native":
        return native(a, b)
    product = multiply(Request(a, b, scheme, native=native))
    return product.value if isinstance(product, Product) else None


def multiply(request: Request) -> Product | Reason:
    """A·B under a scheme that is not native, with all that was asked for; or why not."""
    a, b, scheme, native = request.a, request.b, request.scheme, request.native
    if scheme == "float32":
        product = _float32(a, b, native, request.out)
        return Reason.RANGE if product is None else Product(product, scheme)
    if scheme == "blas":
        if native in NUMPYS:
            return Product(_blas(a, b, native), scheme)
        with np.errstate(all="ignore"):  # as np.einsum has it
            return Product(_blas(a, b, MATMUL), scheme)
    if scheme == "float64":
        product = native(widened(a), widened(b))
        with np.errstate(all="ignore"):
            return Product(product.astype(np.result_type(a, b), copy=False), scheme)
    return _reference(request)


def _float32(a: Array, b: Array, native: Native, out: Array | None) -> Any:
    """The product, in `out` where that shares no memory with an operand: else a caller may still
    want the native product.
    """
    if not is_wide(str(a.dtype), str(b.dtype)):
        return native(a, b)
    function = NUMPYS.get(native) if min(a.ndim, b.ndim) > 1 else None
    with np.errstate(all="ignore"), Scratch() as scratch:
        memory = scratch if function else None  # the program's own function may keep operands
        left = _narrowed(a, memory)
        # BLAS makes X·Xᵀ in half the time, and symmetric, if it is told that both are one array.
        right = left if b is a else left.T if is_transpose(a, b) else _narrowed(b, memory)
        if not _holds(a, left, b, right):
            return None
        if function is None:
            product = native(left, right)
        else:
            dtype = np.result_type(left, right)
            product = function(left, right, out=scratch.empty(result_shape(a, b), dtype))
        # A sum is one quick pass, and cannot be finite if any element is not.
        if not np.isfinite(np.sum(product)) and _overflows(a, left, b, right, product):
            return None
        if out is None or not is_apart(out, a, b):
            return product.astype(np.result_type(a, b), copy=False)
        np.copyto(out, product)
        return out


def _blas(a: Array, b: Array, native: Native) -> Any:
    """The product by BLAS, in the operands' own precision with the unit roundoff u: each element
    is off by at most K·u·(|A||B|)ij, and by the smallest number of the type for each underflow.
    Complex sums have √2·(K + 1) in place of K. Products of float16 are made in float32, u = 2^-24,
    and rounded once.
    """
    dtype = np.result_type(a, b)
    if dtype != np.float16:
        left, right = (x if _is_for_blas(x) else x.astype(dtype, "C") for x in (a, b))
        return warned.call(native if left is a and right is b else MATMUL, left, right)
    with Scratch() as scratch:
        left, right = (scratch.cast(x, np.dtype(np.float32)) for x in (a, b))
        product = np.asarray(warned.call(MATMUL, left, right))
        return warned.call(np.ndarray.astype, product, dtype)[()]


def _is_for_blas(x: Array) -> bool:
    """Whether BLAS takes an array, or the matrices of a stack, as they lie in memory."""
    steps = x.strides[-2:]
    return min(steps) == x.itemsize and all(step % x.itemsize == 0 for step in steps)


def is_apart(out: Array, *operands: Array) -> bool:
    """Whether an array lies in other memory than the operands of a product."""
    return not any(np.may_share_memory(out, x) for x in operands)


def _narrowed(x: Array, memory: Scratch | None) -> Array:
    """x in float32 or complex64. memory: where it may lie; None: in memory of its own."""
    dtype = np.dtype(np.complex64 if is_complex(x) else np.float32)
    if x.dtype == dtype or memory is None:
        return x.astype(dtype, copy=False)
    return memory.cast(x, dtype)


def is_transpose(a: Array, b: Array) -> bool:
    """Whether B is a view of all of A, transposed, and A repeats no row or column."""
    return a.ndim == 2 and 0 not in a.strides and is_transposed(a, b)


def _holds(a: Array, left: Array, b: Array, right: Array) -> bool:
    """Whether float32 has room below for these operands, cast to `left` and `right`."""
    one = _largest(left)
    other = one if right is left else _largest(right)
    if one >= HELD and other >= HELD and one * other >= HELD:
        return True
    return not all(x.any(where=np.isfinite(x)) for x in (a, b))


def _largest(x: Array) -> float:
    """The largest finite magnitude, or less where two such operands hold anyway."""
    if is_complex(x):
        return max(_largest(x.real), _largest(x.imag))
    top = float(x.max(initial=0))
    if not top * top >= HELD:
        top = max(top, -float(x.min(initial=0)))
    if math.isfinite(top):
        return top
    return _largest(np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0))


def _overflows(a: Array, left: Array, b: Array, right: Array, product: Any) -> bool:
    """Whether float32 has no room above for these operands, cast to `left` and `right`, or for
    their product: NaN and Inf of the operands reach the elements that they reach natively.
    """
    rows: Any = np.isfinite(a).all(axis=-1)
    columns: Any = np.isfinite(b).all(axis=-min(b.ndim, 2))
    if a.ndim > 1 and b.ndim > 1:
        rows, columns = rows[..., np.newaxis], columns[..., np.newaxis, :]
    if (rows & columns & ~np.isfinite(product)).any():
        return True
    if not (np.isinf(a).any() or np.isinf(b).any()):
        return False
    # Inf times what became 0 would be NaN, and so would Inf plus what became −Inf.
    loses = any(np.count_nonzero(x) != np.count_nonzero(y) for x, y in ((a, left), (b, right)))
    sums = _magnitude(a) * _magnitude(b) * 2 * a.shape[-1]  # twice: of complex operands, two parts
    return loses or sums > np.finfo(np.float32).max


def _magnitude(x: Array) -> float:
    return float(np.abs(x).max(initial=0, where=np.isfinite(x)))


def _reference(request: Request) -> Product | Reason:
    """np.matmul by the reference backend: one- and many-dimensional operands as matrices."""
    from mixpert_py.runtime.reference import reference

    a, b, name = request.a, request.b, request.scheme
    rows = a[np.newaxis, :] if a.ndim == 1 else a
    columns = b[:, np.newaxis] if b.ndim == 1 else b
    if is_complex(a, b):

        def real_product(x: Array, y: Array) -> Product | Reason:
            return _reference(request._replace(a=x, b=y))

        if is_complex(a) and is_complex(b) and emulation_of(name).moduli:
            joined = _joined(request, rows, columns)
            if joined is not None:
                return joined
        made = complex_product.multiply(complex_product.NUMPYS, rows, columns, real_product)
        return made if isinstance(made, Reason) else made.with_value(_shaped(made.value, a, b))
    if name == "crt":
        count = moduli_for(_rows_of(rows), _rows_of(columns.swapaxes(-1, -2)))
        if count is None and _are_integers(rows, columns):
            count = FEWEST  # or fewer, see `schemes.residues`
        if count is None:
            return Reason.SPREAD
        made = _reference(request._replace(scheme=f"crt{count}"))
        return made if isinstance(made, Reason) else made._replace(scheme=name)
    scheme = emulation_of(name)
    stack = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    rows = np.broadcast_to(rows, stack + rows.shape[-2:])
    columns = np.broadcast_to(columns, stack + columns.shape[-2:])
    value = np.empty((*stack, rows.shape[-2], columns.shape[-1]), np.result_type(a, b))
    outliers = 0.0
    for index in np.ndindex(*stack):
        product = reference.multiply(rows[index], columns[index], scheme, like=request.accumulation)
        value[index] = product.value
        outliers += product.outliers
    return Product(_shaped(value, a, b), name, lambda: outliers / max(math.prod(stack), 1))


def _joined(request: Request, a: Array, b: Array) -> Product | Reason | None:
    """The product of complex matrices by residues of both parts with one scale (see
    `schemes.residues`); None where parts have scales of their own.
    """
    count, name = moduli_for(_rows_of(a), _rows_of(b.swapaxes(-1, -2))), request.scheme
    if name == "crt":
        if count is None:
            return Reason.SPREAD
        name = f"crt{count}"
    elif count != FEWEST:
        return None
    re, im = (
        _reference(request._replace(a=np.concatenate(x, -1), b=np.concatenate(y, -2), scheme=name))
        for x, y in (([a.real, -a.imag], [b.real, b.imag]), ([a.real, a.imag], [b.imag, b.real]))
    )
    if isinstance(re, Reason) or isinstance(im, Reason):
        return None
    value = np.empty(re.value.shape, np.result_type(a, b))
    value.real, value.imag = re.value, im.value
    return Product(_shaped(value, request.a, request.b), request.scheme)


def _rows_of(x: Array) -> Rows:
    """The facts that `crt` needs about an operand, or a stack of them, as rows of K."""
    from mixpert_py.runtime.reference.residues import rows_of

    return rows_of(x.reshape(-1, x.shape[-1])) if x.size else NONE


def _are_integers(a: Array, b: Array) -> bool:
    """Whether the product is exact by fewer moduli than any other needs."""
    from mixpert_py.runtime.reference.residues import bounds_of

    return scheme_for(bounds_of(a), bounds_of(b), a.shape[-1]) is not None


def _shaped(value: Array, a: Array, b: Array) -> Any:
    """A product of matrices as np.matmul gives it; of two vectors a scalar."""
    shape = result_shape(a, b)
    if value.shape == shape:
        return value  # not a view: it owns its memory, as NumPy's does
    result = value.reshape(shape)
    return result if result.ndim else result[()]
