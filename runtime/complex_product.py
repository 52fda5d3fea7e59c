"""Complex products by real ones, of the operands' real and imaginary parts.

    Re C = Re A · Re B − Im A · Im B        Im C = Re A · Im B + Im A · Re B

The four are one product of stacks, (2, 1, m, k) by (2, k, n): each part is split once, under scales
of its own, so that the real and the imaginary part of C are each as accurate as real products are.
Cheaper ways are not, in general. Three products (Karatsuba; BLAS's gemm3m, Higham 1992) and a
single one of [Re A, Im A] bound the error by the larger part alone: where imaginary parts are 1e-5
of the real ones, they leave 1e-2 of the imaginary part of C wrong, these four 4e-7, the native
product 3e-7.
`gpu.multiply` makes two products for each modulus where operands show that they are as accurate.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.arrays import AnyArray, Array
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product


class PartFunctions(NamedTuple):
    """Functions that take a library's complex arrays apart and put them together.

    split: complex x → its parts (2, *x.shape), contiguous. join: the products of parts, (2, 2, *s)
    or (2, *s), and where C goes: an array of shape s, any strides.
    """

    xp: ModuleType
    split: Callable[[Any], Any]
    join: Callable[[Any, Any], None]


def is_complex(*operands: AnyArray) -> bool:
    return any(x.dtype.kind == "c" for x in operands)


def widened(x: AnyArray) -> Any:
    """An array in float64, or complex128; itself if it is."""
    return x.astype(np.complex128 if is_complex(x) else np.float64, copy=False)


def multiply(
    way: PartFunctions,
    a: AnyArray,
    b: AnyArray,
    product: Callable[[Any, Any], Product | Reason],
    *,
    right: AnyArray | None = None,
    out: AnyArray | None = None,
) -> Product | Reason:
    """A·B, at least one of them complex, by a product of real operands; or why that is not made.

    a: (…, m, k), b: (…, k, n), float32, float64 or complex of these, any strides; stacks broadcast.
    product: takes real operands likewise. right: the parts of b, if they are known. out: where the
    result goes, an array of its shape and type, any strides; it may overlap a and b.

    NaN and Inf: parts of C are what the formulas above make of them.
    """
    depth = max(a.ndim, b.ndim)
    x = _lifted(parts(way, a), depth - a.ndim + is_complex(b)) if is_complex(a) else a
    y = _lifted(parts(way, b) if right is None else right, depth - b.ndim) if is_complex(b) else b
    made = product(x, y)
    if isinstance(made, Reason):
        return made
    count = is_complex(a) + is_complex(b)
    if out is None:
        out = way.xp.empty(made.value.shape[count:], np.result_type(a.dtype, b.dtype))
    way.join(made.value, out)
    return made.with_value(out)


def parts(way: PartFunctions, x: AnyArray) -> Any:
    """The real and the imaginary part of x (…, rows, columns) as one array, (2, *x.shape).

    A stack that repeats itself along an axis does so here, too.
    """
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides[:-2])
    return way.xp.broadcast_to(way.split(x[once]), (2, *x.shape))


def _lifted(both: AnyArray, axes: int) -> Any:
    """Parts with more axes of one before their stack's own."""
    return both[(slice(None), *(None,) * axes)]


def split(x: Array) -> Array:
    """A NumPy array's parts; see `PartFunctions`."""
    return np.stack([x.real, x.imag])


def join(products: Array, out: Array) -> None:
    """Products of parts, NumPy's, as one complex array; see `PartFunctions`."""
    if products.ndim == out.ndim + 1:
        out.real, out.imag = products
        return
    (rr, ri), (ir, ii) = products
    with np.errstate(all="ignore"):
        np.subtract(rr, ii, out=out.real)
        np.add(ri, ir, out=out.imag)


NUMPYS = PartFunctions(np, split, join)
