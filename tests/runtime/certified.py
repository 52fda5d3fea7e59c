"""The bound that schemes state of a product, from norms of the split operands."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.reference import reference, residues
from mixpert_py.runtime.reference.engine import execute
from mixpert_py.runtime.reference.reference import kept_part, outlier_part
from mixpert_py.runtime.reference.slices import Packed
from mixpert_py.runtime.scheme import UNIT32, UNIT64, Scheme
from mixpert_py.runtime.splitter import Digits, FloatSlices, Splitter

MEASURING = 1 + 2.0**-9  # the norms are themselves rounded, in single precision over one chunk
SMALLEST = 2.0**-1074  # of float64


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """2-norms per row of A, or column of B: of what was to be split, and of what became of it."""

    norm: Array  # (rows,)
    slices: Array  # (count, rows), each slice by its value
    residual: Array  # (rows,)


def measured(x: Array, packed: Packed, splitter: Splitter, block: int, reverse: bool) -> Measured:
    """The norms of x (rows, k), B's columns in reverse order, and of what splitting made of it.

    In extended precision, in which squares of float64 numbers neither overflow nor underflow.
    """
    rows, k = x.shape
    kept = np.where(packed.nonfinite[:, None], 0, kept_part(x, packed.outlier, block))
    kept = kept.astype(np.longdouble)
    if not isinstance(splitter, Digits | FloatSlices):  # the one slice is x as rounded
        unit = np.ldexp(np.longdouble(1), packed.exponents)
        pieces = (np.rint(kept / unit) * unit)[None]
    else:
        step = splitter.width if isinstance(splitter, Digits) else splitter.step
        unit = np.ldexp(packed.significands.astype(np.longdouble), packed.exponents)
        unit = np.repeat(unit, block, axis=1)[:, :k] if unit.shape[1] > 1 else unit
        slices = packed.slices[:, :, ::-1] if reverse else packed.slices
        chunks, _, _, chunk = slices.shape
        long = slices.transpose(2, 1, 0, 3).reshape(splitter.count, rows, chunks * chunk)[:, :, :k]
        places = -step * np.arange(splitter.count)[:, None, None]
        pieces = np.ldexp(long.astype(np.longdouble), places) * unit
    norms = (np.sqrt((part * part).sum(axis=-1)) for part in (kept, pieces, kept - pieces.sum(0)))
    return Measured(*(norm.astype(np.float64) for norm in norms))


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """An elementwise bound, kept as two thin factors.

    |C − Ĉ| ≤ left · right + floor in every element of Ĉ that is finite; one whose operands are
    finite and which is not has overflowed, elsewhere Ĉ is what the native product gives.
    """

    left: Array  # (m, r)
    right: Array  # (r, n)
    floor: float

    def bound(self) -> Array:
        """The bound for every element: (m, n) float64, Inf where norms leave its range."""
        with np.errstate(invalid="ignore"):
            elementwise: Array = (self.left @ self.right) * MEASURING + self.floor
            # What underflows of the products of norms, where anything can.
            elementwise += self.left.shape[-1] * SMALLEST * (self.floor > 0)
        elementwise[np.isnan(elementwise)] = np.inf  # 0 · Inf
        return elementwise


class CertifiedProduct(NamedTuple):
    """A product by the reference backend, and its bound. outliers: the rows of A and the columns of
    B that left the slices wholly or in part; share: of all blocks.
    """

    value: Array
    terms: int
    outliers: tuple[int, ...]
    share: float
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class Lossless(Digits):
    """Digits that no row leaves, whatever it loses."""

    loss_limit = 2.0**100


def lossless(splitter: Splitter) -> Any:
    """A splitter into digits as one that no row leaves; any other as it is."""
    if not isinstance(splitter, Digits):
        return splitter
    names = [field.name for field in fields(Digits) if field.name != "lower_limit"]
    return Lossless(*(getattr(splitter, name) for name in names))


def kept(scheme: Scheme) -> Scheme:
    """A scheme whose digits no row leaves."""
    return replace(scheme, left=lossless(scheme.left), right=lossless(scheme.right))


def multiply(a: Array, b: Array, scheme: Scheme) -> CertifiedProduct:
    """The reference backend's product, and the bound that the scheme states of it."""
    product = reference.multiply(a, b, scheme)
    with np.errstate(all="ignore"):
        bound = _certificate(a, b, scheme)
    sides = product.left.outlier, product.right.outlier
    outliers = tuple(int(flags.any(axis=1).sum()) for flags in sides)
    return CertifiedProduct(product.value, product.terms, outliers, product.outliers, bound)


