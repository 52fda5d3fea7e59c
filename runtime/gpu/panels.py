"""The height of the row panels in which NumPy arrays are moved and multiplied."""

from collections.abc import Iterator

import numpy as np

from mixpert_py.runtime.gpu.moves import same
from mixpert_py.runtime.request import Array

# Of a panel of A, or of C. On an H200, 16 cores a process, int8x6 of 16384³ float32: half as much
# takes 3 % longer, a quarter 28 %, since fewer rows are multiplied at less speed.
PANEL_BYTES = 1 << 27
AHEAD = 2  # strips of A on their way: with one, copiers wait at the end of each
RESULTS = 3  # panels of C: computed, computed before, on its way back
GRANULE = 128  # rows; a panel has a multiple of it
RUN_BYTES = 1 << 14  # contiguous: shorter ones are copied at a fraction of the speed


def places(length: int, height: int) -> Iterator[slice]:
    """The row ranges of the panels for this number of rows."""
    return (slice(start, start + height) for start in range(0, length, height))


def panel_rows(m: int, length: int, itemsize: int) -> int:
    """The rows of a panel: PANEL_BYTES of the longer of a row of A and a row of C."""
    rows = PANEL_BYTES // (length * itemsize) // GRANULE * GRANULE
    return min(max(rows, GRANULE), -(-m // GRANULE) * GRANULE)


def strip_rows(a: Array, height: int) -> int:
    """The rows of A that are moved at once: a panel, or more if A's columns are contiguous,
    because short runs of rows take the host longer.
    """
    if height >= len(a) or abs(a.strides[0]) >= abs(a.strides[1]):
        return height
    return max(RUN_BYTES // a.itemsize // height, 1) * height


def height(a: Array, b: Array) -> int:
    """The rows of a panel."""
    (m, k), n, dtype = a.shape, b.shape[1], np.result_type(a, b)
    moves = same(a, b, b) is None  # else it is B that does, and there are no panels of A
    return panel_rows(m, max(k, n) if moves else n, dtype.itemsize)
