"""The GEMM's launch, without a GPU: how the last tiles are shared."""

import pytest

from mixpert_py.runtime.model import tile as tiles_of
from mixpert_py.runtime.model.tile import (
    HOPPER,
    LEAST_PART,
    PORTABLE,
    Chip,
    Cut,
    Depth,
    Tile,
)
from mixpert_py.runtime.packing.operand import Layout, layout
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

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
