"""Local errors: what a scheme would have done, on all of the operands or on a sample of them."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.emulation import emulate
from mixpert_py.runtime.shadow import MOST, MOST_STACKED, _sampled, local_errors

LEVELS = ("native", "float64", "float32", "int8x6", "int8x3", "mixpert-I", "fp16")


def direct(a: Any, b: Any, scheme: str) -> float:
    exact = a.astype(float) @ b.astype(float)
    return float(np.linalg.norm(emulate(a, b, scheme) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shapes", [((40, 70), (70, 30)), ((70,), (70, 30)), ((40, 70), (70,)), ((2, 9, 8), (8, 5))]
)
def test_small_operands_are_measured_whole(dtype: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    errors = local_errors(a, b, LEVELS)
    assert list(errors) == list(LEVELS)
    for scheme, error in errors.items():
        assert error == pytest.approx(direct(a, b, scheme), rel=1e-6), scheme
    assert errors["float64"] == 0 if dtype == np.float64 else errors["float64"] < 1e-7


@pytest.mark.parametrize("shapes", [((1500, 160), (160, 1100)), ((2000, 64), (64, 40))])
def test_a_sample_says_what_the_whole_says(shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    for scheme, error in local_errors(a, b, ("int8x3", "fp16", "mixpert-I")).items():
        assert error == pytest.approx(direct(a, b, scheme), rel=0.2), scheme


def test_a_sample_keeps_tiles_and_both_ends() -> None:
    rows = np.arange(1500.0)[:, np.newaxis] * np.ones((1, 3))
    a, b = _sampled(rows, rows.T)
    np.testing.assert_array_equal(a, b.T)
    assert a.shape == (MOST, 3)
    groups = a[:, 0].reshape(-1, 32)
    assert (groups[:, 0] % 32 == 0).all()
    assert (np.diff(groups) == 1).all()
    assert (np.diff(groups[:, 0]) >= 32).all()
    assert groups[0, 0] == 0
    assert groups[-1, -1] >= 1500 - 32 - 32


@pytest.mark.parametrize(
    "shapes",
    [
        ((50, 3, 4), (50, 4, 2)),
        ((50, 3, 4), (4, 2)),
        ((10, 1, 3, 4), (5, 4, 2)),
        ((4,), (50, 4, 2)),
    ],
)
def test_a_stack_is_sampled_matrix_by_matrix(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (np.arange(np.prod(shape), dtype=float).reshape(shape) for shape in shapes)
    whole = (a @ b).reshape(50, -1)
    sample = np.matmul(*_sampled(a, b)).reshape(MOST_STACKED, -1)
    np.testing.assert_array_equal(sample[[0, -1]], whole[[0, -1]])
    assert all((whole == one).all(axis=1).any() for one in sample)


@pytest.mark.parametrize("dtype", [int, complex, np.float16, object])
def test_other_dtypes_have_no_errors(dtype: Any) -> None:
    a = np.ones((3, 3), dtype)
    assert local_errors(a, a, LEVELS) == {}


def test_values_that_native_does_not_make_finite_do_not_count() -> None:
    a = np.random.default_rng(2).standard_normal((6, 6))
    a[2, 3] = np.nan
    b = np.random.default_rng(3).standard_normal((6, 6))
    b[4, 4] = np.inf
    errors = local_errors(a, b, ("native", "int8x6", "float32"))
    assert errors["native"] == 0
    assert 0 < errors["int8x6"] < 1e-6
    assert math.isnan(errors["float32"])  # it falls back: there is nothing to measure


def test_a_scheme_that_overflows_failed() -> None:
    a = np.full((3, 3), 1e30, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(
            local_errors(a.astype(float) * 1e20, a.astype(float), ["float32"])["float32"]
        )
        assert not local_errors(a, a, ["native"])["native"] <= 1


def test_zero_is_exact() -> None:
    a = np.zeros((3, 3))
    assert local_errors(a, a, ("float32", "int8x6")) == {"float32": 0.0, "int8x6": 0.0}
    assert local_errors(a[:0], a, ("float32", "int8x6")) == {"float32": 0.0, "int8x6": 0.0}


@pytest.mark.parametrize("scale", [2.0**-660, 2.0**530])
def test_squares_out_of_range_do_not_matter(scale: float) -> None:
    a = np.random.default_rng(4).standard_normal((8, 8))
    errors = [local_errors(x, a, ["int8x3"])["int8x3"] for x in (a, a * scale)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)
