"""Times of GEMM kernels by tile: measured, or computed from a chip's rates.

Blocks work in waves, one block to a multiprocessor; a wave takes as long as a tile. On Hopper the
tiles of an uneven last wave are cut along K where `tile.cut` says so, and meet in memory.
"""

import math
from functools import cached_property

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels.abi import ELEMENTS, STEP
from mixpert_py.runtime.model.device_model import DeviceModel, Kernel
from mixpert_py.runtime.model.tile import (
    HOPPER,
    MOST_STEPS,
    PORTABLE,
    Chip,
    Depth,
    Tile,
    candidates,
    cut,
)
from mixpert_py.runtime.scheme import Scheme

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

    def __init__(self, model: DeviceModel, chip: Chip | None = None) -> None:
        """chip: where it is not the model's own, whose figures then stand in for its."""
        self.model = model
        self.chip = chip or chip_of(model)

    def best(self, scheme: Scheme, m: int, n: int, batch: int, depth: Depth, wide: bool) -> Tile:
        """The tile that finishes C (batch × m × n) first. wide: C is float64.

        Raises DeviceError where no tile holds the scheme's sums.
        """
        tiles = candidates(scheme, depth, wide=wide, chip=self.chip)
        if not tiles:
            sums = f"{len(scheme.accumulators())} accumulators"
            kind = "float64" if wide else "float32"
            raise DeviceError(f"scheme {scheme.name!r}: no tile holds {sums} of a {kind} product")
        return min(tiles, key=lambda tile: self.seconds(scheme, tile, m, n, batch, depth))

    def seconds(
        self, scheme: Scheme, tile: Tile, m: int, n: int, batch: int, depth: Depth
    ) -> float:
        """Seconds that the kernel takes for C (batch × m × n), from packed operands."""
        figures = self.figures(scheme, tile)
        tiles = -(-m // tile.m) * -(-n // tile.n) * batch
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

    def figures(self, scheme: Scheme, tile: Tile) -> Kernel:
        """The figures of one kernel: measured if they are known, else estimated."""
        measured = self._measured.get((scheme.name, tile.m, tile.n))
        return measured or self._estimated(scheme, tile)

    @cached_property
    def _measured(self) -> dict[tuple[str, int, int], Kernel]:
        return {(row.scheme, row.m, row.n): row for row in self.model.kernel}

    def _estimated(self, scheme: Scheme, tile: Tile) -> Kernel:
        model = self.model
        clock, count = model.chip.clock, model.chip.multiprocessors
        element = scheme.element
        length = STEP // ELEMENTS[element.name].size  # of K
        operations = 2 * scheme.products * tile.m * tile.n * length
        rate = getattr(model.rates, element.name) or model.rates.float16 or model.rates.int8
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
        return Kernel(scheme.name, tile.m, tile.n, BASE, TILE, step)


def chip_of(model: DeviceModel) -> Chip:
    """A modelled device as the tile model sees it."""
    family = HOPPER if model.capability == HOPPER_CAPABILITY else PORTABLE
    return Chip(family, model.chip.multiprocessors, model.shared.per_block)
