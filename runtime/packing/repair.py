"""After a product, on the device: rows and columns with NaN or Inf, and outliers."""

import struct
from functools import cache, lru_cache
from typing import Any

from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.packing.device_packed import DevicePacked
from mixpert_py.runtime.packing.operand import Form

KERNELS = "mixpert_py.runtime.packing.repair_kernels"
LINES = 2048  # rows of A, or columns of B, of a tile of work
COLUMNS = 64  # of C, where a tile is of rows
THREADS = 256
RESIDENT = 2  # thread blocks to a multiprocessor
MOST_FLAGS = 1 << 16  # that every block looks at: 64 KiB, of the L2 cache
WIDE = 16  # bytes of a load


def repair(
    left: DevicePacked,
    right: DevicePacked,
    scheme: Any,
    out: Any,
    *,
    alpha: float = 1.0,
    stream: int = 0,
) -> None:
    """Adds to out = alpha · A·B + …, as the GEMM left it, what packing took out of the slices.

    out: (m, n) or (batch, m, n) float32 or float64 on the device, rows contiguous. Rows of A and
    columns of B with NaN or Inf are zero in the slices: all of A·B is added there, so NaN and Inf
    reach what they reach natively. Elsewhere the outliers of A times B are added, then the rest of
    A times the outliers of B. Sums are in out's precision, plain chains of K over 4 or 32 threads,
    added in a fixed order: more accurate than a half-precision product of the outliers, which the
    reference backend adds, and needs neither a second packing nor the host. Always one launch,
    which ends at once where nothing is flagged. Does not wait for the device.
    """
    import cupy

    a, b = left.operand, right.operand
    size, strides = out.itemsize, out.strides
    batch, c_batch = (out.shape[0], strides[0] // size) if out.ndim == 3 else (1, 0)
    if batch == 0:
        return
    a_flags, b_flags = left.flags, right.flags
    how = left.layout.block, batch, c_batch, strides[-2] // size
    aligned = (a_flags | b_flags) % WIDE == 0
    kernel, blocks = _kernel(a.memory, b.memory, size, cupy.cuda.runtime.getDevice())
    grid, lengths, rest = words(a.form, b.form, *how, blocks if aligned else 0)
    kernel.launch_words(
        grid,
        THREADS,
        (
            *(a.address, b.address, out.data.ptr),
            *(a_flags, b_flags, a_flags, b_flags, left.outliers, right.outliers),
            *lengths,
            _bits(alpha),
            *rest,
        ),
        0,
        stream,
    )


@lru_cache(4096)
def words(
    a: Form, b: Form, block: int, batch: int, c_batch: int, c_row: int, most: int
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Thread blocks, and the integers that the kernel takes, before and after alpha.

    most: thread blocks that may all look at the flags of one product; 0 if none may.
    """
    m, n, k = a.rows, b.rows, a.k
    a_tiles = -(-m // LINES) * -(-n // COLUMNS)
    tiles = a_tiles + -(-n // LINES) * -(-m // COLUMNS)
    # One matrix may be shared by all products, wherever a next one would lie.
    (a_batch, a_marks), (b_batch, b_marks) = (
        (x.batch_stride, x.rows) if x.batch > 1 else (0, 0) for x in (a, b)
    )
    look = most > 0 and m + n <= MOST_FLAGS
    products = -(-batch // most) if look else 1
    owners = -(-batch // products)
    share = min(tiles, max(most // owners, 1)) if look else tiles
    rest = (
        *(a_batch, a.row_stride, a.k_stride, a_marks),
        *(b_batch, b.row_stride, b.k_stride, b_marks),
        *(c_batch, c_row),
        *(a_tiles, tiles, parts_log(a), parts_log(b)),
        *(batch, products, share, int(look)),
    )
    return owners * share, (m, n, k, block, -(-k // block)), rest


def parts_log(x: Form) -> int:
    """Threads to a sum: a warp where K is the nearest direction, else a few."""
    return 5 if abs(x.k_stride) < abs(x.row_stride) else 2


@cache
def _kernel(left: str, right: str, size: int, device: int) -> tuple[Kernel, int]:
    """The kernel for the current device, and how many of its blocks share the tiles of a product.

    size: bytes of an element of the result.
    """
    import cupy

    result = "float32" if size == 4 else "float64"
    its = cupy.cuda.Device(device).attributes
    kernel = numba_kernel(KERNELS, "repair_kernel", (left, right, result))
    return kernel, RESIDENT * its["MultiProcessorCount"]


@lru_cache(64)
def _bits(alpha: float) -> int:
    """A float64 as the 64-bit integer of the same bits."""
    return int(struct.unpack("q", struct.pack("d", alpha))[0])
