"""What local errors are measured on, and by."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime.request import Array

GROUP = 32  # rows or columns that stay together: every scheme's exponents span a part of it
MOST = 512  # rows of A and columns of B
MOST_STACKED = 8  # matrices of a stack


def sampled(a: Array, b: Array) -> tuple[Array, Array]:
    """Operands of the same K and structure, small enough for every scheme to be tried."""
    if a.ndim > 1 and a.shape[-2] > MOST:
        a = a[..., _spread(a.shape[-2]), :]
    if b.ndim > 1 and b.shape[-1] > MOST:
        b = b[..., _spread(b.shape[-1])]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(stack)
    if count > MOST_STACKED:
        picked = np.unravel_index(np.linspace(0, count - 1, MOST_STACKED, dtype=int), stack)
        a, b = (
            np.broadcast_to(x, stack + x.shape[-2:])[picked] if x.ndim > 1 else x for x in (a, b)
        )
    return a, b


def _spread(length: int) -> npt.NDArray[np.intp]:
    """Indices of MOST / GROUP whole groups, the first to the last, each where a tile begins."""
    groups = np.linspace(0, length // GROUP - 1, MOST // GROUP, dtype=int)
    return (groups[:, np.newaxis] * GROUP + np.arange(GROUP)).ravel()


def relative(exact: Any, approximate: Any) -> float:
    exact, approximate = np.asarray(exact), np.asarray(approximate)
    finite = np.isfinite(exact)
    if not np.array_equal(exact[~finite], approximate[~finite], equal_nan=True):
        return float("nan")
    exact, approximate = exact[finite], approximate[finite]
    scale = np.max(np.abs(exact), initial=0.0)
    if scale == 0.0:
        return 0.0 if not np.any(approximate) else float("inf")
    # Scaled first: squares of elements near the ends of float64's range are out of it.
    difference = np.linalg.norm((exact - approximate) / scale)
    return float(difference / np.linalg.norm(exact / scale))
