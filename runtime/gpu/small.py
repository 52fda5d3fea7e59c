"""Many small products in one launch: float32 operands in, C and flags out, no packed operands."""

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

from mixpert_py.runtime.gpu.gemm import chip as chip_of
from mixpert_py.runtime.gpu.gemm import constants
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.model.tile import HOPPER, Chip, Tile
from mixpert_py.runtime.packing import DevicePacked, Operand
from mixpert_py.runtime.packing.operand import VECTOR, Form, Layout, layout
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits, OutlierRule

FILE = "small_sm90.cu"
TILE = 128  # rows and columns of C of a thread block
COLUMNS = 32  # that a warpgroup multiplies at a time
MOST_SUMS = 3  # of products, by weight, that a thread has registers for
LONGEST = 256  # of K: what shared memory holds of a tile's digits
WIDEST = 256  # rows of A or columns of B: more tiles than 2 × 2 read their operands too often
WIDEST_STRIDE = 1 << 22  # so that offsets inside a tile fit 32 bits
LEAST_BATCH = 32  # products that keep a chip busy
TABLES = 8 * 1024  # bytes of shared memory beside the digits
WITHIN = 0.51  # that a first digit is off by, in its own units
FOUR = 4  # float32 of a load


def suits(
    a: Form,
    b: Form,
    scheme: Scheme,
    *,
    batch: int,
    chip: Chip,
    rule: OutlierRule = "loss",
    measure: bool = False,
) -> bool:
    """Whether `multiply_small` makes batch products of A and B, and is meant for their sizes.

    b: by its columns. scheme: with the block length in force.
    """
    return (
        chip.family is HOPPER
        and batch >= LEAST_BATCH
        and 0 < a.rows <= WIDEST
        and 0 < b.rows <= WIDEST
        and 0 < a.k <= LONGEST
        and can_multiply(a, b, scheme, rule, measure)
        and _shared(scheme, steps_of(a.k)) <= chip.shared
    )


def can_multiply(a: Form, b: Form, scheme: Scheme, rule: OutlierRule, measure: bool) -> bool:
    """Whether the kernel is made for such operands, whatever their sizes."""
    splitter = scheme.left
    return (
        isinstance(splitter, Digits)
        and splitter == scheme.right
        and splitter.width == 8
        and splitter.group == 1
        and splitter.count == splitter.digits
        and len(scheme.accumulators()) <= MOST_SUMS
        and scheme.lengths(a.k)[1] >= a.k
        and rule == "loss"
        and not measure
        and all(x.memory == "float32" for x in (a, b))
        and all(1 in (x.k_stride, x.row_stride) for x in (a, b))
        and all(abs(_stride(x)) <= WIDEST_STRIDE for x in (a, b))
    )


def multiply_if_small(
    a: Operand,
    b: Operand,
    scheme: Scheme,
    out: Any,
    *,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: Stream,
) -> tuple[DevicePacked, DevicePacked] | None:
    """As `multiply_small`, of a stack of products; None where they are not for it."""
    if not _suits(a.form, b.form, scheme, len(out), rule, measure, a.device):
        return None
    return multiply_small(a, b, scheme, out, stream=stream)


@lru_cache(4096)
def _suits(
    a: Form,
    b: Form,
    scheme: Scheme,
    batch: int,
    rule: OutlierRule,
    measure: bool,
    device: int,
) -> bool:
    chip = chip_of(device)
    return suits(a, b, scheme, batch=batch, chip=chip, rule=rule, measure=measure)


