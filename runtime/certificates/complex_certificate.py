"""The certificate of a complex product, from that of the products of its operands' parts."""

from typing import Any

import numpy as np

from mixpert_py.runtime.certificates.certificate import Certificate
from mixpert_py.runtime.packed import Array
from mixpert_py.runtime.scheme import UNIT32, UNIT64


def as_moduli(xp: Any, parts: Certificate, a: Any, b: Any) -> Certificate:
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
        left = np.concatenate([left, _stacked(unit * rows, stack)[..., np.newaxis]], -1)
        right = np.concatenate([right, _stacked(columns, stack)[..., np.newaxis, :]], -2)
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


def _stacked(norms: Array, stack: tuple[int, ...]) -> Array:
    return np.broadcast_to(norms, (*stack, norms.shape[-1]))


def _norms(xp: Any, x: Any, axis: int) -> Array:
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