def _certificate(a: Array, b: Array, scheme: Scheme) -> Certificate:
    dtype = np.result_type(a, b).newbyteorder("=")
    a, b = np.asarray(a, dtype), np.asarray(b, dtype)
    k, rows, columns = a.shape[1], np.arange(a.shape[0]), np.arange(b.shape[1])
    if k == 0:
        return _of_chain(a, b)
    if scheme.moduli:
        packed = residues.pack(a, b, scheme)
        left, right = packed.left, packed.right
        value = residues.execute(packed, dtype)
    else:
        left, right = reference.pack(a, b, scheme)
        value = execute(scheme, k, left, right, dtype)
    block = scheme.lengths(k)[1]
    norms = (
        measured(a, left, scheme.left, block, False),
        measured(b.T, right, scheme.right, block, not scheme.moduli),
    )
    bound = certify(scheme, k, *norms, dtype)
    if left.outlier.any():  # A's outliers are multiplied by B
        part, some = outlier_part(a, left.outlier, block)
        bound = joined(bound, some, columns, _of_chain(part, b))
    if right.outlier.any():  # the rest of A is multiplied by B's outliers
        part, some = outlier_part(b.T, right.outlier, block)
        bound = joined(bound, rows, some, _of_chain(kept_part(a, left.outlier, block), part.T))
    over = ~(np.isfinite(value) | left.nonfinite[:, None] | right.nonfinite)
    some = np.flatnonzero(over.any(axis=1))  # rows that are multiplied without slices
    return joined(bound, some, columns, _of_chain(a[some], b)) if len(some) else bound


def _of_chain(a: Array, b: Array) -> Certificate:
    """The bound of A·B by the result's own precision."""
    unit = UNIT32 if a.dtype.itemsize == 4 else UNIT64
    rows, columns = _norms(a), _norms(b.T)
    return Certificate(
        raised(a.shape[1] * unit * rows, rows)[:, np.newaxis],
        raised(columns, columns)[np.newaxis],
        0.0,
    )


def _norms(x: Array) -> Array:
    """2-norms of rows (rows, k) in float64, without overflow or underflow of squares."""
    x = x.astype(np.float64)
    largest = np.abs(x).max(axis=1, keepdims=True, initial=0)
    largest[largest == 0] = 1
    norms: Array = np.linalg.norm(x / largest, axis=1) * largest[:, 0]
    return norms


def certify(
    scheme: Scheme, k: int, left: Measured, right: Measured, dtype: np.dtype[np.floating]
) -> Certificate:
    """The bound that a scheme states for inner dimension k and operands as measured.

    With A = Â + R and B = B̂ + S, Â = Σ A_p and B̂ = Σ B_q,
    |C − Ĉ| ≤ |R B| + |Â S| + Σ |A_p B_q| over dropped terms + Σ ρ |A_p| |B_q| over terms made,
    ρ the rounding of the term's sums; each product by Cauchy–Schwarz from norms of its factors.
    """
    left, right = _raised(left), _raised(right)
    weights = np.ones((len(left.slices), len(right.slices)))
    for term, bound in rounding(scheme, k, UNIT32 if dtype.itemsize == 4 else UNIT64).items():
        weights[term] = bound
    return Certificate(
        np.stack([left.residual, left.norm + left.residual, *left.slices], axis=1),
        np.stack([right.norm, right.residual, *raised(weights @ right.slices, right.norm)]),
        (k + 2) * float(np.finfo(dtype).smallest_subnormal),
    )


def rounding(scheme: Scheme, k: int, unit: float) -> dict[tuple[int, int], float]:
    """(left, right) of every term → bound on the rounding of the sums that it enters.

    Relative to the sum of its products by absolute value. Integer terms: one rounding when an
    accumulator is converted, one per accumulator combined, one per promotion, and one by the
    significands of fitted digits, in the result's precision (`unit`). Residues: of (0, 0), the
    product of both operands as rounded to integers, which is rounded to float64, and of float32
    operands to that. Floating-point terms: in
    FP32, the chain over a chunk, in any order, then one addition per run and chunk.
    """
    if scheme.moduli:
        return {(0, 0): unit if unit == UNIT64 else unit + UNIT64}
    chunk, block, k_segment = scheme.lengths(k)
    sums = scheme.accumulators()
    pieces = math.ceil(k / block) * math.ceil(block / k_segment)
    bounds = {}
    for _, runs in sums:
        additions = pieces if scheme.exact else len(runs) * math.ceil(k / chunk)
        for run in runs:
            chain = 0 if scheme.exact else run.length * chunk
            # Two more: the cast to the result's type, and the addition of outliers.
            count = chain + additions + len(sums) + scheme.fitted + 2
            steps = count * (unit if scheme.exact else UNIT32)
            for step in range(run.length):
                bounds[run.left + step, run.right - step] = steps / (1 - steps)
    return bounds


def raised(x: Array, size: Array) -> Array:
    """Norms x, or products of some, as upper bounds: what rounding takes of subnormal ones, or all
    of them, is less than two smallest numbers. size: 0 where there is nothing to lose.
    """
    found: Array = x + 2 * SMALLEST * (size > 0)
    return found


def _raised(it: Measured) -> Measured:
    return Measured(*(raised(x, it.norm) for x in (it.norm, it.slices, it.residual)))


def joined(first: Certificate, rows: Array, columns: Array, other: Certificate) -> Certificate:
    """The bound of a product to whose elements (rows × columns) another product was added."""
    left = np.zeros((len(first.left), other.left.shape[1]))
    right = np.zeros((other.right.shape[0], first.right.shape[1]))
    left[rows], right[:, columns] = other.left, other.right
    return Certificate(
        np.hstack([first.left, left]),
        np.vstack([first.right, right]),
        first.floor + other.floor,
    )
