"""The model of a matrix instruction, against sums of fractions made one bit at a time."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.model.device_model import Accumulation, IntegerAccumulation
from mixpert_py.runtime.reference.engine import accumulate

VOLTA = Accumulation(4, 23)
AMPERE = Accumulation(8, 24, floor=-132)
HOPPER = Accumulation(16, 25, floor=-133)

VARIANTS = [VOLTA, AMPERE, HOPPER, Accumulation(8, 24, floor=-120)]


def exponent(x: Fraction) -> int:
    found = x.numerator.bit_length() - x.denominator.bit_length()
    return found if abs(x) >= Fraction(2) ** found else found - 1


def to_single(x: Fraction) -> Fraction:
    unit = Fraction(2) ** (max(exponent(abs(x)), -126) - 23) if x else Fraction(1)
    return int(x / unit) * unit


def one_sum(row: Array, column: Array, c: float, how: Accumulation) -> float:
    """One element of C, by the sentences of the module's docstring."""
    smallest = -14 if row.dtype == np.float16 else -126
    total = Fraction(float(c))

    def own(x: Fraction, least: int) -> int:
        return max(exponent(abs(x)), least)

    for start in range(0, len(row), how.group):
        addends = [(own(total, -126), total)] if total else []
        for position in range(start, min(start + how.group, len(row))):
            x, y = Fraction(float(row[position])), Fraction(float(column[position]))
            if x and y:
                addends.append((own(x, smallest) + own(y, smallest), x * y))
        highest = max((e for e, _ in addends), default=0)
        highest = highest if how.floor is None else max(highest, how.floor)
        unit = Fraction(2) ** (highest - how.fraction)
        total = to_single(sum((int(x / unit) * unit for _, x in addends), Fraction(0)))
    return float(total)


def spread(random: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> Array:
    x = random.uniform(-1, 1, shape)
    return np.asarray(np.ldexp(x + np.copysign(1, x), random.integers(low, high, shape)))


def operands(element: str, low: int, high: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(7)
    a, b = spread(random, (6, 3, 16), low, high), spread(random, (6, 16, 5), low, high)
    b[:, 1::3] = -a[:, :1, 0::3][:, :, :5].transpose(0, 2, 1)  # some products nearly cancel
    a[random.random(a.shape) < 0.1] = 0.0
    c = spread(random, (6, 3, 5), max(2 * low, -140), max(2 * high, -130)).astype(np.float32)
    if element == "float16":
        return a.astype(np.float16), b.astype(np.float16), c
    cut = np.uint32(0xFFFF0000)  # what bfloat16 keeps
    a, b = ((x.astype(np.float32).view(np.uint32) & cut).view(np.float32) for x in (a, b))
    return a, b, c


@pytest.mark.parametrize("how", VARIANTS, ids=repr)
@pytest.mark.parametrize(
    ("element", "low", "high"),
    [("float16", -3, 3), ("float16", -22, -8), ("bfloat16", -4, 4), ("bfloat16", -76, -60)],
)
def test_sums_are_those_of_fractions(how: Accumulation, element: str, low: int, high: int) -> None:
    a, b, c = operands(element, low, high)
    found = accumulate(a, b, c, how)
    for matrix, row, column in itertools.product(range(6), range(3), range(5)):
        wanted = one_sum(a[matrix, row], b[matrix, :, column], c[matrix, row, column], how)
        assert found[matrix, row, column] == wanted


@pytest.mark.parametrize(
    ("row", "column", "c"),
    [
        ([np.inf, 1], [0, 1], 0),
        ([np.inf, np.inf], [1, -1], 0),
        ([np.inf, 1], [1, 1], -np.inf),
        ([np.nan, 1], [1, 1], 0),
        ([1, 1], [1, 1], np.nan),
    ],
    ids=["0·Inf", "Inf−Inf", "Inf−Inf of C", "NaN", "NaN of C"],
)
def test_every_nan_is_the_same(row: list[float], column: list[float], c: float) -> None:
    a, b = np.array([row], np.float16), np.array([column], np.float16).T
    found = accumulate(a, b, np.array([[c]], np.float32), HOPPER)
    assert found.view(np.uint32)[0, 0] == 0x7FFFFFFF


def test_infinities_reach_only_their_row_and_column() -> None:
    a, b = np.ones((3, 16), np.float16), np.ones((16, 3), np.float16)
    a[1, 3], b[5, 2] = np.inf, -np.inf
    found = accumulate(a, b, np.zeros((3, 3), np.float32), HOPPER)
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    np.testing.assert_array_equal(found, [[16, 16, -inf], [inf, inf, nan], [16, 16, -inf]])


def test_a_sum_beyond_the_largest_number_is_infinite_although_sums_are_cut_off() -> None:
    a = np.array([[2.0**100, 2.0**100]], np.float32)
    b = np.array([[2.0**27], [2.0**27]], np.float32)
    c = np.zeros((1, 1), np.float32)
    assert accumulate(a, b, c, HOPPER)[0, 0] == np.inf
    assert accumulate(a, -b, c, HOPPER)[0, 0] == -np.inf
    # A product may be: what counts is the sum.
    assert accumulate(a * 4, b * [[1], [-1]], c, HOPPER)[0, 0] == 0


def test_no_sum_is_a_negative_zero() -> None:
    a, b = np.full((1, 16), -1, np.float16), np.zeros((16, 1), np.float16)
    for column, addend in ((b, -0.0), (b + 1, 16.0)):
        found = accumulate(a, column, np.full((1, 1), addend, np.float32), HOPPER)
        assert found.view(np.uint32)[0, 0] == 0


def test_integers() -> None:
    how = IntegerAccumulation("wraps")
    random = np.random.default_rng(3)
    a = random.integers(-128, 128, (2, 16, 32), np.int8)
    b = random.integers(-128, 128, (2, 32, 8), np.int8)
    c = random.integers(-(1 << 20), 1 << 20, (2, 16, 8), np.int32)
    exact = np.einsum("xik,xkj->xij", a.astype(np.int64), b.astype(np.int64)) + c
    found = accumulate(a, b, c, how)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, exact)
    ones = np.ones((1, 1), np.int8)
    assert accumulate(ones, ones, np.full((1, 1), 2**31 - 1, np.int32), how)[0, 0] == -(1 << 31)
