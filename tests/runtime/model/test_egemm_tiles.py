"""The model after EGEMM-TC on the T4: the published blocking, and what the equations would prefer.

The published figures (Tables 3 and 4) are from memory, not checked against the paper's text:
(bm, bn, bk) = (128, 128, 32), (wm, wn, wk) = (64, 32, 8), 36 KiB of shared memory a block, a block
and eight warps at a time, of 64 KiB of shared memory and 256 KiB of registers.
"""

from itertools import product

import pytest
from msgspec.structs import replace as replaced

from mixpert_py.runtime.model.device_model import L2
from mixpert_py.runtime.model.egemm_tiles import (
    WARP,
    Assessment,
    Blocking,
    assess,
    best,
    blocking_of,
)
from mixpert_py.runtime.model.kernel_times import chip_of
from mixpert_py.runtime.model.known_devices import find
from mixpert_py.runtime.model.tile import HOPPER, PORTABLE, Depth, Family, Tile, candidates
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

T4 = find("Tesla T4")
H200 = find("NVIDIA H200")
KIB = 1024
PUBLISHED = Blocking(128, 128, 32, 64, 32, 8)
PREFERRED = Blocking(128, 256, 8, 64, 64, 8)


def scheme(name: str = "egemm") -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry


BLOCK_EDGES = (32, 64, 128, 256)
BLOCK_DEPTHS = (8, 16, 32, 64)
WARP_EDGES = (16, 32, 64, 128)
WARPS = (4, 8, 16)  # of a block: each of the four units has one, and a block at most 512 threads


def ranked() -> list[Assessment]:
    """Every blocking of powers of two that breaks no constraint on the T4, the best first."""
    edges = product(BLOCK_EDGES, BLOCK_EDGES, BLOCK_DEPTHS, WARP_EDGES, WARP_EDGES)
    shapes = (Blocking(*shape, 8) for shape in edges)
    fitting = [b for b in shapes if b.wm <= b.bm and b.wn <= b.bn and b.groups in WARPS]
    left = [one for one in map(on_t4, fitting) if not one.broken]
    found = []
    while left:
        found.append(best(left))
        left.remove(found[-1])
    return found


def on_t4(blocking: Blocking) -> Assessment:
    return assess(T4, scheme(), blocking)


def test_the_budget() -> None:
    assert T4.shared.per_multiprocessor == 64 * KIB
    assert 4 * T4.registers.per_multiprocessor == 256 * KIB
    assert T4.rates.float16 == 65e12


def test_the_published_blocking_breaks_no_constraint() -> None:
    found = on_t4(PUBLISHED)
    assert found.broken == ()
    assert PUBLISHED.groups == 8
    assert found.shared == 2 * (128 + 128) * 32 * 2 == 32 * KIB
    # Accumulators, and two slices of 64 and of 32 by 8 of FP16 a warp.
    assert found.registers == 128 * 128 + 8 * 2 * (64 + 32) * 8 * 2 // 4
    assert found.registers == 88 * WARP * 8
    # Four terms of two operations each, over both slices of both operands.
    assert found.intensity == 4 * 2 * 128 * 128 / (2 * (128 + 128) * 2) == 128
    assert found.compute == pytest.approx(4 * 2 * 128 * 128 * 32 * 40 / 65e12)
    assert found.fetch == pytest.approx(8 * 2 * (64 + 32) * 32 * 2 / 64 / 1.59e9)
    assert found.fetch < found.compute / 2


def test_rows_that_are_padded_by_four_elements_make_the_published_shared_memory() -> None:
    """The published 36 KiB are not the 32 KiB of the operands: the model leaves padding out."""
    padded = Blocking(128, 128, 32 + 4, 64, 32, 8)
    assert on_t4(padded).shared == 36 * KIB
    assert 36 * KIB <= T4.shared.per_multiprocessor < 2 * 36 * KIB  # one block at a time


def test_the_l2_has_to_give_more_than_dram_could() -> None:
    """No source for the T4's L2 was found, so that its constraint is not looked at there."""
    found = on_t4(PUBLISHED)
    assert found.load is None
    least = found.shared * 40 / found.compute
    assert least == pytest.approx(508e9, rel=1e-2)
    assert least > T4.dram.bandwidth
    slow, quick = (
        assess(replaced(T4, l2=L2(4 << 20, least * factor)), scheme(), PUBLISHED)
        for factor in (0.99, 1.01)
    )
    assert slow.broken == ("L2 to shared memory",)
    assert quick.broken == ()


# What the equations make of other choices: operations a byte, KiB, registers a thread, and what
# does not hold. The last column says why the published choice is another one.
TABLE = [
    # bm   bn  bk  wm  wn  op/byte  KiB  reg  broken
    ((128, 128, 32, 64, 32), 128, 32, 88, ()),  #  published
    ((128, 128, 32, 64, 64), 128, 32, 160, ()),  #  four warps: nobody to change to while one waits
    ((128, 128, 8, 64, 32), 128, 8, 88, ()),  #  bk does not enter: four times the barriers
    ((128, 128, 64, 64, 32), 128, 64, 88, ()),  #  no room for padding
    ((256, 128, 32, 64, 64), 170.7, 48, 160, ()),  #  see the next test
    ((256, 128, 32, 64, 32), 170.7, 48, 88, ()),  #  the same
    ((256, 256, 32, 64, 64), 256, 64, 160, ("registers",)),
    ((256, 128, 64, 64, 64), 170.7, 96, 160, ("shared memory",)),
    ((64, 64, 32, 32, 16), 64, 16, 28, ()),
    ((64, 64, 32, 16, 8), 64, 16, 10, ("shared memory to registers",)),
]


