"""The default's contract in numbers, on products whose errors can be worked out by hand."""

import math

import numpy as np
import pytest

from tests.benchmarks.contract import Errors, Sums, allowed, errors
from tests.benchmarks.judgement import Exact

U = 2.0**-24
# A B = [[11, −3], [4, −3]], |A||B| = [[11, 9], [4, 3]], (A∘A)(B∘B) = [[73, 45], [16, 9]].
A = np.array([[1.0, 2.0], [0.0, 1.0]])
B = np.array([[3.0, 3.0], [4.0, -3.0]])
EXACT = Exact.of(A, B)


class TestErrors:
    def test_by_hand(self) -> None:
        """‖C‖F = √155."""
        value = EXACT.product + U * np.array([[22.0, 0.0], [0.0, -12.0]])
        found = errors(EXACT, value)
        assert found.frobenius == pytest.approx(U * math.sqrt((22**2 + 12**2) / 155))
        assert found.componentwise == pytest.approx(4.0)  # 12 of 3, not 22 of 11

    def test_the_sizes_of_terms_count_and_not_of_their_sum(self) -> None:
        value = EXACT.product + U * np.array([[0.0, 9.0], [0.0, 0.0]])
        assert errors(EXACT, value).componentwise == pytest.approx(1.0)  # 9 of 9: |C| is 3

    def test_float32(self) -> None:
        exact = Exact.of(np.float32([[1 + 2.0**-23]]), np.float32([[1 + 2.0**-23]]))
        found = errors(exact, np.float32([[1 + 2.0**-22]]))
        assert found.frobenius == pytest.approx(2.0**-46)
        assert found.componentwise == pytest.approx(2.0**-22)

    def test_where_nothing_is_summed_there_is_no_error(self) -> None:
        exact = Exact.of(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0], [5.0, 0.0]]))
        assert errors(exact, np.array([[0.0, 2.0]])) == Errors(0.0, 0.0)
        wrong = errors(exact, np.array([[2.0**-149, 2.0]]))
        assert wrong.componentwise == math.inf
        assert wrong.frobenius == 2.0**-150

    @pytest.mark.parametrize("value", [np.inf, np.nan])
    def test_what_is_not_finite_is_infinitely_wrong(self, value: float) -> None:
        product = EXACT.product.copy()
        product[0, 1] = value
        assert errors(EXACT, product) == Errors(math.inf, math.inf)

    @pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3)], ids=str)
    def test_nothing(self, shape: tuple[int, int, int]) -> None:
        m, k, n = shape
        empty = Exact.of(np.zeros((m, k)), np.zeros((k, n)))
        assert errors(empty, np.zeros((m, n), np.float32)) == Errors(0.0, 0.0)

    @pytest.mark.parametrize(("a", "b"), [(2.0**127, 1.0), (2.0**-149, 2.0**-149), (2.0**64,) * 2])
    def test_the_ends_of_float32(self, a: float, b: float) -> None:
        exact = Exact.of(np.full((2, 4), a), np.full((4, 2), b))
        found = errors(exact, exact.product * (1 + 8 * U))
        assert found.frobenius == pytest.approx(8 * U)
        assert found.componentwise == pytest.approx(8)
        assert Sums.of(exact).terms == pytest.approx(4)
        assert Sums.of(exact).floor == pytest.approx(3.5 * U / 2)  # ‖√S‖F / ‖C‖F = √4 / 4


class TestSums:
    def test_by_hand(self) -> None:
        """(|A||B|)² over (A∘A)(B∘B): 121 / 73, 81 / 45, 1, 1."""
        found = Sums.of(EXACT)
        assert found.floor == pytest.approx(3.5 * U * math.sqrt((73 + 45 + 16 + 9) / 155))
        assert found.terms == pytest.approx((121 / 73 + 1) / 2)

    def test_equal_terms_all_count(self) -> None:
        found = Sums.of(Exact.of(np.full((3, 100), 7.0), np.full((100, 2), -3.0)))
        assert found.terms == pytest.approx(100)
        assert found.floor == pytest.approx(3.5 * U / 10)

    def test_sums_without_terms_are_left_out(self) -> None:
        exact = Exact.of(np.array([[2.0], [0.0]]), np.array([[1.0, 0.0, 0.0]]))
        assert Sums.of(exact) == Sums(1.0, 3.5 * U)

    def test_nothing(self) -> None:
        assert Sums.of(Exact.of(np.zeros((2, 3)), np.ones((3, 2)))) == Sums(0.0, 0.0)

    def test_what_cancels_has_no_floor(self) -> None:
        exact = Exact.of(np.array([[1.0, 1.0]]), np.array([[1.0], [-1.0]]))
        assert Sums.of(exact) == Sums(2.0, math.inf)


class TestOver:
    @pytest.mark.parametrize(
        ("own", "vendor", "floor", "over"),
        [
            (3e-7, 6e-7, 2e-7, 0.5),  # the vendor's error is what is allowed
            (3e-7, 1e-7, 2e-7, 1.5),  # the floor is
            (2e-7, 0.0, 2e-7, 1.0),
            (0.0, 0.0, 0.0, 0.0),
            (1e-9, 0.0, 0.0, math.inf),
            (math.inf, math.inf, 2e-7, math.inf),
            (1e-7, 1e-7, math.inf, 0.0),
        ],
    )
    def test_norm(self, own: float, vendor: float, floor: float, over: float) -> None:
        found = Errors(own, 0.0).over(Errors(vendor, 0.0), floor)
        assert found == Errors(pytest.approx(over), 0.0)

    @pytest.mark.parametrize(
        ("own", "vendor", "over"),
        [(6.0, 3.0, 0.5), (24.0, 3.0, 2.0), (24.0, 48.0, 0.5), (math.inf, 1.0, math.inf)],
    )
    def test_largest(self, own: float, vendor: float, over: float) -> None:
        """At least 12 u are allowed."""
        found = Errors(0.0, own).over(Errors(0.0, vendor), 1e-7)
        assert found == Errors(0.0, pytest.approx(over))


def test_what_is_allowed_by_hand() -> None:
    found = allowed(2, EXACT.absolute)
    np.testing.assert_allclose(found, 14 * U * np.array([[11.0, 9.0], [4.0, 3.0]]), rtol=1e-15)
    assert allowed(5, 0.0) == 5 * 2.0**-149
