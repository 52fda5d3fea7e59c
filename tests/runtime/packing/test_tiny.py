"""How a block shares out a stack of tiny products."""

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
    turns,
)

SIDES = 1, 3, 16, 31
MEMORIES = Memory("along", True), Memory("across", True), Memory("stack", False)
STATIC = 48 * 1024  # bytes of shared memory that a kernel may have without asking


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


def test_turns() -> None:
    cases = [(range(32), 1), ([0] * 32, 1), (range(0, 64, 2), 1), (range(0, 1024, 32), 1)]
    cases += [(range(0, 128, 4), 4), ([0, 32] * 16, 4), ([0] * 8, 4)]
    assert [turns(places, size) for places, size in cases] == [1, 1, 2, 32, 4, 8, 1]
