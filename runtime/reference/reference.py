"""The reference backend: what every scheme means, in NumPy."""

from typing import NamedTuple

import numpy as np

from mixpert_py.errors import DeviceError, ShapeError
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.model.device_model import Accumulations, IntegerAccumulation
from mixpert_py.runtime.reference import residues
from mixpert_py.runtime.reference.engine import Floating, execute, execute_like
from mixpert_py.runtime.reference.slices import Packed, into_digits, into_floats
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits, FloatSlices


class ReferenceProduct(NamedTuple):
    """An emulated product and its packed operands.

    terms: slice products, outliers' not counted; fewer than the scheme's where integers need no
    more.
    """

    value: Array
    terms: int
    left: Packed
    right: Packed

    @property
    def outliers(self) -> float:
        """The share of the operands' blocks that left the slices."""
        flags = self.left.outlier, self.right.outlier
        return sum(int(x.sum()) for x in flags) / max(sum(x.size for x in flags), 1)


def multiply(
    a: Array, b: Array, scheme: Scheme, *, like: Accumulations | None = None
) -> ReferenceProduct:
    """C = A·B as the scheme computes it.

    a: (m, k), b: (k, n), float32 or float64, any strides and byte order; the result is float64 if
    either is. like: a chip, whose instructions add up floating-point slices; None: FP32 sums. NaN
    and Inf reach just the elements that they reach natively, and only what overflows natively
    overflows.
    Raises ShapeError unless the shapes multiply, TypeError on other types, DeviceError where
    nothing is known of the chip's instructions for the scheme's element.
    """
    a, b = _operands(a, b)
    with np.errstate(all="ignore"):
        if scheme.moduli:
            pair = residues.pack(a, b, scheme)
            left, right, terms = pair.left, pair.right, len(pair.moduli)
            value = residues.execute(pair, a.dtype)
        else:
            (left, right), terms = pack(a, b, scheme), scheme.products
            value = _product(a, b, scheme, left, right, like)
        rows, columns = np.flatnonzero(left.nonfinite), np.flatnonzero(right.nonfinite)
        value[rows] = a[rows] @ b
        value[:, columns] = a @ b[:, columns]
        _replace_overflow(a, b, value, left, right)
        return ReferenceProduct(value, terms, left, right)


def pack(a: Array, b: Array, scheme: Scheme) -> tuple[Packed, Packed]:
    """A split by rows and B by columns, into digits or floating-point slices, as the scheme says;
    B's slices in reverse order.
    """
    chunk, block, _ = scheme.lengths(a.shape[1])

    def split(x: Array, reverse: bool) -> Packed:
        splitter = scheme.right if reverse else scheme.left
        if isinstance(splitter, Digits):
            return into_digits(x, splitter, chunk, block, reverse=reverse)
        assert isinstance(splitter, FloatSlices)
        return into_floats(x, splitter, chunk, block, reverse=reverse)

    return split(a, False), split(b.T, True)


def _operands(a: Array, b: Array) -> tuple[Array, Array]:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(f"cannot multiply {a.shape} by {b.shape}: wanted (m, k) by (k, n)")
    for x in (a, b):
        if x.dtype.kind != "f" or x.dtype.itemsize not in (4, 8):
            raise TypeError(f"cannot split {x.dtype}: wanted float32 or float64")
    dtype = np.result_type(a, b).newbyteorder("=")
    if a.shape[1] == 0:  # an empty sum is 0 · 0
        a, b = np.zeros((a.shape[0], 1)), np.zeros((1, b.shape[1]))
    return np.asarray(a, dtype), np.asarray(b, dtype)


def _product(
    a: Array, b: Array, scheme: Scheme, left: Packed, right: Packed, like: Accumulations | None
) -> Array:
    """The slices' product, then A's outliers times B, then the rest of A times B's outliers."""
    k = a.shape[1]
    value = _slice_products(scheme, k, left, right, a.dtype, like)
    block = scheme.lengths(k)[1]
    if left.outlier.any():
        part, rows = outlier_part(a, left.outlier, block)
        value[rows] += _chain(part, b)
    if right.outlier.any():
        part, columns = outlier_part(b.T, right.outlier, block)
        value[:, columns] += _chain(kept_part(a, left.outlier, block), part.T)
    return value


def outlier_part(x: Array, outlier: Array, block: int) -> tuple[Array, Array]:
    """The rows of x that hold outliers, everything else in them zero; and their indices."""
    rows = np.flatnonzero(outlier.any(axis=1))
    return np.where(_spread(outlier[rows], block, x.shape[1]), x[rows], 0), rows


def kept_part(x: Array, outlier: Array, block: int) -> Array:
    """x with its outliers set to zero; x itself where it has none."""
    return np.where(_spread(outlier, block, x.shape[1]), 0, x) if outlier.any() else x


def _spread(outlier: Array, block: int, k: int) -> Array:
    return np.repeat(outlier, block, axis=1)[:, :k]


def _replace_overflow(a: Array, b: Array, value: Array, left: Packed, right: Packed) -> None:
    """Multiply what slices make too large in the result's own precision: digits are rounded,
    upwards too, and their units are those of whole rows.
    """
    over = ~(np.isfinite(value) | left.nonfinite[:, None] | right.nonfinite)
    rows = np.flatnonzero(over.any(axis=1))
    if len(rows):
        value[rows] = np.where(over[rows], _chain(a[rows], b), value[rows])


def _slice_products(
    scheme: Scheme, k: int, left: Packed, right: Packed, dtype: Floating, like: Accumulations | None
) -> Array:
    """The products of slices with the sums of chip `like`; integer sums are exact on every chip."""
    how = None if like is None else getattr(like, scheme.element.name)
    if like is None or isinstance(how, IntegerAccumulation):
        return execute(scheme, k, left, right, dtype)
    if how is None:
        raise DeviceError(
            f"scheme {scheme.name!r}: the device model says nothing of {scheme.element.name} sums"
        )
    return execute_like(how, scheme, k, left, right, dtype)


def _chain(a: Array, b: Array) -> Array:
    """A·B by the result's own precision: what left the slices. BLAS orders sums by how operands lie
    in memory, so both lie the same way always.
    """
    return np.asarray(np.ascontiguousarray(a) @ np.ascontiguousarray(b))
