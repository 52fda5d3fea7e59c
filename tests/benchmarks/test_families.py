"""Families of operands that people have: what they are, at any shape."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.benchmarks.arrays import Numbers, narrow
from tests.benchmarks.families import EVERYDAY, FAMILIES, Source
from tests.runtime.families import Array

SHAPES = [(1, 1, 1), (5, 1, 7), (1, 40, 3), (24, 9, 17), (9, 24, 17), (33, 33, 33)]
SHAPES += [(0, 3, 2), (2, 0, 3), (3, 2, 0)]


def drawn(family: str, shape: tuple[int, int, int], seed: int = 0) -> tuple[Array, Array]:
    a, b = (narrow(x, np.float32) for x in EVERYDAY[family](Numbers(np, seed), *shape))
    return a, b


@pytest.mark.parametrize("family", EVERYDAY)
def test_operands_of_any_shape(family: str) -> None:
    for m, k, n in SHAPES:
        for seed in range(4):
            sources: tuple[Source, ...] = (Numbers(np, seed), np.random.default_rng(seed))
            for source in sources:
                a, b = EVERYDAY[family](source, m, k, n)
                assert (a.shape, b.shape) == ((m, k), (k, n))
                assert a.dtype == b.dtype == np.float64
                a, b = (abs(narrow(x, np.float32)).astype(np.float64) for x in (a, b))
                assert (a @ b).max(initial=0) < 2.0**127  # nor does any partial sum overflow


@pytest.mark.parametrize("family", EVERYDAY)
def test_seeds_differ_and_results_are_not_lost(family: str) -> None:
    """Sums are far above the smallest numbers of float32: errors are those of arithmetic."""
    one, same, other = (drawn(family, (120, 120, 120), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[0], same[0])
    np.testing.assert_array_equal(one[1], same[1])
    assert (one[0] != other[0]).any()
    sizes = np.matmul(*(abs(x.astype(np.float64)) for x in one))
    assert sizes[sizes > 0].min() > 2.0**-115


def scales(x: Array, axis: int) -> Array:
    """The logarithms of the middle sizes of lines."""
    return np.log10(np.median(abs(x), axis=axis))


def in_mixed_units(decades: float) -> Callable[[Array, Array], bool]:
    """Scales of A along K are those of B the other way round, over so many decades."""

    def holds(a: Array, b: Array) -> bool:
        found = scales(a, 0), scales(b, 1)
        widths = [np.ptp(one) for one in found]
        return widths == pytest.approx([decades] * 2, rel=0.15) and (
            np.corrcoef(*found)[0, 1] < -0.95
        )

    return holds


def graded(along: float) -> Callable[[Array, Array], bool]:
    def holds(a: Array, b: Array) -> bool:
        ends = [scales(x, 1)[-1] - scales(x, 1)[0] for x in (a, a.T, b, b.T)]
        return np.array(ends) / np.log10(2) == pytest.approx([-50, -50, along, -50], abs=2)

    return holds


def is_zero_but(places: Callable[[Array, Array], Array]) -> Callable[[Array, Array], bool]:
    i, j = np.ogrid[:300, :300]
    return lambda a, b: all(((x != 0) == places(i, j)).all() for x in (a, b))


def rank(x: Array) -> int:
    return int((np.linalg.svd(x.astype(np.float64), compute_uv=False) > 1e-4).sum())


def share(x: Array) -> float:
    return float(np.mean((x != 0) & (abs(x) < 2.0**-126)))


OF_300: dict[str, Callable[[Array, Array], bool]] = {
    "softmax 4": lambda a, b: a.max() > 0.3 and np.allclose(a.sum(axis=1), 1),
    "softmax 1": lambda a, b: a.max() < 0.3 and np.allclose(a.sum(axis=1), 1),
    "RBF kernel": lambda a, b: (a == a.T).all() and (np.diag(a) == 1).all() and np.median(a) < 1e-3,
    "sparse 1 %": lambda a, b: 0.008 < np.count_nonzero(a) / a.size < 0.012 and a.min() == 0,
    "states 1e±1": in_mixed_units(2),
    "states 1e±3": in_mixed_units(6),
    "features 1e±3": in_mixed_units(6),
    "arrow": is_zero_but(lambda i, j: (i == j) | (i == 0) | (j == 0)),
    "banded": is_zero_but(lambda i, j: abs(i - j) <= 4),
    "low-rank": lambda a, b: rank(a) == rank(b) == 8,
    "permuted": lambda a, b: (np.sort(b) == np.eye(300)[-1]).all() and (b.sum(axis=0) == 1).all(),
}
OF_90: dict[str, Callable[[Array, Array], bool]] = {
    "graded": graded(-50),
    "graded against": graded(50),
    "subnormal-rich": lambda a, b: abs(share(a) - 0.68) < 0.02 and abs(share(b) - 0.34) < 0.02,
    "huge entry": lambda a, b: (abs(a) > 1).sum() == 1 and a.max() == 2.0**127,
}


@pytest.mark.parametrize("family", [*OF_300, *OF_90])
def test_each_is_what_it_says(family: str) -> None:
    size, holds = (300, OF_300[family]) if family in OF_300 else (90, OF_90[family])
    assert holds(*drawn(family, (size,) * 3))


def test_names_are_new() -> None:
    assert not EVERYDAY.keys() & FAMILIES.keys()
