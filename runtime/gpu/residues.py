"""Products by the remainder theorem on Hopper: pack operands modulo p_1 … p_N, multiply, combine.

The steps are `kernels/residue_packing.cu`, of either operand one launch where K is contiguous and
three where it is not, `residue_gemm.cu`, N products of INT8 in one launch, and `residue_result.cu`.
What they compute, bit for bit, is in `schemes.residues`.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing.operand import VECTOR, Form, Operand, by_columns, by_rows, up
from mixpert_py.runtime.remainders import theorem
from mixpert_py.runtime.splitter import Residues

GEMM: Final = "residue_gemm.cu"
PACKING: Final = "residue_packing.cu"
RESULT: Final = "residue_result.cu"
GROUP = 8  # rows of tiles that blocks take together
GEMM_THREADS: Final = 384
RESULT_THREADS: Final = 128
UNIT_COLUMNS: Final = 32  # of 64 rows, which a block of the result's kernel makes
PANEL, PANEL_THREADS = 32, 256  # rows that a block packs where K is not contiguous
CHUNK_STEPS = 16  # of K, at most, that such a block goes along
BLOCKS = 2048  # such blocks that fill a device
LONGEST: Final = 192 * 1024  # bytes of a row that a block holds in shared memory, as float64
ROW_ITEM: Final = 8  # entries of a row that a thread takes at a time
DEPTH = 4  # items of a thread, or more
MOST_MODULI: Final = 16  # of these kernels


class Tile(NamedTuple):
    """m × n of C by two warpgroups, through a ring of `stages` steps of both operands.

    cluster: blocks, of tiles below each other, that share what they read of B.
    """

    m: int
    n: int
    stages: int
    cluster: int = 1

    @property
    def shared(self) -> int:
        return self.stages * (self.m + self.n) * STEP


TILES: Final = Tile(128, 256, 9), Tile(256, 192, 8), Tile(128, 256, 9, 2), Tile(256, 192, 8, 2)

Definitions = tuple[tuple[str, int | str], ...]


def _list(values: Any) -> str:
    return ", ".join(str(value) for value in values)


@lru_cache(maxsize=64)
def of_moduli(moduli: tuple[int, ...]) -> Definitions:
    """What all kernels of a scheme are compiled with."""
    return ("COUNT", len(moduli)), ("MODULI", _list(moduli))


@lru_cache(maxsize=64)
def of_packing(moduli: tuple[int, ...], memory: str) -> Definitions:
    """WORDS: of 28 bits, but for the highest, in which an entry's integer fits."""
    # |x'| ≤ 2^L; the highest word is below 2^31, with a bit for what is carried into it.
    words = max(1, -(-int(Residues(moduli).bits + 1 - 31) // 28) + 1)
    return *of_moduli(moduli), ("WORDS", words), ("SINGLE", int(memory == "float32"))


@lru_cache(maxsize=64)
def of_result(moduli: tuple[int, ...], tile: Tile, result: str) -> Definitions:
    """The theorem's numbers, as `residues.cuh` has them."""
    known = theorem(moduli)
    parts = len(known.units)
    weights = [[256.0 * part for part in row] for row in known.weights]
    starts = []
    for j in range(parts):
        start = -sum(
            int(row[j]) * (256 + p // 2) for row, p in zip(known.weights, moduli, strict=True)
        )
        assert float(start) == start
        starts.append(float(start))
    rows = _list("{" + _list(x.hex() for x in row) + "}" for row in weights)
    product = sum(int(part) for part in known.product)
    return (
        *of_moduli(moduli),
        ("PARTS", parts),
        ("WEIGHTS", rows),
        ("STARTS", _list(x.hex() for x in starts)),
        ("PRODUCT", _list(x.hex() for x in known.product)),
        ("PART_UNITS", _list(x.hex() for x in known.units)),
        ("INVERSE", (1 / product).hex()),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("SINGLE", int(result == "float32")),
    )


def of_gemm(moduli: tuple[int, ...], tile: Tile) -> Definitions:
    return (
        *of_moduli(moduli),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("STAGES", tile.stages),
        ("CLUSTER", tile.cluster),
    )


class Packed(NamedTuple):
    """An operand's residues on the device. padded: rows of whole tiles."""

    operand: Operand
    residues: int
    scales: int
    flags: int
    padded: int
    steps: int
    owner: Any


def multiply(
    a: Any,
    b: Any,
    moduli: tuple[int, ...],
    out: Any,
    stream: Stream,
    tile: Tile | None = None,
    marks: Any = None,
) -> tuple[Packed, Packed]:
    """out = A·B, enqueued on a stream of the current device. marks: called after each step."""
    x, y = by_rows(a), by_columns(b)
    m, n = out.shape
    tile = tile or best_tile(m, n, len(moduli))
    left = pack(x, moduli, tile.m * tile.cluster, stream)
    right = pack(y, moduli, tile.n, stream)
    if marks:
        marks()
    products = _products(left, right, moduli, tile, stream)
    if marks:
        marks()
    _combine(left, right, products, moduli, tile, out, stream)
    if marks:
        marks()
    return left, right


def best_tile(m: int, n: int, count: int, multiprocessors: int = 132) -> Tile:
    """The tile with which the last wave is soonest done, if all waves take as long as the sums."""

    def waves(tile: Tile) -> float:
        tiles = -(-m // tile.m) * -(-n // tile.n) * count
        return -(-tiles // multiprocessors) * tile.m * tile.n

    return min(TILES[:2], key=waves)


def pack(x: Operand, moduli: tuple[int, ...], multiple: int, stream: Stream) -> Packed:
    """An operand's residues. multiple: of which its padded rows are one."""
    form = x.form
    rows, k = form.rows, form.k
    padded, steps = -(-rows // multiple) * multiple, -(-k // STEP)
    how = _packing(form, moduli, steps)
    scales = up(len(moduli) * steps * padded * STEP)
    flags = scales + up(4 * rows)
    largest = flags + up(rows)
    squares = largest + up(8 * how.chunks * rows)
    memory = allocate(squares + 8 * how.chunks * rows, stream)
    start = memory.ptr
    limit = _word(Residues(moduli).limit(k))
    place = x.address, start, start + scales, start + flags
    if how.rows is not None:
        lengths = rows, k, form.row_stride, steps, padded, int(how.vectors)
        how.rows.launch_words(rows, how.threads, (*place, *lengths, limit), how.shared, stream)
    else:
        of_largest, of_squares = start + largest, start + squares
        along = rows, k, form.row_stride, form.k_stride, steps
        for kernel, words in zip(
            how.columns,
            (
                (x.address, of_largest, *along, how.chunk_steps),
                (x.address, of_largest, of_squares, *along, how.chunk_steps, how.chunks),
                (
                    *(x.address, of_largest, of_squares, *place[1:], *along, padded),
                    *(how.chunk_steps, how.chunks, limit),
                ),
            ),
            strict=True,
        ):
            kernel.launch_words(how.grid, PANEL_THREADS, words, 0, stream)
    return Packed(x, *place[1:], padded, steps, memory)


class _Packing(NamedTuple):
    """How an operand is packed: by one kernel of whole rows, or by three."""

    rows: Kernel | None
    columns: tuple[Kernel, ...]
    threads: int
    shared: int
    vectors: bool
    grid: int
    chunk_steps: int
    chunks: int


@lru_cache(maxsize=1024)
def _packing(form: Form, moduli: tuple[int, ...], steps: int) -> _Packing:
    definitions = of_packing(moduli, form.memory)
    items = steps * STEP // ROW_ITEM
    if form.k_stride == 1 and steps * STEP * 8 <= LONGEST:
        threads = min(max(64, 32 * -(-items // (32 * DEPTH))), 512)
        shared = -(-items // threads) * threads * ROW_ITEM * 8
        kernel = cuda_kernel(PACKING, "rows", definitions, LONGEST)
        vectors = form.aligned and form.row_stride * form.itemsize % VECTOR == 0
        return _Packing(kernel, (), threads, shared, vectors, form.rows, 0, 0)
    kernels = tuple(
        cuda_kernel(PACKING, name, definitions) for name in ("maxima", "sums", "columns")
    )
    panels = -(-form.rows // PANEL)
    chunk_steps = min(max(4, panels * steps // BLOCKS), CHUNK_STEPS)
    chunks = -(-steps // chunk_steps)
    return _Packing(None, kernels, PANEL_THREADS, 0, False, panels * chunks, chunk_steps, chunks)


def _products(
    left: Packed, right: Packed, moduli: tuple[int, ...], tile: Tile, stream: Stream
) -> Any:
    """The memory of the products' residues, in the order of `residue_tiles.cuh`."""
    kernel = cuda_kernel(GEMM, "residue_gemm", of_gemm(moduli, tile), tile.shared)
    memory = allocate(len(moduli) * left.padded * right.padded, stream)
    rows, columns = left.padded // tile.m, right.padded // tile.n
    grid = min(_multiprocessors(left.operand.device), rows * columns * len(moduli))
    grid -= grid % tile.cluster
    words = left.residues, right.residues, memory.ptr, left.steps, rows, columns, GROUP
    kernel.launch_words(grid, GEMM_THREADS, words, tile.shared, stream)
    return memory


def _combine(
    left: Packed,
    right: Packed,
    products: Any,
    moduli: tuple[int, ...],
    tile: Tile,
    out: Any,
    stream: Stream,
) -> None:
    kernel = cuda_kernel(RESULT, "result", of_result(moduli, tile, out.dtype.name))
    m, n = out.shape
    leading = out.strides[0] // out.itemsize
    rows, columns = left.padded // tile.m, right.padded // tile.n
    grid = rows * columns * (tile.m // 64) * (tile.n // UNIT_COLUMNS)
    address = out.data.ptr
    paired = int((address | leading * out.itemsize) % (2 * out.itemsize) == 0)
    words = (
        *(products.ptr, left.scales, right.scales, address),
        *(m, n, leading, rows, columns, paired),
    )
    kernel.launch_words(grid, RESULT_THREADS, words, 0, stream)


@lru_cache
def _multiprocessors(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])


@lru_cache(64)
def _word(number: float) -> int:
    """The 64-bit integer of the same bits as a float64."""
    import struct

    return int(struct.unpack("q", struct.pack("d", number))[0])
