"""Stacks of tiny products: how a block shares them out, and the kernel in Numba's simulator."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.kernels.tiny_block import (
    FEWEST,
    FOUR,
    LOADS,
    RESIDENT,
    WARP,
    Matrix,
    Memory,
    block,
    lane_spot,
    spot_of,
    turns,
)
from tests.runtime.packing.child import run

SIDES = 1, 3, 16, 31
MEMORIES = Memory("along", True), Memory("across", True), Memory("stack", False)
STATIC = 48 * 1024  # bytes of shared memory that a kernel may have without asking


def test_the_kernel_in_the_simulator() -> None:
    assert "passed" in run("tests/runtime/packing/simulated/tiny_checks.py", simulated=True)


@pytest.mark.parametrize("memories", [(x, x) for x in MEMORIES] + [MEMORIES[:2]], ids=str)
@pytest.mark.parametrize("m", SIDES)
def test_blocks_of_any_size(m: int, memories: tuple[Memory, Memory]) -> None:
    for k, n in product(SIDES, SIDES):
        it = block(m, k, n, *memories)
        assert it.products % FEWEST == 0 == it.threads % WARP
        assert it.products * it.down * it.along <= it.threads <= RESIDENT // 4
        assert it.a.loads + it.b.loads <= LOADS + 2
        assert 4 * it.floats <= STATIC
        if n % FOUR:
            assert it.floats >= it.products * m * n
        for x in (it.a, it.b):
            assert x.loads * FOUR >= x.singles
            assert x.singles * it.threads >= it.products * x.lines * x.length
            assert x.line % x.unit == x.product % x.unit == 0
        b = it.products * it.a.product
        assert b % FOUR == 0
        places = np.concatenate([words(it.a, it.products), b + words(it.b, it.products)])
        assert len(np.unique(places)) == places.size
        assert places.max() < it.floats


def words(x: Matrix, products: int) -> Any:
    """Where all elements are in shared memory."""
    p, i, j = np.ogrid[:products, : x.lines, : x.length]
    return (p * x.product + i * x.line + j * x.place).ravel()


@pytest.mark.parametrize("side", [4, 8, 16, 32])
@pytest.mark.parametrize("memories", [(x, x) for x in MEMORIES], ids=str)
def test_threads_read_shared_memory_without_waiting(
    side: int, memories: tuple[Memory, Memory]
) -> None:
    it = block(side, side, side, *memories)
    lanes = it.down * it.along
    spots = [(t // lanes, *lane_spot(t % lanes, it.down, it.along)) for t in range(WARP)]
    assert turns([p * it.a.product + row * it.a.line for p, row, _ in spots], FOUR) == 4
    assert turns([p * it.b.product + FOUR * group for p, _, group in spots], FOUR) == 4


@pytest.mark.parametrize("order", ["along", "across", "stack"])
def test_spots(order: str) -> None:
    x = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    laid = {"along": x, "across": x.transpose(0, 2, 1), "stack": x.transpose(1, 2, 0)}[order]
    spot = spot_of(3, 5, order, 2)
    assert [int(x[spot(np.uint32(at))]) for at in range(30)] == laid.ravel().tolist()


@pytest.mark.parametrize(("down", "along"), [(4, 4), (1, 3), (3, 2), (8, 8), (2, 6), (1, 1)])
def test_every_row_and_column_is_some_threads(down: int, along: int) -> None:
    spots = {lane_spot(lane, down, along) for lane in range(down * along)}
    assert spots == set(product(range(down), range(along)))


def test_turns() -> None:
    assert turns(range(32), 1) == 1
    assert turns([0] * 32, 1) == 1
    assert turns(range(0, 64, 2), 1) == 2
    assert turns(range(0, 32 * 32, 32), 1) == 32
    assert turns(range(0, 128, 4), 4) == 4
    assert turns([0, 32] * 16, 4) == 8
    assert turns([0] * 8, 4) == 1
