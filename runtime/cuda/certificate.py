"""The certificate of a product made on the GPU, from the norms that packing measured there."""

from typing import Any

import numpy as np

from mixpert_py.runtime.certificates.certificate import (
    Certificate,
    certify,
    joined,
    least_norms,
    raised,
    truncation,
)
from mixpert_py.runtime.certificates.stacked_certificate import nothing_lost, stacked
from mixpert_py.runtime.cuda.backend import Product
from mixpert_py.runtime.cuda.stacks import batches, matrices, stack_sizes
from mixpert_py.runtime.emulation.packed import Array, Measured
from mixpert_py.runtime.kernels.abi import LARGE, OUTLIER, SIGNIFICAND_BITS, SIGNIFICAND_MASK
from mixpert_py.runtime.scheme import UNIT32, UNIT64


def certificate(product: Product, a: Any, b: Any) -> Certificate:
    """The bound for C = A·B, a: (…, m, k), b: (…, k, n) CuPy arrays. Waits for the device.

    What left the slices, and what had overflowed of large rows and columns, was multiplied by a
    plain chain of k additions: within k times the unit of C's precision, times the 2-norms of what
    was multiplied.
    """
    k = a.shape[-1]
    stack, (m, n) = product.value.shape[:-2], product.value.shape[-2:]
    if product.left is None or product.right is None:
        return stacked([nothing_lost(m, n)] * int(np.prod(stack, dtype=int)), stack, m, n)
    dtype = np.dtype(product.value.dtype)
    unit = UNIT32 if dtype.itemsize == 4 else UNIT64
    left, right = _Side(product.left, matrices(a), -1), _Side(product.right, matrices(b), -2)
    found = []
    for some in batches(stack_sizes(a), stack_sizes(b), stack):
        for i in range(some.count):
            one = left.of(some.a + (0 if some.shares_a else i))
            other = right.of(some.b + (0 if some.shares_b else i))
            bound = certify(product.scheme, k, one.measured, other.measured, dtype)
            if not product.scheme.exact:
                lost = truncation(product.scheme, k, one.slices, other.slices)
                bound = joined(bound, np.arange(m), np.arange(n), lost)
            for rows, columns, x, y in (
                (one.rows, np.arange(n), one.outliers, other.norm),
                (np.arange(m), other.rows, one.norm, other.outliers),
                (one.large, np.arange(n), one.norm[one.large], other.norm),
                (np.arange(m), other.large, one.norm, other.norm[other.large]),
            ):
                if len(rows) and len(columns):
                    chain = nothing_lost(len(x), len(y))
                    chain.left[:, 0], chain.right[0] = raised(k * unit * x, x), raised(y, y)
                    bound = joined(bound, rows, columns, chain)
            found.append(bound)
    return stacked(found, stack, m, n)


class _Matrix:
    """What is known of one matrix of an operand: norms of its rows (or columns).

    rows: those with outliers; outliers: their norms, whole; norm: of every row, outliers included;
    large: rows that are. slices: norms of all that tensor cores cut by, see `truncation`.
    """

    def __init__(
        self, measured: Measured, least: Array, rows: Array, outliers: Array, large: Array
    ) -> None:
        self.measured, self.slices = measured, measured.slices + least
        self.rows, self.outliers, self.large = rows, outliers, large
        self.norm = measured.norm.copy()
        self.norm[rows] += outliers


class _Side:
    """One packed operand, read back once."""

    def __init__(self, packed: Any, x: Any, axis: int) -> None:
        self.norms = packed.view("norms").get()
        self.splitter, self.k = packed.splitter, x.shape[axis]
        self.scales = packed.view("scales").get()
        self.flags = packed.view("flags").get()
        self.x = x if x.ndim == 3 else x[np.newaxis]
        self.axis = axis

    def of(self, index: int) -> _Matrix:
        norms, flags = self.norms[index], self.flags[index]
        rows, large = np.flatnonzero(flags & OUTLIER), np.flatnonzero(flags == LARGE)
        measured = Measured(norms[0], norms[2:], norms[1])
        least = self._least(index)
        if not len(rows):
            return _Matrix(measured, least, rows, np.zeros(0), large)
        x = self.x[index].take(rows, axis=-1 - (self.axis == -1)).get().astype(np.float64)
        largest = np.abs(x).max(axis=self.axis, keepdims=True)
        whole = np.linalg.norm(x / largest, axis=self.axis) * largest.squeeze(self.axis)
        return _Matrix(measured, least, rows, whole, large)

    def _least(self, index: int) -> Array:
        scales = self.scales[index, 0]
        units = np.ldexp((scales & SIGNIFICAND_MASK).astype(np.float64), scales >> SIGNIFICAND_BITS)
        return least_norms(self.splitter, self.k, units)
