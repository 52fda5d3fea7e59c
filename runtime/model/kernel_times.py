"""The pieces of C (tiles) that blocks of a GEMM kernel can compute, how blocks share them, and the
times of kernels by tile: measured, or computed from a chip's rates.

Blocks work in waves, one block to a multiprocessor; a wave takes as long as a tile. On Hopper the
tiles of an uneven last wave are cut along K where `cut` says so, and meet in memory.
"""

import math
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels.abi import ELEMENTS, STEP
from mixpert_py.runtime.model.device_model import DeviceModel, KernelCost
from mixpert_py.runtime.scheme import EXACT_SEGMENT, Scheme
from mixpert_py.runtime.splitter import Digits

LEAST_STAGES: Final = 2
LEAST_SEGMENT: Final = 16  # steps from which adding a segment into C in memory costs little
ALIGNMENT: Final = 1024  # bytes
BARRIERS: Final = 256  # bytes, at most
LEAST_SPLIT: Final = 3  # parts of a tile from which adding them in memory pays
LEAST_PART: Final = 8  # steps
MOST_STEPS: Final = EXACT_SEGMENT // STEP  # that INT32 accumulators hold the sum of


class Family(NamedTuple):
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


class TargetChip(NamedTuple):
    """The figures of a GPU that decide on tiles.

    shared: bytes of shared memory that one thread block may have.
    """

    family: Family
    multiprocessors: int
    shared: int


class Tile(NamedTuple):
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
def candidates(scheme: Scheme, depth: Depth, *, wide: bool, chip: TargetChip) -> tuple[Tile, ...]:
    """The tiles whose sums fit in registers and whose stages fit in shared memory, largest first.

    Floating-point sums are promoted, since tensor cores truncate what they add; integers where
    exponent blocks are short.
    """
    short = depth.blocks > 1 and depth.steps_per_block < LEAST_SEGMENT
    promote = short or not scheme.exact
    family = chip.family
    held = _values(scheme, promote, wide, family)

    def ring(height: int, width: int) -> int:
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


