"""Families of operands that people have: what they are, at any shape."""

import numpy as np
import pytest

from tests.benchmarks.arrays import Numbers, narrow
from tests.benchmarks.families import EVERYDAY

SHAPES = [(1, 1, 1), (5, 1, 7), (1, 40, 3), (24, 9, 17), (9, 24, 17), (0, 3, 2), (2, 0, 3)]


@pytest.mark.parametrize("family", EVERYDAY)
def test_operands_of_any_shape(family: str) -> None:
    for m, k, n in SHAPES:
        for source in (Numbers(np, 0), np.random.default_rng(0)):
            a, b = EVERYDAY[family](source, m, k, n)
            assert (a.shape, b.shape, a.dtype, b.dtype) == ((m, k), (k, n), "d", "d")
            a, b = (abs(narrow(x, np.float32)).astype(np.float64) for x in (a, b))
            assert (a @ b).max(initial=0) < 2.0**127  # nor does any partial sum overflow
    one, same, other = (EVERYDAY[family](Numbers(np, seed), 120, 120, 120) for seed in (1, 1, 2))
    assert (one[0] == same[0]).all()
    assert (one[1] == same[1]).all()
    assert (one[0] != other[0]).any()
    # Sums are far above the smallest numbers of float32: errors are those of arithmetic.
    sizes = np.matmul(*(abs(narrow(x, np.float32).astype(np.float64)) for x in one))
    assert sizes[sizes > 0].min() > 2.0**-115
