"""Which piece of C a block of a GEMM kernel computes, and how it is fed: the tile model."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits

STEP: Final = 64  # bytes of K that are loaded at a time
LEAST_STAGES: Final = 2
LEAST_SEGMENT: Final = 16  # steps from which adding a segment into C in memory costs little
ALIGNMENT: Final = 1024  # bytes
BARRIERS: Final = 256  # bytes, at most
OVERHEAD: Final = 24  # of a tile, in columns: what its prologue and epilogue cost


@dataclass(frozen=True, slots=True)
class Family:
    """What kernels of one file are limited by, whatever the scheme.

    values: of accumulators and totals that a block's registers hold: beside them there must be
    room for fragments and addresses. shared: whether a ring in shared memory begins at a multiple
    of ALIGNMENT, behind barriers, and units of what each 64 rows store, two factors of each.
    """

    file: str
    threads: int
    widths: tuple[int, ...]
    values: int
    shared: bool
    stages: int
    persistent: bool


HOPPER: Final = Family("gemm_sm90.cu", 384, (256, 192, 128, 96, 64), 384 * 128, True, 8, True)
PORTABLE: Final = Family("gemm_sm80.cu", 256, (128, 64), 384 * 128, False, 4, False)


@dataclass(frozen=True, slots=True)
class Chip:
    """What of a GPU decides. shared: bytes of shared memory that one block may have."""

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


@lru_cache(maxsize=1024)
def choose(
    scheme: Scheme,
    m: int,
    n: int,
    batch: int,
    *,
    blocks: int,
    steps_per_block: int,
    wide: bool,
    chip: Chip,
) -> Tile:
    """The tile that finishes C (batch × m × n) first, by a model of waves.

    Blocks run in waves, one to a multiprocessor; a wave takes as long as a tile: its columns and
    some overhead. Tiles are as wide as registers allow, or narrower where that fills the last wave.

    Floating-point sums are promoted, since tensor cores truncate what they add; integers where
    exponent blocks are short.
    """
    promote = not scheme.exact or (blocks > 1 and steps_per_block < LEAST_SEGMENT)
    family = chip.family
    held = _values(scheme, promote, wide, family)

    def ring(height: int, width: int) -> int:
        """Bytes for stages."""
        if not family.shared:
            return chip.shared
        stored = 0 if promote and scheme.exact else height // 64 * (64 + width)
        beside = BARRIERS + stored * 2 * (8 if wide else 4)
        return chip.shared - -(-beside // ALIGNMENT) * ALIGNMENT

    def stage(height: int, width: int) -> int:
        return STEP * (scheme.left.count * height + scheme.right.count * width)

    def fits(height: int, width: int) -> bool:
        registers = held * height * width <= family.values
        return registers and LEAST_STAGES * stage(height, width) <= ring(height, width)

    height = next((height for height in (128, 64) if fits(height, 64)), 64)
    rows = -(-m // height) * batch

    def time(width: int) -> int:
        waves = -(-rows * -(-n // width) // chip.multiprocessors)
        return waves * (width + OVERHEAD)

    width = min((width for width in family.widths if fits(height, width)), key=time)
    stages = min(ring(height, width) // stage(height, width), family.stages)
    return Tile(height, width, stages, stages * stage(height, width), promote)


def is_grouped(scheme: Scheme) -> bool:
    """Whether 16 rows of A, and 8 columns of B, share a power of two."""
    left, right = scheme.left, scheme.right
    if not isinstance(left, Digits) or not isinstance(right, Digits):
        return False
    return left.group % 16 == 0 and right.group % 8 == 0


def _values(scheme: Scheme, promote: bool, wide: bool, family: Family) -> int:
    """Values held for each element of a tile: accumulators, and totals beside them.

    Totals of integers are as wide as the result. On Hopper floating-point accumulators are promoted
    one after the other, so that one is enough; the portable kernel promotes blocks of half a step a
    fragment at a time, and needs none for a whole tile.
    """
    groups = len(scheme.accumulators())
    if not promote:
        return groups + (wide and family is PORTABLE and groups > 2)
    total = 2 if wide and scheme.exact else 1
    if family is PORTABLE:
        return 2 * total + 1 if is_grouped(scheme) else groups + 2 * total
    return 1 + total if not scheme.exact else groups + total
