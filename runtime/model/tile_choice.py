"""Which tile of our kernels a model takes: ours, and those after EGEMM-TC and LE-GEMM."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from mixpert_py.runtime.model import egemm_tiles, legemm_tiles
from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.model.legemm_tiles import Tiling
from mixpert_py.runtime.model.tile import Depth, Tile, candidates
from mixpert_py.runtime.scheme import Scheme

ModelName = Literal["ours", "egemm", "legemm"]

Figures = Mapping[str, float]


class Wanted(NamedTuple):
    """C (batch × m × n) by a scheme, K as `depth` has it. wide: C is float64."""

    scheme: Scheme
    m: int
    n: int
    batch: int
    depth: Depth
    wide: bool = False


def choose(name: ModelName, times: KernelTimes, wanted: Wanted) -> Tile:
    """The tile that a model takes."""
    if name == "ours":
        return times.best(*wanted)
    tiles = _tiles(times, wanted)
    if name == "egemm":
        assessed = {_assessed(times, wanted, tile): tile for tile in tiles}
        return assessed[egemm_tiles.best(assessed)]
    tilings = {_tiling(times, tile): tile for tile in tiles}
    needed = [legemm_tiles.enough(times.model, tiling) for tiling in tilings]
    return tilings[legemm_tiles.chosen(list(tilings), needed, wanted.m, wanted.n, wanted.batch)]


def figures(name: ModelName, times: KernelTimes, wanted: Wanted, tile: Tile) -> Figures:
    """What a model goes by, for one tile, by what it is. Ours goes by the kernel's time alone."""
    if name == "egemm":
        found = _assessed(times, wanted, tile)
        slowest = max(found.load or 0.0, found.fetch)
        return {"op/byte": found.intensity, "memory / compute": slowest / found.compute}
    if name == "legemm":
        tiling = _tiling(times, tile)
        threads = legemm_tiles.parallelism(tiling, wanted.m, wanted.n, wanted.batch)
        needed = legemm_tiles.enough(times.model, tiling)
        return {"elements a thread": tiling.work, "threads / needed": threads / needed}
    return {}


def _tiles(times: KernelTimes, wanted: Wanted) -> tuple[Tile, ...]:
    return candidates(wanted.scheme, wanted.depth, wide=wanted.wide, chip=times.chip)


def _assessed(times: KernelTimes, wanted: Wanted, tile: Tile) -> egemm_tiles.Assessment:
    blocking = egemm_tiles.blocking_of(wanted.scheme, tile, times.chip.family)
    return egemm_tiles.assess(times.model, wanted.scheme, blocking)


def _tiling(times: KernelTimes, tile: Tile) -> Tiling:
    return Tiling(tile.m, tile.n, times.chip.family.threads)
