"""A split operand: slices laid out for the engine, exponents, and what splitting lost."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PANEL_ELEMENTS = 1 << 16  # of an operand, split at a time: they stay in a core's cache
SAFE_EXPONENT = 60  # factors up to 2^60 keep every intermediate of a float32 sum normal


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """2-norms per row of A, or column of B: of what was to be split, and of what became of it."""

    norm: Array  # (rows,)
    slices: Array  # (count, rows), each slice by its value
    residual: Array  # (rows,)


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
    measured: Measured
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
