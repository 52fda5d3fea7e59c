"""The model after LE-GEMM: the tiles of its sources, and what it prefers on an A800.

The choices of LE-GEMM's Table 2 could not be had. An A800 is an A100 with slower links between
GPUs: 108 multiprocessors.
"""

import pytest

from mixpert_py.runtime.model.known_devices import find
from samples.papers.legemm_tiles import Tiling, chosen, enough, parallelism

A800 = find("NVIDIA A100-SXM4-80GB")

# Li et al., PPoPP 2019: 256 threads, and 65,536 are enough (tiling/gemm.cu of their code).
LI = [Tiling(m, n, 256) for m, n in ((128, 128), (64, 128), (128, 64), (64, 64), (32, 32))]
LI.append(Tiling(16, 16, 256))
LI_ENOUGH = 65_536

# BatchGEMM of LE-GEMM's first author: 6,000 wavefronts of 64 are enough (CUDA/framework/run.sh).
ZHANG = [Tiling(64, 64, 256), Tiling(32, 64, 256), Tiling(32, 32, 128), Tiling(16, 32, 128)]
ZHANG.append(Tiling(16, 16, 128))
ZHANG_ENOUGH = 6_000 * 64 + 1  # their loop goes on at 6,000 itself


@pytest.mark.parametrize(
    ("tiling", "m", "n", "batch", "threads", "work"),
    [
        (LI[0], 128, 128, 4, 4 * 256, 64),
        (LI[0], 129, 128, 4, 8 * 256, 64),
        (LI[3], 128, 128, 16, 4 * 16 * 256, 16),
        (ZHANG[4], 512, 512, 8, 8 * 1024 * 128, 2),
        (ZHANG[0], 512, 512, 8, 8 * 64 * 256, 16),
    ],
)
def test_parallelism(tiling: Tiling, m: int, n: int, batch: int, threads: int, work: int) -> None:
    assert parallelism(tiling, m, n, batch) == threads
    assert tiling.work == work


@pytest.mark.parametrize(
    ("n", "batch", "tile"),
    [
        *((128, 4, (16, 16)), (128, 16, (32, 32)), (128, 64, (64, 64)), (512, 4, (64, 64))),
        *((512, 8, (64, 128)), (1024, 64, (128, 128)), (64, 1, (16, 16))),
    ],
)
def test_the_tiles_that_it_comes_from(n: int, batch: int, tile: tuple[int, int]) -> None:
    """Li's code goes one tile further, to the first that has too few threads: blocks that get
    several tiles, its batching, make up for that, and are no part of this model.
    """
    assert chosen(LI, [LI_ENOUGH] * len(LI), n, n, batch)[:2] == tile


@pytest.mark.parametrize(
    ("batch", "tile"),
    [(8, (16, 32)), (16, (32, 64)), (32, (64, 64)), (256, (64, 64)), (1, (16, 16))],
)
def test_the_authors_own_tiles(batch: int, tile: tuple[int, int]) -> None:
    """512 × 512 products, their benchmark: a batch of 24 fills the chip with the largest tile."""
    assert chosen(ZHANG, [ZHANG_ENOUGH] * len(ZHANG), 512, 512, batch)[:2] == tile


def test_enough_is_what_a_chip_holds() -> None:
    assert enough(A800, Tiling(128, 128, 256)) == 108 * 256
    assert enough(A800, Tiling(128, 128, 256), blocks=2) == 2 * 108 * 256


# What the model prefers on an A800, of tiles of 256 threads: by how many there are of the tile,
# and how many times the chip is filled by it.
ON_AN_A800 = [
    #  m      n    batch  tile      blocks  filled
    (1024, 1024, 1, (128, 64), 128, 1.19),  #  a second wave for 20 tiles
    (1280, 1280, 1, (128, 64), 200, 1.85),
    (1408, 1408, 1, (128, 128), 121, 1.12),  #  a second wave for 13 tiles
    (2048, 2048, 1, (128, 128), 256, 2.37),
    (4096, 4096, 1, (128, 128), 1024, 9.48),
    (8192, 256, 1, (128, 128), 128, 1.19),
    (192, 192, 16, (64, 64), 144, 1.33),
]
TILES = [Tiling(m, n, 256) for m, n in ((128, 128), (128, 64), (64, 64))]


@pytest.mark.parametrize(("m", "n", "batch", "tile", "blocks", "filled"), ON_AN_A800)
def test_what_it_prefers_on_an_a800(
    m: int, n: int, batch: int, tile: tuple[int, int], blocks: int, filled: float
) -> None:
    found = chosen(TILES, [enough(A800, one) for one in TILES], m, n, batch)
    assert found[:2] == tile
    threads = parallelism(found, m, n, batch)
    assert threads == blocks * 256
    assert threads / enough(A800, found) == pytest.approx(filled, abs=0.005)
