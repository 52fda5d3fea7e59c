"""Splitting operands on the device where K is one block: one launch, or two where rows are
contiguous.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.outliers import OutlierRule
from mixpert_py.runtime.packing.device_packed import DevicePacked
from mixpert_py.runtime.packing.layout import ITEM, STEP, Layout, layout
from mixpert_py.runtime.packing.operand import VECTOR, Form, Operand
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.splitter import FloatSlices, Splitter

KERNELS = "mixpert_py.runtime.packing.row_kernels"
MOST_FLOATS = 3  # slices that a thread has registers for
LONGEST = 1 << 26  # of K, so that sums of squares of digits fit 32 bits


class Tuning(NamedTuple):
    """Sizes of launches that change no bit of digits and units.

    threads: of a block, more up to `most_threads` for long rows, and for `together` of them; items:
    that a thread holds, 0 for as few as do. across: a tile has 32 times as many rows. looks,
    pieces: blocks that each of the two passes over contiguous rows is cut into at least, if K is
    long enough.
    """

    threads: int = 256
    most_threads: int = 512
    items: int = 0
    across: int = 4
    tile_threads: int = 256
    looks: int = 512
    pieces: int = 1024
    together: int = 1


DEFAULT = Tuning()


class Cover(NamedTuple):
    """How blocks cover an operand. looks, pieces: chunks of K in either pass, and their lengths;
    0 of them where K is contiguous. share_log: threads of a row. strips: blocks next to each other.
    """

    along: bool
    vector: bool
    strips: int
    share_log: int
    look: int
    looks: int
    piece: int
    pieces: int


@dataclass(frozen=True, slots=True, eq=False)
class RowPacking:
    """The launches, but for addresses. offsets: of each operand's working memory, in bytes past its
    own: largest magnitudes, how fine, counters, partial sums; then the end.
    """

    sides: tuple[Side, ...]
    splitters: tuple[Splitter, ...]
    layouts: tuple[Layout, ...]
    covers: tuple[Cover, ...]
    offsets: tuple[tuple[int, ...], ...]
    constants: tuple[int | bool, ...]
    row_words: tuple[tuple[int, ...], ...]
    tile_words: tuple[tuple[int, ...], ...]
    tuning: Tuning


def suits(
    splitters: tuple[Splitter, ...], forms: tuple[Form, ...], block: int, measure: bool,
    rule: OutlierRule,
) -> bool:  # fmt: skip
    """Whether `pack_rows` packs these, of which every `block` of K share a unit."""
    return (
        not measure
        and all(_plain(splitter, rule) for splitter in splitters)
        and all(0 < x.k <= min(block, LONGEST) for x in forms)
        and all(x.k_stride == 1 or x.row_stride == 1 for x in forms)
    )


def _plain(splitter: Splitter, rule: OutlierRule) -> bool:
    if isinstance(splitter, FloatSlices):
        return splitter.count <= MOST_FLOATS
    return (
        rule in ("loss", "none")
        and splitter.width == 8
        and splitter.group == 1
        and splitter.count <= 4
        and splitter.digits == splitter.count
    )


def pack_rows(
    operands: tuple[Operand, ...],
    splitters: tuple[Splitter, ...],
    result: str,
    *,
    rule: OutlierRule = "loss",
    stream: int = 0,
    tuning: Tuning = DEFAULT,
) -> tuple[DevicePacked, ...]:
    """One operand or two, split as `packing.pack` does, on a stream of the current device.

    For what `suits`. result: the type of the product. Rows that are flagged hold anything where
    slices are digits, zeros where they are floats; the significand of their unit is zero. Does not
    wait for the device. Raises ShapeError where an operand is empty.
    """
    forms = tuple(x.form for x in operands)
    how = _row_packing(splitters, forms, result, rule, tuning)
    packed = tuple(_allocated(x, how, i) for i, x in enumerate(operands))
    _launch_rows(how, packed, stream)
    tiled = [i for i, cover in enumerate(how.covers) if not cover.along]
    if tiled:
        _launch_tiles(how, packed, tiled, stream)
    return packed


def _launch_rows(how: RowPacking, packed: tuple[DevicePacked, ...], stream: int) -> None:
    last = len(packed) - 1
    rows = [(*_addresses(one, how, i)[:-1], *how.row_words[i]) for i, one in enumerate(packed)]
    grids = [_grid(how, i) for i in range(last + 1)]
    kernel = numba_kernel(KERNELS, "row_kernel", (how.sides[0], how.sides[last], *how.constants))
    words = (*rows[0], grids[0], *rows[last], how.layouts[0].k, how.layouts[0].steps)
    kernel.launch_words(sum(grids), int(how.constants[0]), words, 0, stream)


def _launch_tiles(
    how: RowPacking, packed: tuple[DevicePacked, ...], tiled: list[int], stream: int
) -> None:
    tiles = [(*_addresses(packed[i], how, i), *how.tile_words[i]) for i in tiled]
    grids = [how.covers[i].strips * how.covers[i].pieces * how.layouts[i].batch for i in tiled]
    first, last = tiled[0], tiled[-1]
    threads = how.tuning.tile_threads
    constants = how.sides[first], how.sides[last], threads, how.tuning.across
    kernel = numba_kernel(KERNELS, "tile_kernel", constants)
    words = (*tiles[0], grids[0], *tiles[-1], how.layouts[0].k, how.layouts[0].steps)
    kernel.launch_words(sum(grids), threads, words, 0, stream)


def _grid(how: RowPacking, i: int) -> int:
    cover = how.covers[i]
    return cover.strips * max(cover.looks, 1) * how.layouts[i].batch


def row_packing(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
) -> RowPacking:
    """For one operand or two. Raises ShapeError where an operand is empty."""
    for x in forms:
        if x.batch == 0 or x.rows == 0 or x.k == 0:
            raise ShapeError(f"nothing to pack in {x.batch} × {x.rows} rows of {x.k}")
    k = forms[0].k
    pairs = list(zip(splitters, forms, strict=True))
    layouts = tuple(layout(splitter, x.batch, x.rows, k, k, False) for splitter, x in pairs)
    sides = tuple(side(splitter, x.memory, result, rule, False) for splitter, x in pairs)
    threads, items, again = shares(k, max(x.itemsize for x in forms), tuning)
    covers = tuple(_cover(x, threads, items, tuning) for x in forms)
    offsets = tuple(
        _offsets(x, cover, one) for x, cover, one in zip(forms, covers, sides, strict=True)
    )
    row_words, tile_words = [], []
    for x, cover in zip(forms, covers, strict=True):
        stride = x.row_stride if cover.along else x.k_stride
        start = x.rows, x.batch_stride, stride, int(cover.vector)
        rest = int(cover.along), cover.strips, cover.share_log, cover.look, cover.looks
        row_words.append((*start, *rest))
        tile_words.append((*start, cover.strips, cover.looks, cover.piece, cover.pieces))
    return RowPacking(
        sides,
        splitters,
        layouts,
        covers,
        offsets,
        (threads, items, again, share(k, threads, items) == threads, tuning.across),
        tuple(row_words),
        tuple(tile_words),
        tuning,
    )


_row_packing = lru_cache(4096)(row_packing)


def shares(k: int, itemsize: int, tuning: Tuning = DEFAULT) -> tuple[int, int, bool]:
    """Threads of a block, items of each, and whether rows of k are too long to be held by them.

    A thread holds 32 registers' worth at most: with more, too few would be resident to hide what
    memory takes to answer.
    """
    most = 16 // itemsize
    items = tuning.items or 1
    wanted = k * tuning.together
    while items < most and tuning.threads * items * ITEM < wanted and not tuning.items:
        items *= 2
    threads = tuning.threads
    while threads < tuning.most_threads and threads * items * ITEM < wanted:
        threads *= 2
    return threads, items, threads * items * ITEM < k


def share(k: int, threads: int, items: int) -> int:
    """Threads of a row, of those of a block."""
    return min(threads, max(ITEM, _power(-(-k // (items * ITEM)))))


def _cover(x: Form, threads: int, items: int, tuning: Tuning) -> Cover:
    along = x.k_stride == 1
    stride = x.row_stride if along else x.k_stride
    starts = (stride | x.batch_stride) * x.itemsize
    vector = x.aligned and starts % VECTOR == 0
    if along:
        of_row = share(x.k, threads, items)
        strips = -(-x.rows // (threads // of_row))
        return Cover(True, vector, strips, of_row.bit_length() - 1, 0, 0, 0, 0)
    tiles = -(-x.rows // (32 * tuning.across))
    padded = -(-x.k // STEP) * STEP
    look = _chunk(x.k * tiles * x.batch, tuning.looks)
    piece = _chunk(x.k * tiles * x.batch, tuning.pieces)
    return Cover(False, vector, tiles, 0, look, -(-x.k // look), piece, -(-padded // piece))


def _chunk(total: int, blocks: int) -> int:
    """A length of K, whole steps and not too long for sums in single precision."""
    return min(max(-(-total // (blocks * STEP)), 1), 16) * STEP


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _offsets(x: Form, cover: Cover, one: Side) -> tuple[int, ...]:
    """Of what the two passes leave each other; nothing where K is contiguous."""
    places = x.batch * cover.looks * x.rows
    sizes = (
        x.itemsize * places,
        4 * places,
        4 * x.batch * cover.strips if cover.pieces else 0,
        4 * x.batch * cover.pieces * one.slices * x.rows,
    )
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // 256) * 256)
    return tuple(offsets)


def _allocated(x: Operand, how: RowPacking, i: int) -> DevicePacked:
    import cupy

    place = how.layouts[i]
    # What the passes leave each other has its place after it: no other stream may take it.
    memory = cupy.cuda.alloc(_start(place) + how.offsets[i][-1])
    start = memory.ptr
    scales, flags = start + place.scales, start + place.flags
    return DevicePacked(x, how.splitters[i], place, start, scales, flags, 0, 0, memory)


def _start(place: Layout) -> int:
    return -(-place.bytes // 256) * 256


def _addresses(it: DevicePacked, how: RowPacking, i: int) -> tuple[int, ...]:
    work = it.slices + _start(it.layout)
    between = (work + offset for offset in how.offsets[i][:-1])
    return it.operand.address, it.slices, it.scales, it.flags, *between
