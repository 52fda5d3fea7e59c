"""Crest factors of rows: the largest magnitude over the root mean square of what is not zero.

Normal data has about 4 over thousands of entries, uniform data √3. Digits in one unit for a row
lose in proportion to it, but zeros lose nothing; a row that is ruled by one entry, like those of a
triangular inverse, has one near √K. A few rows say enough: what leaves the slices is decided row by
row anyway.
"""

from typing import Any

import numpy as np

from mixpert_py.runtime.call import Array

LINES = 64  # rows that are looked at, evenly spaced
LONGEST = 1 << 14  # entries of a row, likewise


def mean_square(x: Array) -> float:
    """Of the crest factors of the rows of a NumPy array (…, rows, k); 0 if it is empty.

    Complex entries are taken by their moduli; rows of zeros, and with NaN or Inf, count as 0.
    """
    count = int(np.prod(x.shape[:-1]))
    if x.size == 0:
        return 0.0
    rows = np.unravel_index(lines(count), x.shape[:-1])
    part = abs(x[..., :: stride(x.shape[-1])][rows]).astype(np.float64)
    with np.errstate(all="ignore"):
        power = (part * part).sum(axis=-1)
        squares = np.count_nonzero(part, axis=-1) * part.max(axis=-1) ** 2 / power
    return mean(squares.tolist())


def mean(squares: list[float]) -> float:
    """Of the squares of rows; what is not finite counts as 0."""
    return sum(one for one in squares if np.isfinite(one)) / len(squares)


def lines(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which of so many rows are looked at."""
    number = min(count, LINES)
    return np.arange(number, dtype=np.int64) * count // number


def stride(k: int) -> int:
    """From one entry of a row to the next that is looked at."""
    return -(-k // LONGEST)
