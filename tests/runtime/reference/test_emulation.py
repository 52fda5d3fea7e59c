"""Products by a scheme: shapes as np.matmul's, and what happens at the ends of float32's range."""

import warnings
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.reference.emulation import HELD, emulate
from tests.contract.table import normal

NORMAL = np.random.default_rng(0).standard_normal((40, 40))
FEW_NAN = np.where(NORMAL > 3, np.nan, NORMAL)
FEW_INF = np.where(NORMAL > 3, np.inf, NORMAL)


SHAPES = ["5 5", "5 5,3", "3,5 5", "3,5 5,2", "2,3,5 5,2", "5 2,5,3", "2,3,5 5", "4,1,3,5 2,5,2"]
SHAPES += ["0,3,5 5,2", "3,0 0,2", "0 0", "0,5 5,2"]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtypes", ["dd", "fd", "df"])
def test_shape_and_type_of_a_cast_are_those_of_matmul(shapes: str, dtypes: str) -> None:
    """The contract's products are too small for it."""
    of_a, of_b = (tuple(map(int, shape.split(","))) for shape in shapes.split())
    a, b = normal(*of_a, dtype=dtypes[0]), normal(*of_b, dtype=dtypes[1])
    wanted, result = np.matmul(a, b), emulate(a, b, "float32")
    assert type(result) is type(wanted)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(NORMAL * 1e200, NORMAL, id="operand too large"),
        pytest.param(NORMAL * 1e25, NORMAL * 1e25, id="product too large"),
        pytest.param(NORMAL * 1e-60, NORMAL, id="operand too small"),
        pytest.param(NORMAL * 1e-60, NORMAL * 1e60, id="one too small, one too large"),
        pytest.param(NORMAL * 1e-44, NORMAL * 1e30, id="operand subnormal"),
        pytest.param(NORMAL * 1e-25, NORMAL * 1e-25, id="product too small"),
        pytest.param(FEW_NAN * 1e25, NORMAL * 1e25, id="product too large beside NaN"),
        pytest.param(FEW_NAN * 1e-60, NORMAL, id="operand too small beside NaN"),
        pytest.param(FEW_INF * 1e25, NORMAL * 1e25, id="product too large beside Inf"),
        pytest.param(FEW_INF, np.where(NORMAL > 2, 1e-60, NORMAL), id="Inf times too small"),
        pytest.param((NORMAL * 1e-44).astype(np.float32), NORMAL, id="float32 subnormal"),
    ],
)
def test_float32_says_where_it_has_no_room(a: Any, b: Any) -> None:
    with np.errstate(all="raise"):
        assert emulate(a, b, "float32") is None
        assert emulate(b, a, "float32") is None


@pytest.mark.parametrize("few", [FEW_NAN, FEW_INF, -FEW_INF, np.where(FEW_NAN > 1, FEW_INF, 0)])
@pytest.mark.parametrize("dtype", [float, complex])
def test_nan_and_inf_of_operands_reach_what_they_reach_natively(few: Any, dtype: type) -> None:
    few = few.astype(dtype)
    stack = np.stack([NORMAL, NORMAL * 3])
    for a, b in ((few, NORMAL), (NORMAL, few), (few, few), (few[0], few), (few, few[:, 0])):
        for left, right in ((a, b), (a, stack), (stack, b)):
            with np.errstate(all="ignore"):
                exact, found = left @ right, emulate(left, right, "float32")
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(exact))
            np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("scale", [1e15, 1e-12])
def test_float32_has_room_for_the_rest(scale: float) -> None:
    a, b = NORMAL * scale, NORMAL * scale
    a[0] = 0
    a[1] *= 1e-30
    exact = a @ b
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = emulate(a, b, "float32")
    assert np.linalg.norm(result - exact) < 4e-7 * np.linalg.norm(exact)


def test_the_limit_keeps_the_error_bound() -> None:
    """Just above it, underflow adds nothing that shows."""
    factor = 1.01 * np.sqrt(HELD) / np.abs(NORMAL).max()
    a = NORMAL * factor
    result = emulate(a, a, "float32")
    assert np.linalg.norm(result - a @ a) < 4e-7 * np.linalg.norm(a @ a)
    assert emulate(a / 1.02, a / 1.02, "float32") is None


def test_blas_sees_that_a_matrix_meets_its_own_transpose() -> None:
    shared = []

    def native(a: Any, b: Any) -> Any:
        shared.append(np.shares_memory(a, b))
        return np.matmul(a, b)

    x = np.random.default_rng(2).standard_normal((300, 70))
    for a in (x, x[::2, 1:], np.asfortranarray(x)):
        for left, right in ((a, a.T), (a.T, a)):
            gram = emulate(left, right, "float32", native=native)
            np.testing.assert_array_equal(gram, gram.T)
            np.testing.assert_allclose(gram, left @ right, atol=1e-3)
    assert shared == [True] * 6


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_result_is_the_programs_own(order: Any) -> None:
    a = np.asarray(NORMAL, order=order)
    for scheme in ("float32", "float64", "int8x6"):
        result = emulate(a, a, scheme)
        assert result.flags.c_contiguous
        assert result.flags.owndata  # so that it can be resized
        assert result.flags.writeable
        assert not np.may_share_memory(result, a)
