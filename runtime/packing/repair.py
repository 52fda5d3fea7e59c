"""Adding to a product, on the device, what rows and columns with NaN, Inf or outliers lack."""

from functools import lru_cache
from typing import NamedTuple, Protocol

from mixpert_py.runtime.arrays import DeviceArray, DeviceMemory
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream
from mixpert_py.runtime.packing.operand import DevicePacked, Form

KERNELS = "mixpert_py.runtime.packing.repair_kernels"
LINES = 2048  # rows of A, or columns of B, that a tile of work has
SOME_LINES = 512  # as many where all flags are read first: then more tiles cost nothing
COLUMNS = 64  # columns of C that a tile of rows has
THREADS = 256  # threads of a block
RESIDENT = 2  # thread blocks that a multiprocessor holds
MOST_FLAGS = 1 << 16  # flags that every block reads: 64 KiB of the L2 cache
WIDE = 16  # bytes of a load


class Guarded(Protocol):
    """Operands that are packed anew, for other slices, where a word on the device is not 0."""

    @property
    def word(self) -> DeviceMemory: ...
    @property
    def left(self) -> DevicePacked: ...
    @property
    def right(self) -> DevicePacked: ...


def repair(
    left: DevicePacked,
    right: DevicePacked,
    out: DeviceArray,
    *,
    stream: Stream = 0,
    guard: Guarded | None = None,
) -> None:
    """Adds to out = A·B, as the GEMM left it, the entries that packing took out of the slices.

    out: (m, n) or (batch, m, n) float32 or float64 on the device, rows contiguous. Rows of A and
    columns of B with NaN or Inf are zero in the slices: all of A·B is added there, so NaN and Inf
    reach what they reach natively. Elsewhere the outliers of A times B are added, then the rest of
    A times the outliers of B. Sums are in out's precision, chains of K of fixed lengths, added in a
    fixed order: more accurate than a half-precision product of the outliers, which the reference
    backend adds, and needs neither a second packing nor the host. Always one launch, which ends at
    once where nothing is flagged. guard: if its word is not 0 the flags of its operands count; K is
    one block then. Elements of large rows and columns that are not finite are made again. Does not
    wait for the device.
    """
    a, b = left.operand, right.operand
    a_flags, b_flags = left.flags, right.flags
    others, word = (a_flags, b_flags), 0
    if guard is not None:
        others, word = (guard.left.flags, guard.right.flags), guard.word.ptr
    memory, shape = out.data, out.shape
    symmetric = left.slices == right.slices
    if 0 in shape:
        return
    aligned = (a_flags | b_flags | others[0] | others[1]) % WIDE == 0
    device, block = memory.device_id, left.layout.block
    result = ResultForm(shape, out.strides, out.itemsize)
    how = _prepared_repair((a.form, b.form), block, result, symmetric, aligned, device)
    values = (
        *(a.address, b.address, memory.ptr),
        *(a_flags, b_flags, a_flags, b_flags, left.outliers, right.outliers),
        *(*others, *others, word, int(word != 0)),
        *how.words,
    )
    how.kernel.launch_words(how.grid, THREADS, values, 0, stream)


class ResultForm(NamedTuple):
    """C but for its address: its shape, its strides in bytes, and the bytes of an element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class RepairLaunch(NamedTuple):
    """A launch of the repair kernel but for addresses."""

    kernel: Kernel
    grid: int
    words: tuple[int, ...]


def repair_kernel(a: Form, b: Form, itemsize: int) -> Kernel:
    """The kernel for operands of such types, and a result of elements of so many bytes."""
    result = "float32" if itemsize == 4 else "float64"
    return numba_kernel(KERNELS, "repair_kernel", (a.memory, b.memory, result))


@lru_cache(4096)
def _prepared_repair(
    forms: tuple[Form, Form],
    block: int,
    c: ResultForm,
    symmetric: bool,
    aligned: bool,
    device: int,
) -> RepairLaunch:
    """The launch on this device, which is the current one. aligned: whether flags can be read WIDE
    bytes at a time.
    """
    import cupy

    size, (a, b) = c.itemsize, forms
    kernel = repair_kernel(a, b, size)
    batch, c_batch = (c.shape[0], c.strides[0] // size) if len(c.shape) == 3 else (1, 0)
    # How many blocks share the tiles of a product.
    most = RESIDENT * cupy.cuda.Device(device).attributes["MultiProcessorCount"] * aligned
    strides = c_batch, c.strides[-2] // size
    return RepairLaunch(kernel, *words(forms, block, batch, strides, most, symmetric=symmetric))


def words(
    forms: tuple[Form, Form],
    block: int,
    batch: int,
    strides: tuple[int, int],
    most: int,
    *,
    symmetric: bool = False,
) -> tuple[int, tuple[int, ...]]:
    """The number of thread blocks, and the integers that the kernel takes after the addresses.

    strides: from one product's C to the next's, and from row to row. most: thread blocks that may
    all read the flags of one product; 0 if none may. symmetric: whether C is: then there are no
    tiles of columns, and rows are mirrored.
    """
    a, b = forms
    m, n, k = a.rows, b.rows, a.k
    look = most > 0 and m + n <= MOST_FLAGS
    lines = SOME_LINES if look else LINES
    a_tiles = -(-m // lines) * -(-n // COLUMNS)
    tiles = a_tiles + (0 if symmetric else -(-n // lines) * -(-m // COLUMNS))
    # One matrix may be shared by all products, wherever a next one would lie.
    (a_batch, a_marks), (b_batch, b_marks) = (
        (x.batch_stride, x.rows) if x.batch > 1 else (0, 0) for x in (a, b)
    )
    products = -(-batch // most) if look else 1
    owners = -(-batch // products)
    share = min(tiles, max(most // owners, 1)) if look else tiles
    rest = (
        *(a_batch, a.row_stride, a.k_stride, a_marks),
        *(b_batch, b.row_stride, b.k_stride, b_marks),
        *strides,
        *(lines, a_tiles, tiles, int(along(a)), int(along(b))),
        *(batch, products, share, int(look)),
    )
    return owners * share, (m, n, k, block, -(-k // block), *rest)


def along(x: Form) -> bool:
    """Whether K is the nearest direction, or the only one: threads lie along it."""
    return x.rows == 1 or abs(x.k_stride) < abs(x.row_stride)