@pytest.mark.parametrize(("shape", "intensity", "shared", "registers", "broken"), TABLE)
def test_what_the_equations_make_of_choices(
    shape: tuple[int, int, int, int, int],
    intensity: float,
    shared: int,
    registers: int,
    broken: tuple[str, ...],
) -> None:
    blocking = Blocking(*shape, 8)
    found = on_t4(blocking)
    assert found.intensity == pytest.approx(intensity, rel=1e-3)
    assert found.shared == shared * KIB
    assert found.registers == registers * WARP * blocking.groups
    assert found.broken == broken


def in_flight(found: Assessment, bk: int = 32) -> int:
    """Registers a thread, with what the equations leave out: the next bk of K on its way (Turing
    copies to shared memory through registers) and a second set of fragments.
    """
    b = found.blocking
    staged = 2 * (b.bm + b.bn) * bk * 2 // 4
    again = found.registers - b.bm * b.bn
    return (found.registers + staged + again) // (b.groups * WARP)


def test_what_the_equations_would_prefer_and_the_constraint_that_is_missing() -> None:
    order = ranked()
    assert order[0].blocking == PREFERRED
    assert order[0].intensity == pytest.approx(4 / 3 * on_t4(PUBLISHED).intensity)
    assert {one.blocking for one in order} >= {PUBLISHED, PREFERRED}
    # Only tiles of 128 by 256 come before the published edges.
    better = [one for one in order if one.intensity > 128]
    assert {tuple(sorted((o.blocking.bm, o.blocking.bn))) for o in better} == {(128, 256)}
    # Missing: registers of operands on their way. With eight warps they leave 15 of 255 for
    # addresses; of sixteen warps, a thread can have 128.
    most = T4.registers.per_thread
    assert in_flight(on_t4(PUBLISHED)) == 144
    assert in_flight(on_t4(Blocking(128, 256, 32, 64, 64, 8))) == most - 15
    sixteen = on_t4(Blocking(128, 256, 32, 64, 32, 8))
    assert in_flight(sixteen) == 136 > T4.registers.per_multiprocessor // (16 * WARP)


def test_the_order() -> None:
    order = ranked()
    assert not any(one.broken for one in order)
    assert best(order) == order[0]
    keys = [(-one.intensity, -one.reuse, one.shared) for one in order]
    assert keys == sorted(keys)
    assert all(one.blocking.groups in (4, 8, 16) for one in order)


def test_where_all_break_something_the_most_intense_is_the_best() -> None:
    tiny = replaced(T4, shared=replaced(T4.shared, per_block=1))
    both = [assess(tiny, scheme(), Blocking(n, n, 8, 32, 32, 8)) for n in (64, 128)]
    assert all(one.broken == ("shared memory",) for one in both)
    assert best(both) is both[1]


def test_a_thread_has_no_more_than_its_registers() -> None:
    assert on_t4(Blocking(128, 128, 32, 128, 64, 8)).broken == ("registers a thread",)


def test_without_fragments_every_term_reads_again() -> None:
    kept = assess(H200, scheme("int8x6"), Blocking(128, 128, 64, 64, 128, 32, 128))
    read = assess(H200, scheme("int8x6"), Blocking(128, 128, 64, 64, 128, 32, 128, False))
    assert kept.fetch * 6 == pytest.approx(read.fetch * 3)  # three slices each, six terms
    assert read.registers == 3 * 128 * 128  # an accumulator of each order
    assert kept.registers > read.registers


@pytest.mark.parametrize(
    ("family", "m", "n", "of_group", "groups"),
    [
        (HOPPER, 128, 192, (64, 192), 2),
        (HOPPER, 128, 64, (64, 64), 2),
        (PORTABLE, 128, 128, (64, 32), 8),
        (PORTABLE, 128, 64, (32, 32), 8),
        (PORTABLE, 64, 128, (32, 32), 8),
    ],
)
def test_tiles_of_our_kernels(
    family: Family, m: int, n: int, of_group: tuple[int, int], groups: int
) -> None:
    found = blocking_of(scheme("fp16x3"), Tile(m, n, 4, 0, promote=False), family)
    assert (found.bm, found.bn, found.bk, found.wk) == (m, n, 32, 16)
    assert (found.wm, found.wn) == of_group
    assert found.groups == groups
    assert found.groups * found.group == 256  # that multiply
    assert found.fragments == (family is PORTABLE)


def test_a_model_that_does_not_know_the_size_takes_one_tile_on_the_h200() -> None:
    """`int8x6`: wider tiles have no registers, and narrower ones wait for the L2."""
    chip = chip_of(H200)
    tiles = candidates(scheme("int8x6"), Depth(64, 1, 64), wide=False, chip=chip)
    found = [
        assess(H200, scheme("int8x6"), blocking_of(scheme("int8x6"), tile, HOPPER))
        for tile in tiles
    ]
    assert [one.blocking.bn for one in found] == [128, 96, 64]
    assert best(found) is found[0]
    assert found[2].broken == ("L2 to shared memory",)
    assert assess(H200, scheme("int8x6"), Blocking(128, 256, 64, 64, 256, 32, 128, False)).broken
