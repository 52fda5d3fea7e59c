"""The pieces of C (tiles) that blocks of a GEMM kernel can compute, and how blocks share them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.scheme import EXACT_SEGMENT, Scheme
from mixpert_py.runtime.splitter import Digits

LEAST_STAGES: Final = 2
LEAST_SEGMENT: Final = 16  # steps from which adding a segment into C in memory costs little
ALIGNMENT: Final = 1024  # bytes
BARRIERS: Final = 256  # bytes, at most
LEAST_SPLIT: Final = 3  # parts of a tile from which adding them in memory pays
LEAST_PART: Final = 8  # steps
MOST_STEPS: Final = EXACT_SEGMENT // STEP  # that INT32 accumulators hold the sum of


@dataclass(frozen=True, slots=True)
class Family:
    """The limits of the kernels in one file, for any scheme.

    heights, widths: of tiles, the largest first. values: of accumulators and totals that a block's
    registers hold: beside them there must be room for fragments and addresses. shared: whether a
    ring in shared memory begins at a multiple of ALIGNMENT, behind barriers, and units of what each
    64 rows store, two factors of each.
    """

    file: str
    threads: int
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    values: int
    shared: bool
    stages: int
    persistent: bool


HOPPER: Final = Family(
    "gemm_sm90.cu", 384, (128,), (256, 192, 128, 96, 64), 384 * 128, True, 8, True
)
PORTABLE: Final = Family("gemm_sm80.cu", 256, (128, 64), (128, 64), 384 * 128, False, 4, False)


@dataclass(frozen=True, slots=True)
class Chip:
    """The figures of a GPU that decide on tiles.

    shared: bytes of shared memory that one thread block may have.
    """

    family: Family
    multiprocessors: int
    shared: int


@dataclass(frozen=True, slots=True)
class Tile:
    """m × n of C, from a ring of stages of 64 bytes of K each, `shared` bytes in all.

    promote: whether sums leave their accumulators as K goes by, rather than once a segment of K.
    """

    m: int
    n: int
    stages: int
    shared: int
    promote: bool


class Depth(NamedTuple):
    """K as a kernel goes along it: steps in all, in blocks that share exponents."""

    steps: int
    blocks: int
    steps_per_block: int


class Cut(NamedTuple):
    """A grid. tail: tiles of the last wave, of `split` parts along K each, if that is not 0."""

    grid: int
    tail: int = 0
    split: int = 0


@lru_cache(maxsize=1024)
def candidates(scheme: Scheme, depth: Depth, *, wide: bool, chip: Chip) -> tuple[Tile, ...]:
    """The tiles whose sums fit in registers and whose stages fit in shared memory, largest first.

    Floating-point sums are promoted, since tensor cores truncate what they add; integers where
    exponent blocks are short.
    """
    short = depth.blocks > 1 and depth.steps_per_block < LEAST_SEGMENT
    promote = short or not scheme.exact
    family = chip.family
    held = _values(scheme, promote, wide, family)

    def ring(height: int, width: int) -> int:
        """Bytes for stages."""
        if not family.shared:
            return chip.shared
        stored = 0 if promote and scheme.exact else height // 64 * (64 + width)
        beside = BARRIERS + stored * 2 * (8 if wide else 4)
        return chip.shared - -(-beside // ALIGNMENT) * ALIGNMENT

    def tile(height: int, width: int) -> Tile:
        stage = STEP * (scheme.left.count * height + scheme.right.count * width)
        stages = min(ring(height, width) // stage, family.stages)
        return Tile(height, width, stages, stages * stage, promote)

    def fits(tile: Tile) -> bool:
        return held * tile.m * tile.n <= family.values and tile.stages >= LEAST_STAGES

    return tuple(filter(fits, (tile(m, n) for m in family.heights for n in family.widths)))


def cut(scheme: Scheme, tile: Tile, tiles: int, depth: Depth, chip: Chip) -> Cut:
    """Thread blocks, and how they share the last tiles."""
    if not chip.family.persistent:
        return Cut(tiles)
    count = chip.multiprocessors
    whole = Cut(min(tiles, count))
    if not scheme.exact or tile.promote or depth.blocks > 1 or depth.steps > MOST_STEPS:
        return whole
    tail = tiles % count
    split = min(count // max(tail, 1), depth.steps // LEAST_PART)
    if tail == 0 or split < LEAST_SPLIT:
        return whole
    return Cut(count if tiles > count else tail * split, tail, split)


def is_grouped(scheme: Scheme) -> bool:
    """Whether 16 rows of A, and 8 columns of B, share a power of two."""
    left, right = scheme.left, scheme.right
    if not isinstance(left, Digits) or not isinstance(right, Digits):
        return False
    return left.group % 16 == 0 and right.group % 8 == 0


def _values(scheme: Scheme, promote: bool, wide: bool, family: Family) -> int:
    """Values held for each element of a tile: accumulators, and totals beside them.

    Totals of integers are as wide as the result. On Hopper floating-point accumulators are promoted
    one after the other, so that one is enough, unless one is deferred; the portable kernel promotes
    blocks of half a step a fragment at a time, and needs none for a whole tile.
    """
    groups = len(scheme.accumulators())
    if not promote:
        return groups + (wide and family is PORTABLE and groups > 2)
    total = 2 if wide and scheme.exact else 1
    if family is PORTABLE:
        return 2 * total + 1 if is_grouped(scheme) else groups + 2 * total
    return 1 + total + scheme.deferred if not scheme.exact else groups + total
