"""The model of a matrix instruction, against sums of fractions made one bit at a time."""

import itertools
import math
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from mixpert_py.runtime.model import numerics
from mixpert_py.runtime.model.numerics import (
    Accumulation,
    Array,
    IntegerAccumulation,
    accumulate,
)

VOLTA = Accumulation(4, 23)
AMPERE = Accumulation(8, 24, floor=-132)
HOPPER = Accumulation(16, 25, floor=-133)
AFTER = Accumulation(4, 25, addend="after")

VARIANTS = [
    VOLTA,
    AMPERE,
    HOPPER,
    Accumulation(4, 24, order="descending"),
    Accumulation(4, 24, order="interleaved"),
    Accumulation(8, 25, addend="after"),
    Accumulation(8, 25, addend="after", result="nearest"),
    Accumulation(8, 25, addend="after", result="down"),
    Accumulation(8, 24, alignment="nearest"),
    Accumulation(8, 24, alignment="down", result="nearest"),
    Accumulation(8, 24, result="down"),
    Accumulation(8, 24, normalized=True),
    Accumulation(8, 24, subnormal_operands=False),
    Accumulation(8, 24, subnormal_sums=False),
    Accumulation(8, 24, floor=-120),
]


def rounded(x: Fraction, how: str) -> int:
    down = math.floor(x)
    if how == "nearest":
        return round(x)
    return -math.floor(-x) if how == "zero" and x < 0 else down


def exponent(x: Fraction) -> int:
    found = x.numerator.bit_length() - x.denominator.bit_length()
    return found if abs(x) >= Fraction(2) ** found else found - 1


def to_single(x: Fraction, how: Accumulation) -> Fraction:
    if not x:
        return x
    unit = Fraction(2) ** (max(exponent(abs(x)), -126) - 23)
    x = rounded(x / unit, how.result) * unit
    return x if how.subnormal_sums or abs(x) >= Fraction(2) ** -126 else Fraction(0)


def one_sum(row: Array, column: Array, c: float, how: Accumulation) -> float:
    """One element of C, by the sentences of the module's docstring."""
    smallest = -14 if row.dtype == np.float16 else -126
    total = Fraction(float(c))
    if not how.subnormal_sums and abs(total) < Fraction(2) ** -126:
        total = Fraction(0)

    def own(x: Fraction, least: int) -> int:
        return max(exponent(abs(x)), least)

    for group in how.groups(len(row)):
        addends: list[tuple[int, Fraction]] = []
        for position in group:
            x, y = Fraction(float(row[position])), Fraction(float(column[position]))
            least = Fraction(2) ** smallest
            if not x or not y:
                continue
            if not how.subnormal_operands and min(abs(x), abs(y)) < least:
                continue
            sum_of_both = own(x, smallest) + own(y, smallest)
            addends.append((own(x * y, -400) if how.normalized else sum_of_both, x * y))
        if how.addend == "aligned" and total:
            addends.append((own(total, -126), total))
        highest = max((e for e, _ in addends), default=0)
        if how.floor is not None:
            highest = max(highest, how.floor)
        unit = Fraction(2) ** (highest - how.fraction)
        found = sum((rounded(x / unit, how.alignment) * unit for _, x in addends), Fraction(0))
        found = to_single(found, how)
        total = found if how.addend == "aligned" else to_single(total + found, how)
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
    ("how", "kept"), [(VOLTA, 23), (AMPERE, 24), (HOPPER, 25)], ids=["volta", "ampere", "hopper"]
)
def test_a_bit_of_a_product_is_kept_down_to_the_last_bit(how: Accumulation, kept: int) -> None:
    def left(down: int) -> float:
        a, b = np.zeros((1, 4), np.float16), np.ones((4, 1), np.float16)
        a[0, :3] = 1024, -1024, 2.0 ** (10 - down)
        return float(accumulate(a, b, np.zeros((1, 1), np.float32), how)[0, 0])

    assert left(kept) == 2.0 ** (10 - kept)
    assert left(kept + 1) == 0


