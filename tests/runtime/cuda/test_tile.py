"""Tiles fit registers and shared memory, and the model prefers what finishes first."""

import itertools
from dataclasses import replace

import pytest

from mixpert_py.runtime.cuda.tile import HOPPER, PORTABLE, Chip, Tile, choose, is_grouped
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from tests.runtime.emulations import EMULATIONS

H200 = Chip(HOPPER, 132, 232448)
A100 = Chip(PORTABLE, 108, 163 * 1024)
RTX = Chip(PORTABLE, 128, 99 * 1024)


def emulation(name: str) -> Scheme:
    scheme = get(name)
    assert isinstance(scheme, Scheme)
    return scheme


def tile(name: str, m: int, n: int, *, chip: Chip = H200, batch: int = 1, **more: object) -> Tile:
    given = {"blocks": 1, "steps_per_block": 8, "wide": False} | more
    return choose(emulation(name), m, n, batch, chip=chip, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("chip", [H200, A100, RTX], ids=["H200", "A100", "RTX"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", EMULATIONS)
def test_every_scheme_has_a_tile_that_fits(name: str, wide: bool, chip: Chip) -> None:
    blocks, steps = (256, 0) if name.startswith("mixpert") else (1, 128)
    scheme = EMULATIONS[name]
    short = {"blocks": 64, "steps_per_block": 2} if steps else {}
    for more, n in itertools.product(({}, short), (50, 100, 200, 500, 8192)):
        given = {"blocks": blocks, "steps_per_block": steps, "wide": wide} | more
        it = tile(name, 8192, n, chip=chip, **given)
        stage = 64 * (scheme.left.count * it.m + scheme.right.count * it.n)
        assert it.shared == it.stages * stage
        assert it.stages >= 2
        # What gemm_sm90.cu has beside its ring, which begins at a multiple of 1024 bytes.
        beside = 2 * 8 * it.stages + 4
        if not (it.promote and scheme.exact):
            beside += it.m // 64 * (64 + it.n) * (16 if wide else 8)
        ours = chip.family is HOPPER
        assert it.shared + (-(-beside // 1024) * 1024 if ours else 0) <= chip.shared


@pytest.mark.parametrize(
    ("name", "width"), [("int8x1", 256), ("int8x3", 192), ("int8x6", 128), ("int8x10", 96)]
)
def test_large_products_take_the_widest_tile_that_registers_hold(name: str, width: int) -> None:
    assert (tile(name, 16384, 16384).m, tile(name, 16384, 16384).n) == (128, width)


def test_a_product_that_does_not_fill_the_chip_takes_narrower_tiles() -> None:
    assert tile("int8x6", 1024, 1024).n == 64
    assert tile("int8x6", 1024, 1024, batch=100).n == 128


def test_short_blocks_and_floating_point_sums_are_promoted() -> None:
    assert not tile("int8x6", 512, 512).promote
    assert not tile("int8x6", 512, 512, blocks=4, steps_per_block=16).promote
    assert tile("int8x6", 512, 512, blocks=4, steps_per_block=2).promote
    assert tile("fp16x3", 512, 512).promote


def test_only_tiles_of_16_by_8_share_powers_of_two() -> None:
    assert is_grouped(emulation("mixpert-IV"))
    assert not is_grouped(emulation("int8x6"))
    scheme = emulation("mixpert-IV")
    assert not is_grouped(replace(scheme, left=replace(scheme.left, group=8)))  # type: ignore[arg-type]
