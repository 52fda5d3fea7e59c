"""Operands as residues: `kernels/residue_packing.cu`, which packs what `schemes.residues` says, bit
for bit.

An operand takes one launch where K is contiguous, unless a few rows are too long for shared memory,
or where it is taken for integers as they are; else three. A stack takes as many for each matrix.
"""

import struct
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from mixpert_py.runtime.arrays import PRECISION, GpuArray
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.compile import Definitions, cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing.operand import VECTOR, DevicePacked, Form, Layout, Operand, up
from mixpert_py.runtime.packing.readers import shared_memory
from mixpert_py.runtime.schemes.crt import CLIP, FEWEST, MOST, least_density
from mixpert_py.runtime.schemes.integers import Integers
from mixpert_py.runtime.schemes.residues import MODULI, of_complex
from mixpert_py.runtime.splitter import Residues

Side = Literal["left", "right", "both"]

FILE: Final = "residue_packing.cu"
TILE: Final = {"left": 256, "right": 192}  # rows, or columns, of a tile of C: packed ones are whole
PANEL, PANEL_THREADS = 32, 256  # rows that a block packs where K is not contiguous
CHUNK_STEPS = 8, 4  # of K, at most and at least, that such a block goes along
BLOCKS = 2048  # such blocks that fill a device
LONGEST: Final = 192 * 1024  # bytes of a row, as float64, that shared memory holds at most
MANY_ROWS, MOST_K = 256, 1 << 20  # longer rows: so many fill a device, and sums of so many hold
BESIDE = 2048  # bytes of it, or less, that a block takes besides
ROW_ITEM: Final = 8  # numbers of a row that a thread takes at a time
ROW_ITEMS = {1: 4, 2: 3}  # of a thread, or more, of real and of complex numbers
MOST_ROW_THREADS = 512
FIRST: Final = Residues(MODULI[:FEWEST])
LOOKED_ROWS, LOOK_THREADS = 4, 512  # of a block
ITEM_BYTES: Final = ROW_ITEM * 8
ROW_BYTES: Final = MOST_ROW_THREADS * ITEM_BYTES  # that threads hold an item each in
WORD_BITS, HIGHEST_BITS = 28, 31  # of an entry's integer in words; in the highest one, with a sign


def of_moduli(moduli: tuple[int, ...]) -> Definitions:
    """The constants with which all kernels of a scheme are compiled."""
    return ("COUNT", len(moduli)), ("MODULI", ", ".join(map(str, moduli)))


