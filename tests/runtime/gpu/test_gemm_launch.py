"""The GEMM's launch, without a GPU: what is added in memory, and how the last tiles are shared."""

import pytest

from mixpert_py.runtime.gpu.gemm import leaves_c_alone
from mixpert_py.runtime.model import tile as tiles_of
from mixpert_py.runtime.model.tile import (
    HOPPER,
    LEAST_PART,
    MOST_STEPS,
    PORTABLE,
    Chip,
    Cut,
    Depth,
    Family,
    Tile,
    candidates,
)
from mixpert_py.runtime.packing.operand import Layout, layout
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from tests.every_check import sweep

COUNT = 132
TILE = Tile(128, 192, 4, 1 << 17, promote=False)


def scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry


def packed(k: int, block: int | None = None, name: str = "int8x6") -> Layout:
    return layout(scheme(name).left, 1, 300, k, block or k, False)


def depth(place: Layout) -> Depth:
    return Depth(place.steps, place.blocks, place.steps_per_block)


def cut(tiles: int, left: Layout, name: str = "int8x6", chip: Chip | None = None) -> Cut:
    chip = chip or Chip(HOPPER, COUNT, 227 * 1024)
    return tiles_of.cut(scheme(name), TILE, tiles, depth(left), chip)


@pytest.mark.parametrize("family", [HOPPER, PORTABLE], ids=lambda family: family.file)
@pytest.mark.parametrize(
    ("k", "block", "name"),
    sweep(
        [1, 700, 1024, 2048, 5000, 64 * MOST_STEPS, 64 * MOST_STEPS + 1],
        [None, 16, 200, 700, 900, 2048],
        ["int8x1", "int8x6", "int8x10", "fp16x3", "mixpert-IV"],
    ),
)
def test_what_is_promoted_or_one_segment_leaves_c_alone(
    name: str, block: int | None, k: int, family: Family
) -> None:
    whole = scheme(name)
    if whole.exact and name != "mixpert-IV":
        whole = whole.with_block(block)
    place = layout(whole.left, 1, 300, k, whole.lengths(k)[1], False)
    chip = Chip(family, COUNT, 227 * 1024)
    tile = candidates(whole, depth(place), wide=False, chip=chip)[0]
    once = place.blocks == 1 and place.steps <= MOST_STEPS
    assert leaves_c_alone(whole, k) == (tile.promote or once)


@pytest.mark.parametrize("tiles", [1, 9, 44, 45, 132, 141, 264, 300])
@pytest.mark.parametrize("k", [64, 1024, 4096])
def test_parts_of_tiles_fill_the_last_wave(tiles: int, k: int) -> None:
    left = packed(k)
    found = cut(tiles, left)
    assert found.grid <= COUNT
    if found.split:
        assert found.tail == tiles % COUNT
        assert found.tail * found.split <= COUNT
        assert left.steps // found.split >= LEAST_PART
        assert found.grid == (COUNT if tiles > COUNT else found.tail * found.split)
    else:
        assert found == Cut(min(tiles, COUNT))
        assert 3 * (tiles % COUNT or COUNT) > COUNT or left.steps < 3 * LEAST_PART


def test_only_exact_sums_of_one_block_are_cut() -> None:
    assert cut(9, packed(4096)).split
    assert not cut(9, packed(4096, 1024)).split
    assert not cut(9, packed(4096, name="fp16x3"), "fp16x3").split
    assert cut(900, packed(4096), chip=Chip(PORTABLE, COUNT, 99 * 1024)) == Cut(900)