def tiles_of(tile: Tile, m: int, n: int, *, symmetric: bool) -> int:
    """The number of tiles that make C (m × n); of a symmetric C, those that reach its diagonal or
    lie below it.
    """
    return tiles_to_diagonal(tile.m, tile.n, n) if symmetric else -(-m // tile.m) * -(-n // tile.n)


def tiles_to_diagonal(height: int, width: int, n: int) -> int:
    """The number of tiles of a symmetric C (n × n) that reach its diagonal or lie below it."""
    return sum(-(-min(row + height, n) // width) for row in range(0, n, height))


def cut(scheme: Scheme, tile: Tile, tiles: int, depth: Depth, chip: TargetChip) -> Cut:
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


HOPPER_CAPABILITY = 90

# Parts of tiles that meet in memory: seconds, and bytes/s of their accumulators.
JOIN_BASE = 10e-6
JOIN_RATE = 4e12

# Of a kernel that nobody has measured.
EFFICIENCY = 0.85  # of the unit that limits it
BASE = 2e-6  # seconds
TILE = 2.5e-6  # seconds, to fill a tile's pipeline and to write it
PROMOTING = 4.0  # operations on CUDA cores for a value that is promoted
ADDING = 1.0  # the same of a sum in FP32, which needs no conversion
CORE_RATE = 128 * 2  # operations a cycle of a multiprocessor's CUDA cores
SHARED_BANDWIDTH = 128.0  # bytes a cycle


class KernelTimes:
    """The times of one device's kernels. Compared by identity, so that caches may ask for it."""

    def __init__(self, model: DeviceModel, chip: TargetChip | None = None) -> None:
        """chip: where it is not the model's own, whose figures then stand in for its."""
        self.model = model
        self.chip = chip or chip_of(model)

    def best(
        self,
        scheme: Scheme,
        m: int,
        n: int,
        batch: int,
        depth: Depth,
        wide: bool,
        symmetric: bool = False,
    ) -> Tile:
        """The tile that finishes C (batch × m × n) first. wide: C is float64.

        Raises DeviceError where no tile holds the scheme's sums.
        """
        tiles = candidates(scheme, depth, wide=wide, chip=self.chip)
        if not tiles:
            sums = f"{len(scheme.accumulators())} accumulators"
            kind = "float64" if wide else "float32"
            raise DeviceError(f"scheme {scheme.name!r}: no tile holds {sums} of a {kind} product")
        return min(
            tiles, key=lambda tile: self.seconds(scheme, tile, m, n, batch, depth, symmetric)
        )

    def seconds(
        self,
        scheme: Scheme,
        tile: Tile,
        m: int,
        n: int,
        batch: int,
        depth: Depth,
        symmetric: bool = False,
    ) -> float:
        """Seconds that the kernel takes for C (batch × m × n), from packed operands."""
        figures = self.figures(scheme, tile)
        tiles = tiles_of(tile, m, n, symmetric=symmetric) * batch
        # Sums over segments of K are added into C one after the other.
        longest = depth.steps if tile.promote else depth.steps // depth.blocks
        segments = math.ceil(depth.steps / max(1, min(longest, MOST_STEPS)))
        wave = depth.steps * figures.step + segments * figures.tile
        shares = cut(scheme, tile, tiles, depth, self.chip)
        if not shares.tail:
            return figures.base + math.ceil(tiles / self.chip.multiprocessors) * wave
        whole = (tiles - shares.tail) // self.chip.multiprocessors * wave
        part = -(-depth.steps // shares.split) * figures.step + figures.tile
        values = shares.tail * shares.split * len(scheme.accumulators()) * tile.m * tile.n
        return figures.base + whole + part + JOIN_BASE + 4 * values / JOIN_RATE

    def figures(self, scheme: Scheme, tile: Tile) -> KernelCost:
        """The figures of one kernel: measured if they are known, else estimated."""
        measured = self._measured.get((scheme.name, tile.m, tile.n))
        return measured or self._estimated(scheme, tile)

    @cached_property
    def _measured(self) -> dict[tuple[str, int, int], KernelCost]:
        return {(row.scheme, row.m, row.n): row for row in self.model.kernel}

    def _estimated(self, scheme: Scheme, tile: Tile) -> KernelCost:
        model = self.model
        clock, count = model.chip.clock, model.chip.multiprocessors
        element = scheme.element
        length = STEP // ELEMENTS[element.name].size  # of K
        operations = 2 * scheme.products * tile.m * tile.n * length
        rate = getattr(model.rates, element.name) or model.rates.float16 or model.rates.int8
        if self.chip.family is PORTABLE:  # whose instruction need not be the device's best
            listed = (row for row in model.instruction if row.name.startswith("mma.sync"))
            rates = [row.rate or 0.0 for row in listed if row.name.endswith(f" {element.name}")]
            rate = max(rates, default=rate)
        loaded = STEP * (scheme.left.count * tile.m + scheme.right.count * tile.n)
        # An instruction of 64 rows, 32 bytes of K, reads both its operands from shared memory.
        read = tile.m // 64 * scheme.products * 2 * 32 * (64 + tile.n)
        bandwidth = model.shared.bandwidth or SHARED_BANDWIDTH
        slowest = max(
            math.inf if rate is None else operations * count / rate,
            (read + loaded) / bandwidth / clock,
            loaded * count / model.l2.bandwidth if model.l2.bandwidth else 0.0,
        )
        promoted = 0.0
        if tile.promote:
            values = tile.m * tile.n * len(scheme.accumulators())
            promoted = values * (PROMOTING if scheme.exact else ADDING) / (CORE_RATE / 2) / clock
        step = slowest / EFFICIENCY + promoted
        return KernelCost(scheme.name, tile.m, tile.n, BASE, TILE, step)


def chip_of(model: DeviceModel) -> TargetChip:
    """A modelled device as the tile model sees it."""
    family = HOPPER if model.capability == HOPPER_CAPABILITY else PORTABLE
    return TargetChip(family, model.chip.multiprocessors, model.shared.per_block)
