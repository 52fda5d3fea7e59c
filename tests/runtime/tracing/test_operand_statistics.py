"""Local errors: what a scheme would have done, on all of the operands or on a sample of them."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.operand_statistics import (
    MAX_MATRICES,
    emulated_errors,
    exponent_spread,
    operand_statistics,
    sampled,
)
from mixpert_py.runtime.tracing.operand_statistics import MAX_SAMPLED_ROWS as MAX_SAMPLED
from tests.runtime.gpu.fake import FakeGpu, ndarray


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
    sample = np.matmul(*sampled(a, b)).reshape(MAX_MATRICES, -1)
    np.testing.assert_array_equal(sample[[0, -1]], whole[[0, -1]])
    assert all((whole == one).all(axis=1).any() for one in sample)


def test_values_that_native_does_not_make_finite_do_not_count() -> None:
    a = np.random.default_rng(2).standard_normal((6, 6))
    a[2, 3] = np.nan
    b = np.random.default_rng(3).standard_normal((6, 6))
    b[4, 4] = np.inf
    errors = emulated_errors(a, b, ("native", "int8x6", "float32"))
    assert errors["native"] == 0
    assert 0 < errors["int8x6"] < 1e-6
    assert 0 < errors["float32"] < 1e-6


def normal(*shape: int, dtype: Any = np.float64, seed: int = 5) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_the_spread_of_exponents_in_a_row() -> None:
    assert exponent_spread(np.full((3, 4), 1.7), -1) == 0
    assert exponent_spread(np.array([[8.0, 1, 1, 2], [4, 4, 4, 4]]), -1) == 2  # (0 + 3 + 3 + 2) / 4
    assert exponent_spread(np.array([[8.0, 1, 1, 2], [4, 4, 4, 4]]), -2) == 1
    assert exponent_spread(np.array([1.0, -(2.0**-10)]), -1) == 5
    one_large = np.r_[2.0**20, np.ones(999)]
    assert exponent_spread(one_large, -1) == pytest.approx(20, rel=0.01)
    # What is just next to zero says nothing of the others.
    one_small = np.r_[2.0**-60, np.ones(999)]
    assert exponent_spread(one_small, -1) < 0.1
    assert 2.5 < exponent_spread(normal(100, 1000), -1) < 4
    assert exponent_spread(np.exp(20 * normal(8, 1000)), -1) > 60


def test_the_spread_counts_neither_zeros_nor_what_is_not_finite() -> None:
    x = np.array([[8.0, 2, 0, 0], [0, 0, 0, 0]])
    assert exponent_spread(x, -1) == 1
    for odd in (np.nan, np.inf, -np.inf):
        x[1] = 1, 2.0**30, 1, odd
        assert exponent_spread(x, -1) == 1
    assert exponent_spread(np.zeros((2, 3)), -1) == 0
    assert exponent_spread(np.zeros((0, 3)), -1) == exponent_spread(np.zeros((3, 0)), -1) == 0
    assert exponent_spread(np.array([[2.0**1020, 2.0**-1060]]), -1) == 1040


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shapes",
    [
        ((40, 70), (70, 30)),
        ((70,), (70, 30)),
        ((40, 70), (70,)),
        ((70,), (70,)),
        ((20, 9, 8), (8, 5)),
        ((20, 9, 8), (20, 8, 5)),
        ((3, 1, 9, 8), (20, 8, 5)),
        ((0, 3), (3, 4)),
        ((4, 0), (0, 4)),
    ],
)
def test_a_call_is_looked_into(dtype: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    found = operand_statistics(a, b, ["int8x3"])
    assert found is not None
    assert found.errors == emulated_errors(a, b, ["int8x3"])
    if a.size and b.size:
        assert 1 < found.spread < 10
    without = operand_statistics(a, b, ())
    assert without is not None
    assert without == found._replace(errors={})


class TestOnAGpu:
    """What the operands' own device says, where there is one: by kernels, not by NumPy."""

    @staticmethod
    def operands() -> tuple[Any, Any]:
        rng = np.random.default_rng(5)
        return rng.standard_normal((700, 96)), rng.standard_normal((96, 600))

    def test_its_kernels_are_asked(self, gpu: FakeGpu) -> None:
        a, b = (x.astype(np.float32) for x in self.operands())
        levels = ("float64", "float32", "faithful", "int8x3", "fp16")
        found = operand_statistics(ndarray(a), ndarray(b), levels)
        assert found is not None
        assert list(found.errors) == list(levels)
        # One of each emulation, of the sample; and nothing native.
        assert gpu.launches == [(1, MAX_SAMPLED, MAX_SAMPLED)] * 3
        expected = emulated_errors(a, b, (*levels, "bf16x6"))
        expected["faithful"] = expected.pop("bf16x6")  # as products that are so small are made
        assert found.errors == pytest.approx(expected, rel=1e-3)

    def test_what_it_cannot_make_numpy_emulates(
        self, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = (x.astype(np.float32) for x in self.operands())
        monkeypatch.setattr(gpu_backend, "multiply", lambda *given, **how: Reason.KERNEL)
        found = operand_statistics(ndarray(a), ndarray(b), ("int8x3",))
        assert found is not None
        assert found.errors == emulated_errors(a, b, ("int8x3",))
        assert gpu.launches == []

    @pytest.mark.parametrize(("least", "launched"), [(1, 1), (1 << 40, 0)])
    def test_numpys_large_operands_move_there(
        self, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, least: int, launched: int
    ) -> None:
        a, b = self.operands()
        monkeypatch.setattr(worth, "MIN_SAMPLE_TO_MOVE", least)
        found = operand_statistics(a, b, ("int8x3",))
        assert found is not None
        assert gpu.launches == [(1, MAX_SAMPLED, MAX_SAMPLED)] * launched
        assert found.errors == pytest.approx(emulated_errors(a, b, ("int8x3",)), rel=1e-3)

    def test_integers_have_no_errors(self, gpu: FakeGpu) -> None:
        a = ndarray(np.ones((8, 8), np.int32))
        found = operand_statistics(a, a, ("int8x3",))
        assert found is not None
        assert found.errors == {}


@pytest.mark.filterwarnings("error")
def test_an_infinite_imaginary_part_is_no_warning() -> None:
    a = np.array([[complex(0, np.inf), 1]], np.complex64)
    operand_statistics(a, np.ones((2, 1), np.complex64), ())
