"""What a product is proved to be within, from the norms that splitting measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.packed import Array, Measured
from mixpert_py.runtime.scheme import UNIT32, UNIT64, Scheme

MEASURING = 1 + 2.0**-9  # the norms are themselves rounded, in single precision over one chunk
SMALLEST = 2.0**-1074  # of float64


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """An elementwise bound, kept as two thin factors.

    |C − Ĉ| ≤ left · right + floor in every element of Ĉ that is finite; one whose operands are
    finite and which is not has overflowed, elsewhere Ĉ is what the native product gives.
    left_loss, right_loss: 2-norm of what splitting lost, relative to the row of A, column of B;
    outliers not counted.
    """

    left: Array  # (m, r)
    right: Array  # (r, n)
    floor: float
    left_loss: Array  # (m,)
    right_loss: Array  # (n,)

    def bound(self) -> Array:
        """The bound for every element: (m, n) float64, Inf where norms leave its range."""
        with np.errstate(invalid="ignore"):
            elementwise: Array = (self.left @ self.right) * MEASURING + self.floor
            # What underflows of the products of norms, where anything can.
            elementwise += self.left.shape[-1] * SMALLEST * (self.floor > 0)
        elementwise[np.isnan(elementwise)] = np.inf  # 0 · Inf
        return elementwise


def certify(
    scheme: Scheme,
    k: int,
    left: Measured,
    right: Measured,
    dtype: np.dtype[np.floating],
    rounding: dict[tuple[int, int], float] | None = None,
) -> Certificate:
    """The bound that a scheme states for inner dimension k and operands as measured.

    rounding: of every term's sums; None: that of the scheme, `Scheme.rounding`.

    With A = Â + R and B = B̂ + S, Â = Σ A_p and B̂ = Σ B_q,
    |C − Ĉ| ≤ |R B| + |Â S| + Σ |A_p B_q| over dropped terms + Σ ρ |A_p| |B_q| over terms made,
    ρ the rounding of the term's sums; each product by Cauchy–Schwarz from norms of its factors.
    """
    losses = _relative(left), _relative(right)
    left, right = _raised(left), _raised(right)
    if rounding is None:
        rounding = scheme.rounding(k, UNIT32 if dtype.itemsize == 4 else UNIT64)
    weights = np.ones((len(left.slices), len(right.slices)))
    for term, bound in rounding.items():
        weights[term] = bound
    return Certificate(
        np.stack([left.residual, left.norm + left.residual, *left.slices], axis=1),
        np.stack([right.norm, right.residual, *raised(weights @ right.slices, right.norm)]),
        (k + 2) * float(np.finfo(dtype).smallest_subnormal),
        losses[0],
        losses[1],
    )


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
        first.left_loss,
        first.right_loss,
    )


def _relative(measured: Measured) -> Array:
    loss: Array = np.divide(
        measured.residual,
        measured.norm,
        out=np.zeros_like(measured.norm),
        where=measured.norm > 0,
    )
    return loss


def nothing_lost(m: int, n: int) -> Certificate:
    """The certificate of an exact product, an empty sum say."""
    return Certificate(np.zeros((m, 1)), np.zeros((1, n)), 0.0, np.zeros(m), np.zeros(n))


def stacked(
    certificates: Sequence[Certificate], stack: tuple[int, ...], m: int, n: int
) -> Certificate:
    """One certificate whose factors, losses and bound have the stack's axes in front.

    certificates: of products (m, n), in C order; the only one itself where there is no stack.
    """
    if stack == ():
        return certificates[0]
    rank = max((one.left.shape[1] for one in certificates), default=1)
    left, right = np.zeros((len(certificates), m, rank)), np.zeros((len(certificates), rank, n))
    for i, one in enumerate(certificates):
        own = one.left.shape[1]
        left[i, :, :own], right[i, :own] = one.left, one.right
    losses = [
        np.array([getattr(one, side) for one in certificates]).reshape(*stack, size)
        for side, size in (("left_loss", m), ("right_loss", n))
    ]
    return Certificate(
        left.reshape(*stack, m, rank),
        right.reshape(*stack, rank, n),
        max((one.floor for one in certificates), default=0.0),
        losses[0],
        losses[1],
    )


def as_moduli(xp: ModuleType, parts: Certificate, a: Any, b: Any) -> Certificate:
    """A bound on moduli: |C − Ĉ| ≤ the sum of what the parts' products are off, and of the rounding
    of the sums of these, u · |Ĉ|, where both operands are complex.

    parts: of the stack (2, 2, …), or (2, …) where one operand is complex. a: (…, m, k), b:
    (…, k, n) as they were multiplied, of xp. A row's loss is that of its worse part.
    """
    axes = parts.left.ndim - max(a.ndim, b.ndim)  # of 2
    left = _beside(parts.left, axes, -1)
    right = _beside(parts.right, axes, -2)
    floor = parts.floor * 2**axes
    if axes == 2:
        wide = np.result_type(a.dtype, b.dtype) == np.complex128
        rows, columns = _norms(xp, a, -1), _norms(xp, b, -2)
        unit = (UNIT64 if wide else UNIT32) * (1 + 2.0**-10)  # of Ĉ, which is itself off
        stack = left.shape[:-2]
        left = np.concatenate([left, _spread(unit * rows, stack)[..., np.newaxis]], -1)
        right = np.concatenate([right, _spread(columns, stack)[..., np.newaxis, :]], -2)
    return Certificate(
        left,
        right,
        floor,
        parts.left_loss.max(tuple(range(axes)), initial=0.0),
        parts.right_loss.max(tuple(range(axes)), initial=0.0),
    )


def _beside(factors: Array, axes: int, rank: int) -> Array:
    """Factors of a sum of products, (2, …) or (2, 2, …), as those of one of a larger rank."""
    stacked = factors.reshape(2**axes, *factors.shape[axes:])
    return np.concatenate(list(stacked), axis=rank)


def _spread(norms: Array, stack: tuple[int, ...]) -> Array:
    return np.broadcast_to(norms, (*stack, norms.shape[-1]))


def _norms(xp: ModuleType, x: Any, axis: int) -> Array:
    """2-norms of rows (axis -1) or columns (-2), (…, rows) float64 of NumPy; NaN where not finite.

    Scaled, as squares near the ends of float64's range are out of it.
    """
    if x.shape[axis] == 0:
        return np.zeros([n for i, n in enumerate(x.shape) if i != x.ndim + axis])
    size = xp.abs(x).astype(np.float64, copy=False)
    largest = size.max(axis=axis, keepdims=True)
    scale = xp.where(largest > 0, largest, 1.0)
    norms = (((size / scale) ** 2).sum(axis=axis, keepdims=True) ** 0.5 * scale).squeeze(axis)
    found: Array = norms if isinstance(norms, np.ndarray) else norms.get()
    return found
