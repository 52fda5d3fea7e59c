"""Families of operands that people have: what they are, at any shape."""

import numpy as np
import pytest

from tests.benchmarks.arrays import Numbers, narrow
from tests.benchmarks.families import EVERYDAY, FAMILIES, Source
from tests.runtime.families import Array

SHAPES = [(1, 1, 1), (5, 1, 7), (1, 40, 3), (24, 9, 17), (9, 24, 17), (17, 9, 24), (33, 33, 33)]


def drawn(family: str, shape: tuple[int, int, int], seed: int = 0) -> tuple[Array, Array]:
    a, b = (narrow(x, np.float32) for x in EVERYDAY[family](Numbers(np, seed), *shape))
    return a, b


@pytest.mark.parametrize("family", EVERYDAY)
class TestEvery:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_operands_of_any_shape(self, family: str, shape: tuple[int, int, int]) -> None:
        m, k, n = shape
        for seed in range(4):
            sources: tuple[Source, ...] = (Numbers(np, seed), np.random.default_rng(seed))
            for source in sources:
                a, b = EVERYDAY[family](source, m, k, n)
                assert (a.shape, b.shape) == ((m, k), (k, n))
                assert a.dtype == b.dtype == np.float64
                a, b = (narrow(x, np.float32) for x in (a, b))
                most = abs(a).astype(np.float64) @ abs(b).astype(np.float64)
                assert most.max() < 2.0**127  # nor does any partial sum overflow

    @pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (3, 2, 0)], ids=str)
    def test_empty_operands(self, family: str, shape: tuple[int, int, int]) -> None:
        m, k, n = shape
        a, b = EVERYDAY[family](Numbers(np, 1), m, k, n)
        assert (a.shape, b.shape) == ((m, k), (k, n))

    def test_seeds_differ(self, family: str) -> None:
        one, same, other = (drawn(family, (120, 120, 120), seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one[0], same[0])
        np.testing.assert_array_equal(one[1], same[1])
        assert (one[0] != other[0]).any()

    def test_the_result_is_not_lost(self, family: str) -> None:
        """Sums are far above the smallest numbers of float32: errors are those of arithmetic."""
        a, b = (x.astype(np.float64) for x in drawn(family, (120, 120, 120)))
        sizes = abs(a) @ abs(b)
        assert sizes[sizes > 0].min() > 2.0**-115


class TestEach:
    def test_names_are_new(self) -> None:
        assert not EVERYDAY.keys() & FAMILIES.keys()

    def test_softmax(self) -> None:
        a, _ = drawn("softmax 4", (9, 40, 3))
        np.testing.assert_allclose(a.sum(axis=1), 1, rtol=1e-6)
        assert a.max() > 20 / 40
        assert drawn("softmax 1", (9, 40, 3))[0].max() < 20 / 40

    def test_kernel_of_points_with_themselves(self) -> None:
        a, _ = drawn("RBF kernel", (40, 40, 3))
        np.testing.assert_array_equal(np.diag(a), 1)
        np.testing.assert_array_equal(a, a.T)
        assert np.median(a) < 1e-3

    def test_sparse(self) -> None:
        for x in drawn("sparse 1 %", (300, 400, 200)):
            assert np.count_nonzero(x) / x.size == pytest.approx(0.01, rel=0.2)
            assert x.min() == 0

    @pytest.mark.parametrize(("family", "orders"), [("states 1e±1", 1), ("states 1e±3", 3)])
    def test_states_in_mixed_units(self, family: str, orders: int) -> None:
        a, b = drawn(family, (300, 300, 300))
        np.testing.assert_allclose(b, b.T)  # D P D
        assert np.linalg.eigvalsh(b.astype(np.float64)).min() > -1e-6 * b.max()
        # Scales of A along K are those of B the other way round, over both signs of the orders.
        scales = [np.median(abs(x), axis=axis) for x, axis in ((a, 0), (b, 1))]
        decades = [np.ptp(np.log10(scale)) for scale in scales]
        assert decades == pytest.approx([2 * orders] * 2, rel=0.15)
        assert np.corrcoef(*map(np.log, scales))[0, 1] < -0.95

    def test_features_in_mixed_units(self) -> None:
        a, b = drawn("features 1e±3", (300, 300, 300))
        scales = [np.median(abs(x), axis=axis) for x, axis in ((a, 0), (b, 1))]
        assert np.ptp(np.log10(scales[0])) == pytest.approx(6, rel=0.1)
        assert np.corrcoef(*map(np.log, scales))[0, 1] < -0.95

    @pytest.mark.parametrize(("family", "along"), [("graded", -50), ("graded against", 50)])
    def test_graded(self, family: str, along: int) -> None:
        a, b = drawn(family, (90, 90, 90))
        found = [
            np.log2(np.median(abs(x[-1:]), axis=1) / np.median(abs(x[:1]), axis=1))
            for x in (a, a.T, b, b.T)
        ]
        assert np.ravel(found) == pytest.approx([-50, -50, along, -50], abs=2)

    def test_zeros(self) -> None:
        places = np.arange(30)
        i, j = places[:, None], places
        for x in drawn("arrow", (30, 30, 30)):
            np.testing.assert_array_equal(x != 0, (i == j) | (i == 0) | (j == 0))
        for x in drawn("banded", (30, 30, 30)):
            np.testing.assert_array_equal(x != 0, abs(i - j) <= 4)

    def test_low_rank(self) -> None:
        for x in drawn("low-rank", (40, 50, 60)):
            found = np.linalg.svd(x.astype(np.float64), compute_uv=False)
            assert found[7] > 1
            assert found[8] < 1e-5

    def test_subnormals(self) -> None:
        shares = [
            np.mean((x != 0) & (abs(x) < 2.0**-126)) for x in drawn("subnormal-rich", (90, 90, 90))
        ]
        assert shares == pytest.approx([0.68, 0.34], abs=0.02)

    @pytest.mark.parametrize("shape", [(3, 20, 20), (3, 12, 20), (3, 20, 12)], ids=str)
    def test_permutation(self, shape: tuple[int, int, int]) -> None:
        _, b = drawn("permuted", shape)
        assert set(b.sum(axis=0)) | set(b.sum(axis=1)) <= {0, 1}
        assert set(np.unique(b)) == {0, 1}
        if shape == (3, 20, 20):
            assert b.sum() == 20
            assert not np.array_equal(b, np.eye(20))

    def test_one_huge_entry(self) -> None:
        a, b = drawn("huge entry", (20, 30, 40))
        (row,), (column,) = np.nonzero(abs(a) > 1)
        assert a[row, column] == 2.0**127
        assert not b[column, 1::2].any()
        assert b[column, ::2].all()
        assert np.median(abs(b)) == pytest.approx(2.0**-20 * 0.67, rel=0.1)
