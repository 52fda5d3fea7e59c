"""The model after LE-GEMM: the tiles of its sources, and what it prefers on an A800.

The choices of LE-GEMM's Table 2 could not be had. An A800 is an A100 with slower links between
GPUs: 108 multiprocessors.
"""

import pytest

from mixpert_py.runtime.model.device_model import find
from samples.papers.legemm_tiles import Tiling, chosen, enough

A800 = find("NVIDIA A100-SXM4-80GB")
TILES = [Tiling(m, n, 256) for m, n in ((128, 128), (128, 64), (64, 64))]

# Li et al., PPoPP 2019: 256 threads, and 65,536 are enough (tiling/gemm.cu of their code).
SIDES = ((128, 128), (64, 128), (128, 64), (64, 64), (32, 32), (16, 16))
LI = [Tiling(m, n, 256) for m, n in SIDES]
# BatchGEMM of LE-GEMM's first author: 6,000 wavefronts of 64 are enough (CUDA/framework/run.sh).
ZHANG = [Tiling(64, 64, 256), Tiling(32, 64, 256), Tiling(32, 32, 128), Tiling(16, 32, 128)]
ZHANG.append(Tiling(16, 16, 128))
ENOUGH_FOR_ZHANG = 6_000 * 64 + 1  # their loop goes on at 6,000 itself


@pytest.mark.parametrize(
    ("tiles", "needed", "m", "n", "batch", "tile"),
    [
        *((LI, 65_536, n, n, b, t) for n, b, t in ((128, 4, (16, 16)), (128, 16, (32, 32)))),
        *((LI, 65_536, n, n, b, t) for n, b, t in ((512, 8, (64, 128)), (1024, 64, (128, 128)))),
        *((LI, 65_536, n, n, b, t) for n, b, t in ((128, 64, (64, 64)), (64, 1, (16, 16)))),
        # 512 × 512 products, their benchmark: a batch of 24 fills the chip with the largest tile.
        *((ZHANG, ENOUGH_FOR_ZHANG, 512, 512, b, t) for b, t in ((8, (16, 32)), (16, (32, 64)))),
        *((ZHANG, ENOUGH_FOR_ZHANG, 512, 512, b, t) for b, t in ((32, (64, 64)), (1, (16, 16)))),
        # On an A800: 20, or 13, tiles in a second wave.
        (TILES, 0, 1024, 1024, 1, (128, 64)),
        (TILES, 0, 1408, 1408, 1, (128, 128)),
        (TILES, 0, 8192, 256, 1, (128, 128)),
        (TILES, 0, 192, 192, 16, (64, 64)),
    ],
)
def test_the_largest_tile_with_threads_enough(
    tiles: list[Tiling], needed: int, m: int, n: int, batch: int, tile: tuple[int, int]
) -> None:
    least = [needed or enough(A800, one) for one in tiles]
    assert chosen(tiles, least, m, n, batch)[:2] == tile