def multiply_small(
    a: Operand, b: Operand, scheme: Scheme, out: Any, *, stream: Stream = 0
) -> tuple[DevicePacked, DevicePacked]:
    """out = A·B under a scheme, as `pack` and `gemm` make it, bit for bit: one launch.

    a, b: what `suits`, or larger than that in rows; of as many products as out, or one that all
    share. out: (m, n) or (batch, m, n) float32 on the device, rows contiguous; it must not overlap
    the operands. Returns both operands with flags and nothing else: rows that are flagged are
    zeros in the product, until `repair` has added them. Does not wait for the device. Raises
    DeviceError where the kernel does not compile.
    """
    strides = out.strides
    batch, c_batch = (out.shape[0], strides[0] // 4) if out.ndim == 3 else (1, 0)
    how = _planned(a.form, b.form, scheme, batch, c_batch, strides[-2] // 4, out.data.device_id)
    memory = allocate(how.flag_bytes, stream)
    a_flags, b_flags = memory.ptr, memory.ptr + how.b_flags
    left, right = how.layouts
    left_words, right_words, rest = how.words
    words = (
        *(a.address, a_flags, *left_words),
        *(b.address, b_flags, *right_words),
        *(out.data.ptr, *rest),
    )
    how.kernel.launch_words(how.grid, how.threads, words, how.shared, stream)
    return (
        DevicePacked(a, scheme.left, left, 0, 0, a_flags, 0, 0, memory),
        DevicePacked(b, scheme.right, right, 0, 0, b_flags, 0, 0, memory),
    )


Words = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Launch(NamedTuple):
    """A launch, but for addresses. b_flags: bytes from A's flags to B's."""

    kernel: Kernel
    grid: int
    threads: int
    shared: int
    words: Words
    layouts: tuple[Layout, Layout]
    b_flags: int
    flag_bytes: int


@lru_cache(4096)
def _planned(
    a: Form, b: Form, scheme: Scheme, batch: int, c_batch: int, c_row: int, device: int
) -> Launch:
    steps = steps_of(a.k)
    shared = _shared(scheme, steps)
    across = _is_across(a), _is_across(b)
    definitions = definitions_of(scheme, steps, *across, _is_vector(a) and _is_vector(b))
    kernel = cuda_kernel(FILE, "small", definitions, shared)
    grid, words = launch_words(a, b, batch, c_batch, c_row, chip_of(device).multiprocessors)
    layouts = tuple(
        layout(splitter, x.batch, x.rows, x.k, x.k, False)
        for splitter, x in ((scheme.left, a), (scheme.right, b))
    )
    b_flags = -(-a.batch * a.rows // 256) * 256
    flag_bytes = b_flags + b.batch * b.rows
    sizes = b_flags, flag_bytes
    return Launch(kernel, grid, _threads(steps), shared, words, (layouts[0], layouts[1]), *sizes)


def launch_words(
    a: Form, b: Form, batch: int, c_batch: int, c_row: int, multiprocessors: int
) -> tuple[int, Words]:
    """Thread blocks, and `Problem` of the kernel but for addresses: A's words, B's, the rest."""
    down, along = -(-a.rows // TILE), -(-b.rows // TILE)
    left, right = ((x.batch_stride if x.batch > 1 else 0, _stride(x), x.rows, x.k) for x in (a, b))
    resident = multiprocessors * _blocks(steps_of(a.k))
    return batch * down * along, (left, right, (c_batch, c_row, down, along, resident))


@cache
def definitions_of(
    scheme: Scheme, steps: int, a_across: bool, b_across: bool, vector: bool
) -> tuple[tuple[str, int | str], ...]:
    """What the kernel is compiled with."""
    splitter = scheme.left
    assert isinstance(splitter, Digits)
    tile = Tile(TILE, COLUMNS, 1, _shared(scheme, steps), False)
    lower = splitter.lower_limit if splitter.count > 1 else math.inf
    ruled = lower < math.inf
    return (
        *constants(scheme, tile, wide=False, steps_per_block=steps),
        ("STEPS", steps),
        ("A_ACROSS", int(a_across)),
        ("B_ACROSS", int(b_across)),
        ("VECTOR", int(vector)),
        ("FITTED", int(splitter.fitted)),
        ("LOWER", repr(lower * 4.0**-splitter.shift) if ruled else "0.0"),
        ("SAFE", safe_squares(lower) if ruled else 0),
    )


def safe_squares(lower_limit: float) -> int:
    """Sum of a row's squared first digits from which on no other digit can crowd it.

    Σ d_p² ≤ 2^14 · K, so crowded rows have a 2-norm below 2^7 · √(2^14 / lower_limit) in units of
    the first digit, and first digits are within WITHIN of what they round.
    """
    radius = 2.0**7 * math.sqrt(2.0**14 / lower_limit) + WITHIN * math.sqrt(LONGEST)
    return math.ceil(radius * radius)


def steps_of(k: int) -> int:
    """Of 64 positions of K, as the kernel is made for: 1, 2 or 4."""
    return 1 << (-(-k // STEP) - 1).bit_length()


def _shared(scheme: Scheme, steps: int) -> int:
    """Bytes of shared memory."""
    splitter = scheme.left
    return steps * 2 * splitter.count * TILE * STEP + TABLES


def _threads(steps: int) -> int:
    """Of a block, as the kernel has it."""
    return 256 if steps == 1 else 512


def _blocks(steps: int) -> int:
    """To a multiprocessor, as the kernel's launch bounds say."""
    return {1: 3, 2: 2, 4: 1}[steps]


def _is_across(x: Form) -> bool:
    return x.k_stride != 1


def _stride(x: Form) -> int:
    """Of the direction that is not contiguous."""
    return x.k_stride if _is_across(x) else x.row_stride


def _is_vector(x: Form) -> bool:
    """Whether all groups of four neighbours are aligned, and whole."""
    length = x.rows if _is_across(x) else x.k
    starts = _stride(x) | (x.batch_stride if x.batch > 1 else 0)
    return x.aligned and length % FOUR == 0 and starts * x.itemsize % VECTOR == 0
