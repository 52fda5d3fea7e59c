"""Tiles fit registers and shared memory."""

from dataclasses import replace

import pytest

from mixpert_py.runtime.model.kernel_times import (
    HOPPER,
    PORTABLE,
    Chip,
    Depth,
    Tile,
    candidates,
    is_grouped,
)
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


def tiles(
    name: str, chip: Chip = H200, wide: bool = False, blocks: int = 1, steps_per_block: int = 8
) -> tuple[Tile, ...]:
    depth = Depth(blocks * max(1, steps_per_block), blocks, steps_per_block)
    return candidates(emulation(name), depth, wide=wide, chip=chip)


@pytest.mark.parametrize("chip", [H200, A100, RTX], ids=["H200", "A100", "RTX"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", EMULATIONS)
def test_every_scheme_has_tiles_that_fit(name: str, wide: bool, chip: Chip) -> None:
    scheme = EMULATIONS[name]
    grouped = name.startswith("mixpert")
    for blocks, steps in ((256, 0),) if grouped else ((1, 128), (64, 2)):
        found = tiles(name, chip, wide, blocks, steps)
        assert found
        assert found == tuple(sorted(found, key=lambda it: (-it.m, -it.n))), "the largest first"
        for it in found:
            stage = 64 * (scheme.left.count * it.m + scheme.right.count * it.n)
            assert it.shared == it.stages * stage
            assert it.stages >= 2
            # What gemm_sm90.cu has beside its ring, which begins at a multiple of 1024 bytes.
            beside = 2 * 8 * it.stages + 4
            if not (it.promote and scheme.exact):
                beside += it.m // 64 * (64 + it.n) * (16 if wide else 8)
            ours = chip.family is HOPPER
            assert it.shared + (-(-beside // 1024) * 1024 if ours else 0) <= chip.shared


def test_short_blocks_and_floating_point_sums_are_promoted() -> None:
    assert not tiles("int8x6")[0].promote
    assert not tiles("int8x6", blocks=4, steps_per_block=16)[0].promote
    assert tiles("int8x6", blocks=4, steps_per_block=2)[0].promote
    assert tiles("fp16x3")[0].promote


def test_only_tiles_of_16_by_8_share_powers_of_two() -> None:
    assert is_grouped(emulation("mixpert-IV"))
    assert not is_grouped(emulation("int8x6"))
    scheme = emulation("mixpert-IV")
    assert not is_grouped(replace(scheme, left=replace(scheme.left, group=8)))  # type: ignore[arg-type]
