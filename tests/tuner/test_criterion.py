"""Criteria against their formulas, on special values and at the ends of float64's range."""

from collections.abc import Callable
from math import inf, isnan, nan, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py.errors import MixPertError, ProgramError, ShapeError
from mixpert_py.tuner import criterion
from mixpert_py.tuner.criterion import (
    CRITERIA,
    differing,
    errors,
    frobenius,
    max_relative,
    maximum,
    mred,
)

Array = npt.NDArray[Any]
HUGE = 1.7e308
TINY = 5e-324

FORMULAS: dict[str, Callable[[Array, Array], float]] = {
    "frobenius": lambda x, y: float(np.sqrt(np.sum(abs(x - y) ** 2) / np.sum(abs(x) ** 2))),
    "max": lambda x, y: float(np.max(abs(x - y))),
    "max-relative": lambda x, y: float(np.max(abs(x - y) / (abs(x) + abs(y)))),
    "mred": lambda x, y: float(np.mean(abs(x - y) / abs(x))),
    "differing": lambda x, y: float(np.mean(x != y)),
}


def pair(dtype: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    x = rng.uniform(1, 9, shape)
    y = x + rng.normal(0, 1, shape)
    if dtype == "complex128":
        x, y = x + 1j * y, y - 1j * x
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "complex128"])
@pytest.mark.parametrize("rows", [37, criterion.CHUNK // 4])
def test_formula(name: str, dtype: str, rows: int) -> None:
    x, y = pair(dtype, (rows, 11))
    wide = np.complex128 if dtype == "complex128" else np.float64
    expected = FORMULAS[name](x.astype(wide), y.astype(wide))
    assert criterion.resolve(name)(x, y) == pytest.approx(expected, rel=1e-13)


FINITE = st.floats(-1e3, 1e3, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-3)
PAIRS = st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=9)


@settings(deadline=None)
@given(PAIRS)
def test_zero_exactly_where_equal(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    for measure in CRITERIA.values():
        assert measure(x, x) == 0.0
        assert (measure(x, y) == 0.0) == bool(np.all(x == y))


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("special", [nan, inf, -inf, complex(nan, 1), complex(1, inf)], ids=str)
def test_special_values(name: str, special: complex) -> None:
    measure = CRITERIA[name]
    assert measure([special, 1], [special, 1]) == 0.0
    assert measure([special, 2], [special, 1]) == measure([0, 2], [0, 1])
    assert isnan(measure([1, 1], [special, 1]))
    assert isnan(measure([special, 1], [1, 1]))
    assert isnan(measure([0], [special]))
    assert isnan(measure([special], [0]))
    assert isnan(measure([special], [inf if np.isnan(special) else -special]))


def test_decisions_that_differ() -> None:
    assert differing([1, 2, 3, 4], [1, 2, 4, 3]) == 0.5
    assert differing([True, False], [True, True]) == 0.5
    assert differing(7, 7) == differing([], []) == 0.0
    assert differing([2**60], [2**60 + 1]) == 1.0
    with pytest.raises(ShapeError):
        differing([1, 2], [1, 2, 3])


def test_zero_reference() -> None:
    zero = [0.0, 0.0]
    assert frobenius(zero, [-0.0, 0.0]) == mred(zero, zero) == max_relative(zero, zero) == 0.0
    assert frobenius(zero, [0.0, TINY]) == inf
    assert mred([0.0, 1.0], [TINY, 1.0]) == inf
    assert max_relative([0.0], [TINY]) == 1.0
    assert maximum(zero, [0.0, TINY]) == TINY


def test_differences_beyond_the_range_never_pass() -> None:
    assert maximum([HUGE], [-HUGE]) == inf
    assert frobenius([HUGE], [-HUGE]) == 2.0
    assert max_relative([HUGE], [-HUGE]) == 1.0
    assert mred([HUGE], [-HUGE]) == 2.0
    assert frobenius([1e-200], [1e200]) == inf
    # Both parts near the end: the modulus itself overflows.
    x, y = complex(HUGE, HUGE), complex(HUGE, HUGE / 2)
    assert max_relative([x], [y]) > 0.1
    assert mred([x], [y]) > 0.1
    assert frobenius([x], [y]) == pytest.approx(sqrt(1 / 8))


@pytest.mark.parametrize("name", CRITERIA)
def test_empty_scalar_and_bool(name: str) -> None:
    measure = CRITERIA[name]
    assert measure(np.empty((0, 3)), np.empty((0, 3))) == 0.0
    assert measure(2.0, np.float32(2.0)) == 0.0
    assert measure(True, False) > 0
    assert measure(np.uint8(0), np.uint8(255)) > 0
    assert measure([2**62, -(2**62)], [2**62, 0]) > 0


@pytest.mark.parametrize("name", CRITERIA)
def test_shapes_must_agree(name: str) -> None:
    with pytest.raises(ShapeError, match=r"\(1, 3\) came, \(3,\)"):
        CRITERIA[name](np.ones(3), np.ones((1, 3)))


@pytest.mark.parametrize("value", [["a"], [None], [{}]], ids=["text", "none", "object"])
def test_only_numbers(value: list[Any]) -> None:
    with pytest.raises(MixPertError, match="has no error measure"):
        frobenius(value, value)


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(MixPertError, match="'l2'; known: frobenius, max, max-relative, mred"):
        criterion.resolve("l2")


def test_several_values_each_by_its_own_criterion() -> None:
    reference = {"a": [4.0], "b": [2.0], "c": [3.0]}
    criteria = {"a": frobenius, "b": maximum, "c": maximum}
    value = {"a": [5.0], "b": [3.5], "c": [3.0], "d": [9.0]}
    assert errors(reference, value, criteria) == {"a": 0.25, "b": 1.5, "c": 0.0}
    assert isnan(errors(reference, value | {"c": [nan]}, criteria)["c"])


def test_what_cannot_be_compared_is_named() -> None:
    criteria = {"a": maximum, "b": maximum}
    with pytest.raises(ProgramError, match=r"^b: observed in the reference run, missing"):
        errors({"a": 1.0, "b": 2.0}, {"a": 1.0}, criteria)
    with pytest.raises(ShapeError, match=r"^a: shape \(2,\) came"):
        errors({"a": [1.0]}, {"a": [1.0, 2.0]}, criteria)
    with pytest.raises(ProgramError, match="nothing to compare"):
        errors({}, {"a": 1.0}, criteria)