@lru_cache(maxsize=256)
def definitions(splitter: Residues, memory: str, *, recorded: bool = False) -> Definitions:
    """The constants for the packing kernels of an operand type.

    recorded: whether the kernels record what `schemes.crt` needs to know about rows.
    """
    words = 1
    more: Definitions = ()
    if isinstance(splitter, Integers):
        if splitter.are_digits:
            more = (("DIGIT_OFFSET", 128 if splitter.signed else 0),)
    else:
        # |x'| ≤ 2^L, and a bit for what is carried into the highest word.
        words = max(1, -(-int(splitter.bits + 1 - HIGHEST_BITS) // WORD_BITS) + 1)
        more = (("RECORD", 1), ("CLIP", CLIP)) if recorded else ()
    single = int(PRECISION[memory] == "float32")
    moduli = splitter.moduli
    if memory.startswith("complex"):
        moduli, more = of_complex(moduli), (*more, ("COMPLEX", 1))
    return *of_moduli(moduli), ("WORDS", words), ("SINGLE", single), *more


class ComplexForm(Form):
    """The form of a complex operand; only residues of it are packed. Strides count elements."""

    @property
    def itemsize(self) -> int:
        return 16 if self.memory == "complex128" else 8


def complex_operand(x: GpuArray, row_axis: int, k_axis: int) -> Operand:
    """A complex array of two or three dimensions as rows along K."""
    address, size = x.data.ptr, x.itemsize
    strides = [stride // size for stride in x.strides]
    batch, apart = (x.shape[0], strides[0]) if x.ndim == 3 and strides[0] else (1, 0)
    lengths, steps = (x.shape[row_axis], x.shape[k_axis]), (strides[row_axis], strides[k_axis])
    form = ComplexForm(x.dtype.name, batch, *lengths, apart, *steps, address % VECTOR == 0)
    return Operand(address, form, x.data.device_id, x)


def reals(form: Form) -> int:
    """The real numbers of an element."""
    return 2 if isinstance(form, ComplexForm) else 1


class Packing(NamedTuple):
    """The way to pack operands of a form: by one kernel for whole rows, or by three.

    bytes: the memory they need. largest, squares: where the three kernels store their findings for
    each chunk.
    """

    layout: Layout
    kernels: tuple[Kernel, ...]
    threads: int
    shared: int
    grid: int
    vectors: bool
    chunk_steps: int
    chunks: int
    largest: int
    squares: int
    bytes: int
    limit: int


def pack(
    x: Operand, splitter: Residues, side: Side, stream: Stream, record: int = 0
) -> DevicePacked:
    """An operand's residues, enqueued on a stream of the current device.

    Slices are (batch, rows8 / 64, count, steps, 64, 64) bytes, rows8 those of whole tiles, chunks
    as in `DevicePacked`; complex operands have two for each modulus, see `schemes.residues`. The
    scale of a row is the power of two that it was multiplied by, an int32. Flagged rows are
    NONFINITE, and zeros, or LARGE. record: the address of a `schemes.crt.Rows` and of the numbers
    that `integers.Bounds.of` takes, all of which are lowered to those of these rows; 0 for none.
    Complex operands are never taken for integers. Integers as they are need a record, have scales
    of 0, and no flags.
    """
    how = prepare(x.form, splitter, side, x.device, record != 0)
    place = how.layout
    memory = allocate(how.bytes, stream)
    start, size = memory.ptr, x.form.itemsize
    for matrix in range(place.batch):
        address = x.address + matrix * x.form.batch_stride * size
        slices = start + matrix * place.slices_stride
        scales = start + place.scales + matrix * place.scales_stride
        flags = start + place.flags + matrix * place.rows
        _launch(how, x.form, address, (slices, scales, flags), start, record, stream)
    found = start, start + place.scales, start + place.flags
    return DevicePacked(x, splitter, place, *found, 0, memory)


def look(a: Operand, b: Operand, records: tuple[int, int], stream: Stream, max_rows: int) -> None:
    """Enqueue that at most so many rows of each operand, spread evenly, are recorded as `pack`
    records all of them; rows that follow one with which no moduli are enough may not be. If both
    records are one, only A's rows are.
    """
    words: tuple[int, ...] = ()
    blocks = []
    for x, record in zip((a, b), records, strict=True):
        form = x.form
        rows = form.batch * form.rows
        strides = (reals(form) * s for s in (form.batch_stride, form.row_stride, form.k_stride))
        single = int(PRECISION[form.memory] == "float32")
        words += x.address, rows, form.rows, *strides, single, record
        blocks.append(-(-min(rows, max_rows) // LOOKED_ROWS))
    if records[0] == records[1]:
        blocks[1] = 0
    kernel = cuda_kernel(FILE, "look", definitions(FIRST, "float64", recorded=True))
    words += a.form.k * reals(a.form), reals(a.form) - 1, blocks[0], word(least_density(MOST))
    kernel.launch_words(sum(blocks), LOOK_THREADS, words, 0, stream)


def judge(
    count: int, records: tuple[int, int], answer: int, seen: int, stream: Stream, enough: int = 1
) -> None:
    """Enqueue that the int32 at the address `answer` becomes `enough` if so many moduli are enough
    for operands of these records, else 0, and that page-locked memory of the host, at the address
    `seen`, holds both records. Of fewer than FEWEST moduli, which somebody chose, only as many
    decimals are wanted as they have.
    """
    words = *records, word(least_density(max(count, FEWEST))), answer, seen, enough
    kernel = cuda_kernel(FILE, "judge", definitions(FIRST, "float64", recorded=True))
    kernel.launch_words(1, 32, words, 0, stream)


def _launch(
    how: Packing,
    form: Form,
    address: int,
    targets: tuple[int, int, int],
    start: int,
    record: int,
    stream: Stream,
) -> None:
    """Launch the packing of one matrix. targets: of its slices, scales and flags."""
    steps = how.layout.steps
    if how.chunks and len(how.kernels) == 1:
        strides = form.rows, form.k, form.row_stride, form.k_stride
        contiguous = int(form.k_stride == 1), int(how.vectors)
        whole = address, *targets, *strides, steps, how.chunk_steps, *contiguous, record
        how.kernels[0].launch_words(how.grid, how.threads, whole, 0, stream)
        return
    if len(how.kernels) == 1:
        lengths = form.rows, form.k, form.row_stride, steps, int(how.vectors)
        row_words = address, *targets, *lengths, how.limit, how.shared // ITEM_BYTES, record
        how.kernels[0].launch_words(how.grid, how.threads, row_words, how.shared, stream)
        return
    largest, squares = start + how.largest, start + how.squares
    along = form.rows, form.k, form.row_stride, form.k_stride, steps
    chunk_steps, chunks = how.chunk_steps, how.chunks
    last = chunk_steps, chunks, how.limit, record
    found: tuple[tuple[int, ...], ...] = (
        (address, largest, *along, chunk_steps),
        (address, largest, squares, *along, chunk_steps, chunks, record),
        (address, largest, squares, *targets, *along, *last),
    )
    for kernel, words in zip(how.kernels, found, strict=True):
        kernel.launch_words(how.grid, how.threads, words, 0, stream)


@lru_cache(maxsize=4096)
def prepare(
    form: Form, splitter: Residues, side: Side, device: int, recorded: bool = False
) -> Packing:
    """Compile the kernels that pack operands of a form on the current device, and return the way
    to pack.
    """
    longest = longest_row(device)
    its = sizes(form, splitter, side, longest)
    compiled = definitions(splitter, form.memory, recorded=recorded)
    is_whole = its.chunks == 0
    names = ["rows"] if is_whole else ["maxima", "sums", "columns"]
    if isinstance(splitter, Integers):
        names = ["integers"]
    shared = longest if is_whole else 0
    return its._replace(kernels=tuple(cuda_kernel(FILE, n, compiled, shared) for n in names))


@lru_cache(maxsize=64)
def longest_row(device: int) -> int:
    """Bytes of a row, as float64, up to which a block of a device holds it in shared memory."""
    return min(LONGEST, (shared_memory(device) - BESIDE) // ROW_BYTES * ROW_BYTES)


@lru_cache(maxsize=4096)
def sizes(form: Form, splitter: Residues, side: Side, longest: int) -> Packing:
    """As `prepare`, without kernels. longest: see `longest_row`."""
    place = layout(splitter, form, side)
    steps, limit = place.steps, word(splitter.limit(form.k * reals(form)))
    apart = (form.row_stride | form.batch_stride) * form.itemsize
    vectors = form.aligned and form.k_stride == 1 and apart % VECTOR == 0
    whole = isinstance(splitter, Integers)
    items, long_rows = steps * STEP * reals(form) // ROW_ITEM, form.k * reals(form) <= MOST_K
    fits = items * ITEM_BYTES <= longest or (form.rows >= MANY_ROWS and long_rows)
    if not whole and form.k_stride == 1 and fits:
        threads = min(max(64, 32 * -(-items // (32 * ROW_ITEMS[reals(form)]))), MOST_ROW_THREADS)
        each = threads * ITEM_BYTES
        shared = min(-(-items // threads), longest // each) * each
        row_launch = threads, shared, form.rows, vectors
        return Packing(place, (), *row_launch, 0, 0, 0, 0, place.bytes, limit)
    panels = -(-form.rows // PANEL)
    most, least = CHUNK_STEPS
    chunk_steps = min(max(least, panels * steps // BLOCKS), most)
    chunks = -(-steps // chunk_steps)
    if whole:
        launch = PANEL_THREADS, 0, panels * chunks, vectors
        return Packing(place, (), *launch, chunk_steps, chunks, 0, 0, place.bytes, limit)
    largest = up(place.bytes)
    squares = largest + up(8 * chunks * form.rows)
    end = squares + (8 + 3 * 4) * chunks * form.rows
    launch = PANEL_THREADS, 0, panels * chunks, False
    return Packing(place, (), *launch, chunk_steps, chunks, largest, squares, end, limit)


@lru_cache(maxsize=4096)
def layout(splitter: Residues, form: Form, side: Side) -> Layout:
    """The layout of an operand of this form."""
    batch, rows, k = form.batch, form.rows, form.k
    steps, count = -(-k // STEP), splitter.count
    if reals(form) == 2:
        count = 2 * len(of_complex(splitter.moduli))
    tiles = TILE.values() if side == "both" else (TILE[side],)
    rows8 = max(-(-rows // tile) * tile for tile in tiles)
    scales = up(batch * steps * count * rows8 * STEP)
    flags = up(scales + 4 * batch * rows)
    end = flags + batch * rows
    shape = batch, rows, rows8, k, k, 1, steps * STEP, steps, count, 1
    return Layout(*shape, scales, flags, end, end)


@lru_cache(64)
def word(number: float) -> int:
    """The 64-bit integer of the same bits as a float64."""
    return int(struct.unpack("q", struct.pack("d", number))[0])
