"""A split operand of the reference backend, and the rows and tiles that leave its slices.

A packed operand has slices laid out for the engine, and their exponents. Rows and tiles whose
entries differ too much in size for one exponent are outliers. They are multiplied in the result's
own precision, and added in a fixed order: A's outliers times all of B, then the rest of A times B's
outliers.
"""

from dataclasses import dataclass

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.splitter import Digits

PANEL_ELEMENTS = 1 << 16  # of an operand, split at a time: they stay in a core's cache
SAFE_EXPONENT = 60  # factors up to 2^60 keep every intermediate of a float32 sum normal


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A (m, k) by rows, or B (k, n) by columns; `rows` below means either.

    slices: (chunks, rows, count, chunk) float32, residues as integers: a row's slices of one chunk
    of K side by side, the highest first, or last where packed in reverse. K is padded with zeros.
    exponents: (rows, blocks) int32, significands: (rows, blocks) float32, multiples of 2^-8 in
    [1/2, 1.01): slices over block t carry significands[:, t] · 2^exponents[:, t].
    outlier: (rows, blocks) bool, and nonfinite: (rows,) bool, left out of the slices.
    """

    slices: Array
    exponents: Array
    significands: Array
    outlier: Array
    nonfinite: Array


def panels(rows: int, k: int, group: int = 1) -> list[slice]:
    """Rows in panels of about PANEL_ELEMENTS, each a multiple of `group` rows."""
    height = max(1, PANEL_ELEMENTS // max(k, 1) // group) * group
    return [slice(start, min(start + height, rows)) for start in range(0, rows, height)]


def padded(x: Array, rows: slice, k: int) -> Array:
    """A contiguous copy of some rows of x in native byte order, K padded with zeros to k."""
    panel = np.empty((rows.stop - rows.start, k), x.dtype.newbyteorder("="))
    panel[:, : x.shape[1]] = x[rows]
    panel[:, x.shape[1] :] = 0
    return panel


def times_power_of_two(x: Array, *exponents: Array) -> Array:
    """x · 2^Σ exponents in place, rounded at most once whatever the single factors; returns x.

    exponents: int32, each broadcastable to x. Where no intermediate value can leave the normal
    range the factors are multiplied one by one: exact, and much faster than ldexp.
    """
    if all(np.abs(exponent).max(initial=0) <= SAFE_EXPONENT for exponent in exponents):
        for exponent in exponents:
            if exponent.any():
                x *= np.ldexp(x.dtype.type(1), exponent)
        return x
    total = exponents[0]
    for exponent in exponents[1:]:
        total = total + exponent
    return np.ldexp(x, total, out=x)


@dataclass(frozen=True, slots=True)
class Outliers:
    """Rows of A, columns of B that left the slices wholly or in part; their share of all blocks."""

    rows: int
    columns: int
    fraction: float

    @classmethod
    def count(cls, left: Array, right: Array) -> "Outliers":
        blocks = int(left.sum()) + int(right.sum())
        return cls(
            int(left.any(axis=1).sum()),
            int(right.any(axis=1).sum()),
            blocks / max(left.size + right.size, 1),
        )


def lossy(norm: Array, loss: Array, exponents: Array, splitter: Digits) -> Array:
    """Rows, or tiles of a group of rows, that lose more than `splitter.loss_limit` of their 2-norm.

    norm, loss: sums of squares (rows, blocks) in units of 4^exponent. Returns (rows, blocks) bool.
    """
    limit = splitter.loss_limit**2
    if splitter.group > 1:
        starts = np.arange(0, len(norm), splitter.group)
        norm, loss = (np.add.reduceat(part, starts, axis=0) for part in (norm, loss))
        flags: Array = np.repeat(loss > limit * norm, splitter.group, axis=0)[: len(exponents)]
        return flags
    norm, loss = _per_row(norm, exponents), _per_row(loss, exponents)
    return np.broadcast_to((loss > limit * norm)[:, None], exponents.shape)


def crowded(norm: Array, lower: Array, exponents: Array, splitter: Digits, k: int) -> Array:
    """Rows with a digit past the first whose mean square over K exceeds
    lower_limit · (‖row‖ / largest)², the largest entry taken as all the digits hold.

    norm: sums of squares (rows, blocks) in units of 4^(exponent − shift); lower: (digits, rows,
    blocks) of digits 1, 2, … in units of 4^exponent. Returns (rows, blocks) bool.

    In rows and columns that stay, ‖A_p‖ ≤ √(lower_limit · K) · 2^(−7 − 8 p) · ‖A‖: that bounds the
    terms that a scheme drops. No digit's mean square exceeds 2^14, and where digits are random it
    is a third of that: what leaves is ruled by a few entries, and the rest of it has large digits.
    """
    allowed = splitter.lower_limit * k * 4.0**-splitter.shift * _per_row(norm, exponents)
    flags = np.any([_per_row(digit, exponents) > allowed for digit in lower], axis=0)
    return np.broadcast_to(flags[:, None], exponents.shape)


def _per_row(squares: Array, exponents: Array) -> Array:
    """Sums over a row's blocks, in units of 4^exponent of the block that has the largest."""
    weight = 2 * (exponents - exponents.max(axis=1, keepdims=True))
    total: Array = np.ldexp(squares, weight).sum(axis=1)
    return total


def outlier_part(x: Array, outlier: Array, block: int) -> tuple[Array, Array]:
    """The rows of x that hold outliers, everything else in them zero; and their indices."""
    rows = np.flatnonzero(outlier.any(axis=1))
    return np.where(_spread(outlier[rows], block, x.shape[1]), x[rows], 0), rows


def kept_part(x: Array, outlier: Array, block: int) -> Array:
    """x with its outliers set to zero; x itself where it has none."""
    if not outlier.any():
        return x
    return np.where(_spread(outlier, block, x.shape[1]), 0, x)


def _spread(outlier: Array, block: int, k: int) -> Array:
    return np.repeat(outlier, block, axis=1)[:, :k]