@pytest.mark.parametrize(
    ("result", "sums"),
    [("zero", (1 - 2**-24, 1)), ("nearest", (1, 1)), ("down", (1 - 2**-24, 1))],
)
def test_an_addend_may_be_too_far_away_for_float64(
    result: numerics.Rounding, sums: tuple[float, float]
) -> None:
    how = Accumulation(4, 25, addend="after", result=result)
    a, b = np.full((1, 1), 2.0**-40, np.float32), np.full((1, 1), 2.0**-40, np.float32)
    one = np.ones((1, 1), np.float32)
    assert [accumulate(sign * a, b, one, how)[0, 0] for sign in (-1, 1)] == list(sums)
    beyond = -1 - 2**-23 if result == "down" else -1
    assert accumulate(-a, b, -one, how)[0, 0] == beyond


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
    for how in (HOPPER, AFTER):
        found = accumulate(a, b, np.array([[c]], np.float32), how)
        assert found.view(np.uint32)[0, 0] == 0x7FFFFFFF


@pytest.mark.parametrize("how", [HOPPER, AFTER], ids=["aligned", "after"])
def test_infinities_reach_only_their_row_and_column(how: Accumulation) -> None:
    a, b = np.ones((3, 16), np.float16), np.ones((16, 3), np.float16)
    a[1, 3], b[5, 2] = np.inf, -np.inf
    found = accumulate(a, b, np.zeros((3, 3), np.float32), how)
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


@pytest.mark.parametrize(("signed", "bits"), [(True, 0x80000000), (False, 0)])
def test_the_sign_of_zero(signed: bool, bits: int) -> None:
    a, b = np.full((1, 16), -1, np.float16), np.zeros((16, 1), np.float16)
    how = Accumulation(16, 25, signed_zero=signed)
    found = accumulate(a, b, np.full((1, 1), -0.0, np.float32), how)
    assert found.view(np.uint32)[0, 0] == bits
    cancelled = accumulate(a, b + 1, np.full((1, 1), 16.0, np.float32), how)
    assert cancelled.view(np.uint32)[0, 0] == 0


@pytest.mark.parametrize(("overflow", "wanted"), [("wraps", -(1 << 31)), ("saturates", 2**31 - 1)])
def test_integers(overflow: str, wanted: int) -> None:
    how = msgspec.convert({"overflow": overflow}, IntegerAccumulation)
    random = np.random.default_rng(3)
    a = random.integers(-128, 128, (2, 16, 32), np.int8)
    b = random.integers(-128, 128, (2, 32, 8), np.int8)
    c = random.integers(-(1 << 20), 1 << 20, (2, 16, 8), np.int32)
    exact = np.einsum("xik,xkj->xij", a.astype(np.int64), b.astype(np.int64)) + c
    found = accumulate(a, b, c, how)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, exact)
    ones = np.ones((1, 1), np.int8)
    assert accumulate(ones, ones, np.full((1, 1), 2**31 - 1, np.int32), how)[0, 0] == wanted


@pytest.mark.parametrize("order", ["ascending", "descending", "interleaved"])
def test_every_product_is_in_one_group(order: numerics.Order) -> None:
    groups = Accumulation(4, 24, order=order).groups(14)
    assert sorted(itertools.chain(*groups)) == list(range(14))
    assert max(map(len, groups)) == 4


def test_how_much_is_worked_on_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = operands("float16", -3, 3)
    whole = accumulate(a, b, c, AMPERE)
    for chunk in (1, 7, 40):
        monkeypatch.setattr(numerics, "CHUNK", chunk)
        np.testing.assert_array_equal(accumulate(a, b, c, AMPERE), whole)


def test_leading_dimensions_and_none() -> None:
    a, b, c = operands("float16", -3, 3)
    whole = accumulate(a, b, c, HOPPER)
    split = accumulate(*(x.reshape(2, 3, *x.shape[1:]) for x in (a, b, c)), HOPPER)
    np.testing.assert_array_equal(split.reshape(whole.shape), whole)
    np.testing.assert_array_equal(accumulate(a[4], b[4], c[4], HOPPER), whole[4])
    assert accumulate(a[:0], b[:0], c[:0], HOPPER).shape == (0, 3, 5)
