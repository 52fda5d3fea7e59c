"""Packed operands of the reference backend, and what leaves their slices."""

import numpy as np
import pytest

from mixpert_py.runtime.reference.reference import ReferenceProduct, multiply
from mixpert_py.runtime.reference.slices import times_power_of_two
from tests.runtime.emulations import EMULATIONS, kept, with_block
from tests.runtime.families import Array, crowded, normal


@pytest.mark.parametrize(
    ("value", "powers", "expected"),
    [
        (1.5, (10, -3), 1.5 * 2.0**7),
        (1.5, (200, -190), 1.5 * 2.0**10),
        (1.5, (-200, 199), 0.75),
        (2.0**24 - 1, (-300, 276), 1 - 2.0**-24),
        (2.0**24 - 1, (120, -119), 2.0**25 - 2),
        (1 + 2.0**-23, (-127, 127), 1 + 2.0**-23),
        (1.0, (-100, -60), 0.0),
        (3.0, (-90, -60), 2.0**-148),
    ],
)
def test_powers_of_two_are_applied_at_once(
    value: float, powers: tuple[int, int], expected: float
) -> None:
    x = np.full((2, 3), value, np.float32)
    left, right = np.full((2, 1), powers[0], np.int32), np.full(3, powers[1], np.int32)
    with np.errstate(under="ignore"):
        assert times_power_of_two(x, left, right) is x
    np.testing.assert_array_equal(x, np.float32(expected))


def lossy_rows() -> tuple[Array, Array]:
    """A row of A and a column of B with one large entry among thousands of half a unit.

    0.5 has the unit 129 / 256 · 2^-23.
    """
    rng = np.random.default_rng(3)
    a, b = normal(rng, 20, 8192, 12)
    half = 0.49 * 129 / 256
    a[3] = np.ldexp(rng.choice([half, -half], 8192), -23)
    b[:, 5] = np.ldexp(rng.choice([half, -half], 8192), -23)
    a[3, 7] = b[1000, 5] = 0.5
    return a, b


def outliers(product: ReferenceProduct) -> tuple[int, int]:
    """The rows of A and the columns of B that left the slices, wholly or in part."""
    left, right = (int(it.outlier.any(axis=1).sum()) for it in (product.left, product.right))
    return left, right


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lossy_rows_leave_and_come_back_in_the_results_precision(dtype: type) -> None:
    a, b = (x.astype(dtype) for x in lossy_rows())
    product = multiply(a, b, with_block(EMULATIONS["int8x6"], 8192))
    assert outliers(product) == (1, 1)
    assert product.outliers == pytest.approx(2 / 32)
    exact = a.astype(np.float64) @ b
    error = np.abs(product.value - exact)
    whole = multiply(a, b, with_block(kept(EMULATIONS["int8x6"]), 8192))
    assert whole.outliers == 0
    worse = np.abs(whole.value - exact)
    better = 4 if dtype is np.float64 else 1  # a chain of 8192 in FP32 rounds as often
    assert worse[3].max() > better * error[3].max()
    assert worse[:, 5].max() > better * error[:, 5].max()
    others = np.ix_(np.arange(20) != 3, np.arange(12) != 5)
    np.testing.assert_array_equal(product.value[others], whole.value[others])


@pytest.mark.parametrize(
    ("block", "leaves", "dropped"),
    [
        (None, True, 1.96),
        (1024, True, 0.98),  # in one block of two the digits are crowded
        (128, False, 0.12),
    ],
)
def test_rows_whose_dropped_terms_would_matter_leave(
    block: int | None, leaves: bool, dropped: float
) -> None:
    """`dropped` is what the six terms would lose, of what grade B allows."""
    rng = np.random.default_rng(7)
    a, b = (x.astype(np.float32) for x in normal(rng, 20, 2048, 12))
    row, column = crowded(rng, 1, 100, 1)  # both large entries in one block
    a[3], b[:, 5] = row[0].min(), column.min()
    a[3, :100], b[:100, 5] = row[0], column[:, 0]
    scheme = EMULATIONS["int8x6"]
    product = multiply(a, b, with_block(scheme, block))
    whole = multiply(a, b, with_block(kept(scheme), block))
    exact = a.astype(np.float64) @ b
    allowed = 2048 * 2.0**-24 * np.linalg.norm(a[3]) * np.linalg.norm(b[:, 5])
    assert exact[3, 5] - whole.value[3, 5] == pytest.approx(dropped * allowed, rel=0.05)
    assert outliers(product) == (leaves, leaves)
    if leaves:
        assert abs(product.value[3, 5] - exact[3, 5]) < 0.01 * allowed


def test_tiles_leave_one_by_one() -> None:
    a, b = (x.astype(np.float32) for x in normal(np.random.default_rng(4), 48, 96, 24))
    a[16:32, 32:64] = b[64:, 8:16] = 0.49 * 2.0**-20  # just not half a last digit, beside 1
    a[20, 40] = b[70, 9] = 1.0
    product = multiply(a, b, EMULATIONS["mixpert-IV"])
    assert outliers(product) == (16, 8)  # rows of one tile each
    exact, size = a.astype(np.float64) @ b, np.abs(a) @ np.abs(b)
    assert (np.abs(product.value - exact) <= 2.0**-19 * size).all()


@pytest.mark.parametrize(("count", "leaves"), [(60, False), (75, True)])
def test_a_tile_leaves_from_its_limit_on(count: int, leaves: bool) -> None:
    """It may lose 2^-18 of its norm: 66 entries of 0.49 units of 2^-20 beside 1, and no more."""
    a = np.zeros((16, 32), np.float32)
    a.flat[1 : 1 + count] = 0.49 * 2.0**-20
    a[0, 0] = 1
    product = multiply(a, np.eye(32, dtype=np.float32), EMULATIONS["mixpert-IV"])
    assert outliers(product)[0] == 16 * leaves
