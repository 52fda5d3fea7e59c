"""Panels of rows, in which products of NumPy arrays are moved and made: how high they are."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.gpu import slices
from mixpert_py.runtime.gpu.guard import wider_of
from mixpert_py.runtime.gpu.moves import same
from mixpert_py.runtime.gpu.workspace import array_bytes
from mixpert_py.runtime.packing import pooled
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.request import Array
from mixpert_py.runtime.scheme import Scheme

# Of a panel of A, or of C. On an H200, 16 cores a process, int8x6 of 16384³ float32: half as much
# takes 3 % longer, a quarter 28 %, since fewer rows are multiplied at less speed.
PANEL_BYTES = 1 << 27
AHEAD = 2  # strips of A on their way: with one, copiers wait at the end of each
RESULTS = 3  # panels of C: computed, computed before, on its way back
GRANULE = 128  # rows; a panel has a multiple of it
RUN_BYTES = 1 << 14  # contiguous: shorter ones are copied at a fraction of the speed


def places(length: int, height: int) -> Iterator[slice]:
    """Of so many rows, those of each panel."""
    return (slice(start, start + height) for start in range(0, length, height))


def panel_rows(m: int, length: int, itemsize: int) -> int:
    """Rows of a panel: PANEL_BYTES of the longer of a row of A and one of C."""
    rows = PANEL_BYTES // (length * itemsize) // GRANULE * GRANULE
    return min(max(rows, GRANULE), -(-m // GRANULE) * GRANULE)


def strip_rows(a: Array, height: int) -> int:
    """Rows of A that are moved at once: a panel; more where A's columns are contiguous, of which
    rows are short runs, which take the host longer.
    """
    if height >= len(a) or abs(a.strides[0]) >= abs(a.strides[1]):
        return height
    return max(RUN_BYTES // a.itemsize // height, 1) * height


def height(xp: ModuleType, a: Array, b: Array, scheme: Scheme, limit: int | None) -> int:
    """Rows of a panel. Raises WorkspaceError where even the lowest takes more than the limit."""
    (m, k), n, dtype = a.shape, b.shape[1], np.result_type(a, b)
    moves = same(a, b, b) is None  # else it is B that does, and there are no panels of A
    rows = panel_rows(m, max(k, n) if moves else n, dtype.itemsize)
    if limit is None:
        return rows
    device = xp.cuda.runtime.getDevice()
    while moved_bytes(rows, m, k, n, dtype, scheme, device) > limit:
        if rows == GRANULE:
            raise slices.WorkspaceError
        rows = -(-rows // 2 // GRANULE) * GRANULE
    return rows


def moved_bytes(
    height: int, m: int, k: int, n: int, dtype: np.dtype[Any], scheme: Scheme, device: int
) -> int:
    """What A (m, k) times B takes of the device in panels of so many rows: B, as it is and packed,
    some panels of A and of C, and what a product takes. See `workspace`.
    """
    needs = slices.cuda_kernels().needs
    a, b, c = (np.broadcast_to(dtype.type(), shape) for shape in ((height, k), (k, n), (height, n)))
    whole = dtype.kind == "c"
    real, batch = np.dtype(f"f{dtype.itemsize // (1 + whole)}").name, 1 + whole
    rows = Form(real, batch, height, k, height * k, k, 1, True)
    columns = Form(real, batch, n, k, k * n, 1, n, True)
    parts = b.size * dtype.itemsize if whole else 0
    product = needs(
        *(rows, columns, scheme, real, batch * batch, height, n, device),
        kept=(False, True),
        wider=wider_of(scheme, a, b),
    )
    product += array_bytes(scheme.name, a, b, c, None, True)
    right = needs(rows, columns, scheme, real, batch, height, n, device, kept=(True, False))
    right += pooled(parts)
    its, ours, result = (pooled(x.size * dtype.itemsize) for x in (b, a, c))
    count = -(-m // height)
    return its + right + product + min(AHEAD + 1, count) * ours + min(RESULTS, count) * result
