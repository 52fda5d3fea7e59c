"""The stated bound of a product by the reference backend, from norms that splitting measured."""

from dataclasses import dataclass

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
