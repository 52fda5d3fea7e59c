"""Splitting operands on the device where tiles of rows × 32 of K share an exponent: one launch."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.packing.layout import DevicePacked, Layout, layout, up
from mixpert_py.runtime.packing.operand import VECTOR, Form, Operand
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.splitter import Digits, Splitter

KERNELS = "mixpert_py.runtime.packing.tile_kernels"
NOWHERE = (0,) * 5  # addresses of an operand that is not there
WARP = 32
WARP_ROWS = 16
STRETCH = 32  # of K, of a tile
LONGEST = 1 << 30  # of K, so that places along it fit 32 bits


class Tuning(NamedTuple):
    """Sizes of launches that change no bit.

    threads: of a block; resident: for how many a multiprocessor is to have room, and so registers.
    broad: blocks from which on those of contiguous rows take two neighbouring strips of them, which
    memory reads better than one.
    """

    threads: int = 256
    resident: int = 768
    broad: int = 256


DEFAULT = Tuning()


def suits(
    splitters: tuple[Splitter, ...], forms: tuple[Form, ...], block: int, measure: bool,
    rule: OutlierRule,
) -> bool:  # fmt: skip
    """Whether `pack_tiles` packs these, of which every `block` of K share a unit.

    Left to the general kernel: double precision, operands that are contiguous neither along K nor
    along rows, rule "ratio", and norms.
    """
    return (
        not measure
        and rule in ("loss", "none")
        and all(_sevens(splitter) for splitter in splitters)
        and all(x.memory == "float32" and 0 < x.k <= LONGEST for x in forms)
        and all(block == min(STRETCH, x.k) for x in forms)
        and all(x.k_stride == 1 or x.row_stride == 1 for x in forms)
    )


def _sevens(splitter: Splitter) -> bool:
    return (
        isinstance(splitter, Digits)
        and splitter.width == 7
        and splitter.group in (8, 16)
        and splitter.digits <= 4
        and not splitter.fitted
    )


@dataclass(frozen=True, slots=True, eq=False)
class TilePacking:
    """A launch, but for addresses. constants: of the kernel; words: the integers that follow each
    operand's addresses.
    """

    constants: tuple[Side, Side, int, int]
    layouts: tuple[Layout, ...]
    threads: int
    grid: int
    words: tuple[tuple[int, ...], tuple[int, ...]]


class Tiles(NamedTuple):
    """The launch that splits one operand or two, but for addresses; all that does not change with
    them is here, since packing a small product takes less than to find it out.

    sides: of each operand its splitter, layout, and where slices, scales, flags, and outliers, if
    it keeps them, begin in an allocation of `bytes`. alloc: CuPy's.
    """

    kernel: Kernel
    how: TilePacking
    sides: tuple[tuple[Splitter, Layout, tuple[int, int, int, int | None]], ...]
    bytes: int
    alloc: Any

    def pack(
        self, operands: tuple[Operand, ...], stream: int, memory: Any = None
    ) -> tuple[DevicePacked, ...]:
        """As `WholeRows.pack`, without a gate."""
        memory = memory or self.alloc(self.bytes)
        start = memory.ptr
        packed, addresses = [], []
        for x, (splitter, place, offsets) in zip(operands, self.sides, strict=True):
            slices, scales, flags = [start + offset for offset in offsets[:3]]
            outliers = 0 if offsets[3] is None else start + offsets[3]
            parts = slices, scales, flags, outliers
            packed.append(DevicePacked(x, splitter, place, *parts, 0, memory))
            addresses.append((x.address, *parts))
        how = self.how
        first, second = how.words
        other = addresses[1] if len(addresses) > 1 else NOWHERE
        words = (*addresses[0], *first, *other, *second)
        self.kernel.launch_words(how.grid, how.threads, words, 0, stream)
        return tuple(packed)


def pack_tiles(
    operands: tuple[Operand, ...],
    splitters: tuple[Splitter, ...],
    result: str,
    *,
    block: int,
    rule: OutlierRule = "loss",
    stream: int = 0,
    tuning: Tuning = DEFAULT,
) -> tuple[DevicePacked, ...]:
    """One operand or two, split as `packing.pack` does, by one launch on a stream of the current
    device.

    For what `suits`. block: stretch of K per scale; result: the type of the product, "float32".
    What is flagged is zero in the slices. Does not wait for the device. Raises ShapeError where an
    operand is empty, DeviceError where the kernel does not compile.
    """
    forms = tuple([x.form for x in operands])
    tiles = prepared_tiles(splitters, forms, block, result, rule, operands[0].device, tuning)
    return tiles.pack(operands, stream)


@lru_cache(4096)
def prepared_tiles(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    device: int,
    tuning: Tuning = DEFAULT,
) -> Tiles:
    """For operands of these forms, on the current device, whose number this is. Raises as
    `pack_tiles` does.
    """
    import cupy

    how = tile_packing(splitters, forms, block, result, rule, tuning)
    kernel = numba_kernel(KERNELS, "pack_kernel", how.constants)
    starts = [0, *accumulate(up(place.bytes) for place in how.layouts)]
    sides = zip(splitters, how.layouts, starts, strict=False)
    parts = tuple((splitter, place, _offsets(place, at)) for splitter, place, at in sides)
    return Tiles(kernel, how, parts, starts[-1], cupy.cuda.alloc)


def _offsets(place: Layout, start: int) -> tuple[int, int, int, int | None]:
    outliers = start + place.outliers if place.blocks > 1 else None
    return start, start + place.scales, start + place.flags, outliers


def tile_packing(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
) -> TilePacking:
    """For one operand or two. Raises ShapeError where an operand is empty."""
    for x in forms:
        if x.batch == 0 or x.rows == 0 or x.k == 0:
            raise ShapeError(f"nothing to pack in {x.batch} × {x.rows} rows of {x.k}")
    pairs = list(zip(splitters, forms, strict=True))
    layouts = tuple(layout(one, x.batch, x.rows, x.k, block, False) for one, x in pairs)
    sides = [side(one, x.memory, result, rule, False) for one, x in pairs]
    covers = [_cover(x, layouts[0].steps, tuning) for x in forms]
    grids = [x.batch * cover.strips for x, cover in zip(forms, covers, strict=True)]
    return TilePacking(
        (sides[0], sides[-1], tuning.threads, tuning.resident // tuning.threads),
        layouts,
        tuning.threads,
        sum(grids),
        ((*covers[0], grids[0]), (*covers[-1], layouts[0].k, layouts[0].steps)),
    )


class Cover(NamedTuple):
    """How blocks cover an operand, as the kernel takes it. Strides are in elements.

    stride: from row to row if K is contiguous (along), else from place to place along K. vector:
    whether four neighbours are always 16-byte aligned. strips: blocks next to each other; deep:
    logarithm of how many of a block's warps lie along K, the others along rows.
    """

    rows: int
    batch_stride: int
    stride: int
    along: int
    vector: int
    strips: int
    deep: int


def _cover(x: Form, steps: int, tuning: Tuning) -> Cover:
    along = x.k_stride == 1
    stride = x.row_stride if along else x.k_stride
    vector = x.aligned and (stride | x.batch_stride) * x.itemsize % VECTOR == 0
    warps = tuning.threads // WARP
    deep = min(warps.bit_length(), steps.bit_length()) - 1
    if not along and 1 << deep == warps > 1 and _strips(x, 2) * x.batch >= tuning.broad:
        deep -= 1
    strips = _strips(x, warps >> deep)
    return Cover(x.rows, x.batch_stride, stride, int(along), int(vector), strips, deep)


def _strips(x: Form, warps: int) -> int:
    """Blocks that cover the rows, so many warps of each side by side."""
    return -(-x.rows // (WARP_ROWS * warps))
