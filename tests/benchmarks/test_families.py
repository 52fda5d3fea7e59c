"""Families of operands that people have: what they are, at any shape."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.benchmarks.arrays import Numbers, narrow
from tests.benchmarks.families import EVERYDAY, FAMILIES
from tests.runtime.families import Array

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


def decades(x: Array, axis: int) -> Array:
    """The logarithms of the middle sizes of lines."""
    return np.log10(np.median(abs(x), axis=axis))


def is_mixed(a: Array, b: Array, width: float) -> bool:
    """Whether scales of A along K are those of B the other way round, over so many decades."""
    found = decades(a, 0), decades(b, 1)
    is_wide = [np.ptp(one) for one in found] == pytest.approx([width] * 2, rel=0.15)
    return is_wide and np.corrcoef(*found)[0, 1] < -0.95


def is_graded(a: Array, b: Array, along: float) -> bool:
    ends = [np.diff(decades(x, 1)[[0, -1]])[0] for x in (a, a.T, b, b.T)]
    return np.array(ends) / np.log10(2) == pytest.approx([-50, -50, along, -50], abs=2)


def share(x: Array) -> float:
    return float(np.mean((x != 0) & (abs(x) < 2.0**-126)))


def is_at(x: Array, places: Array) -> bool:
    return bool(((x != 0) == places).all())


ROW, COLUMN = np.ogrid[:90, :90]
ARROW, BAND = (ROW == COLUMN) | (ROW == 0) | (COLUMN == 0), abs(ROW - COLUMN) <= 4
HOLDS: dict[str, Callable[[Array, Array], bool]] = {
    "softmax 4": lambda a, b: a.max() > 0.5 and np.allclose(a.sum(axis=1), 1),
    "softmax 1": lambda a, b: a.max() < 0.5 and np.allclose(a.sum(axis=1), 1),
    "RBF kernel": lambda a, b: (a == a.T).all() and (np.diag(a) == 1).all() and np.median(a) < 1e-3,
    "sparse 1 %": lambda a, b: 0.005 < np.count_nonzero(a) / a.size < 0.015 and a.min() == 0,
    "states 1e±1": lambda a, b: is_mixed(a, b, 2),
    "states 1e±3": lambda a, b: is_mixed(a, b, 6),
    "features 1e±3": lambda a, b: is_mixed(a, b, 6),
    "arrow": lambda a, b: is_at(a, ARROW) and is_at(b, ARROW),
    "banded": lambda a, b: is_at(a, BAND) and is_at(b, BAND),
    "low-rank": lambda a, b: np.linalg.matrix_rank(a, 1e-4) == np.linalg.matrix_rank(b, 1e-4) == 8,
    "permuted": lambda a, b: (np.sort(b) == np.eye(90)[-1]).all() and (b.sum(axis=0) == 1).all(),
    "graded": lambda a, b: is_graded(a, b, -50),
    "graded against": lambda a, b: is_graded(a, b, 50),
    "subnormal-rich": lambda a, b: abs(share(a) - 0.68) < 0.02 and abs(share(b) - 0.34) < 0.02,
    "huge entry": lambda a, b: (abs(a) > 1).sum() == 1 and a.max() == 2.0**127,
}


@pytest.mark.parametrize("family", HOLDS)
def test_each_is_what_it_says(family: str) -> None:
    a, b = EVERYDAY[family](Numbers(np, 0), 90, 90, 90)
    assert HOLDS[family](narrow(a, np.float32), narrow(b, np.float32))
    assert not EVERYDAY.keys() & FAMILIES.keys()
