"""The default's contract in numbers, on products whose errors can be worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.contract import Errors, Sums, errors
from tests.benchmarks.judgement import Exact

U, INF = 2.0**-24, math.inf
# A B = [[11, −3], [4, −3]], |A||B| = [[11, 9], [4, 3]], (A∘A)(B∘B) = [[73, 45], [16, 9]].
EXACT = Exact.of(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[3.0, 3.0], [4.0, -3.0]]))


@pytest.mark.parametrize(
    ("error", "frobenius", "componentwise"),
    [
        ([[22, 0], [0, -12]], U * math.sqrt((22**2 + 12**2) / 155), 4),  # 12 of 3, not 22 of 11
        ([[0, 9], [0, 0]], U * 9 / math.sqrt(155), 1),  # 9 of 9: |C| is 3
        ([[0, INF], [0, 0]], INF, INF),
        ([[0, math.nan], [0, 0]], INF, INF),
    ],
)
def test_errors_by_hand(error: Any, frobenius: float, componentwise: float) -> None:
    found = errors(EXACT, EXACT.product + U * np.array(error, float))
    assert found == Errors(pytest.approx(frobenius), pytest.approx(componentwise))


@pytest.mark.parametrize(
    ("exact", "terms", "floor"),
    [
        # (|A||B|)² over (A∘A)(B∘B): 121 / 73, 81 / 45, 1, 1.
        (EXACT, (121 / 73 + 1) / 2, 3.5 * U * math.sqrt((73 + 45 + 16 + 9) / 155)),
        (Exact.of(np.full((3, 100), 7.0), np.full((100, 2), -3.0)), 100, 3.5 * U / 10),
        (Exact.of(np.array([[2.0], [0.0]]), np.array([[1.0, 0.0, 0.0]])), 1, 3.5 * U),
        (Exact.of(np.array([[1.0, 1.0]]), np.array([[1.0], [-1.0]])), 2, INF),  # it cancels
    ],
)
def test_sums_by_hand(exact: Exact, terms: float, floor: float) -> None:
    assert Sums.of(exact) == Sums(pytest.approx(terms), pytest.approx(floor))


@pytest.mark.parametrize(
    ("own", "vendor", "floor", "over"),
    [
        ((3e-7, 0), (6e-7, 0), 2e-7, (0.5, 0)),  # the vendor's error is what is allowed
        ((3e-7, 0), (1e-7, 0), 2e-7, (1.5, 0)),  # the floor is
        ((0, 6), (0, 3), 0, (0, 0.5)),  # 12 units of an element are
        *(((1e-9, 24), (0, 3), 0, (INF, 2)), ((INF, 24), (INF, 48), 2e-7, (INF, 0.5))),
        ((1e-7, INF), (1e-7, 1), INF, (0, INF)),
    ],
)
def test_errors_over_what_is_allowed(own: Any, vendor: Any, floor: float, over: Any) -> None:
    assert Errors(*own).over(Errors(*vendor), floor) == Errors(*map(pytest.approx, over))
