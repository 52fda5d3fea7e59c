"""Residue schemes, and the choice of `crt` among them, against exact arithmetic and their bound."""

import math
import random
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference import emulation, residues
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.reference.residues import rows_of
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.crt import FEWEST, LEAST, UNFIT, density, moduli_for
from mixpert_py.runtime.schemes.residues import (
    GAUSSIAN,
    INT32,
    MODULI,
    PART_BITS,
    Kind,
    fewest_moduli,
    of_complex,
    theorem,
)
from mixpert_py.runtime.splitter import Residues
from tests.benchmarks.families import spread
from tests.every_check import EVERY_CHECK, sweep
from tests.runtime.emulations import RESIDUES
from tests.runtime.families import EVERYDAY, FAMILIES, Array, normal

SHAPES = [(1, 1, 1), (3, 7, 2), (6, 300, 5), (2, 2500, 2)]
COUNTS = [7, 10, 11, 14, 16]  # of moduli: where the weights have one more part, and ends
SMALLEST = {np.float32: 2.0**-149, np.float64: 2.0**-1074}
every_count = pytest.mark.parametrize("count", COUNTS)


def crt(count: int) -> Scheme:
    return RESIDUES[f"crt{count}"]


def exactly(x: Array) -> Any:
    """Fractions, of Python's integers."""
    return np.frompyfunc(lambda it: Fraction(float(it)), 1, 1)(x)


def bound(a: Array, b: Array, count: int, value: Array, dtype: type) -> Array:
    """The bound of `schemes.residues`, in float64; norms are scaled, so as not to overflow."""
    k = a.shape[1]
    sizes = [np.abs(x).max(axis=axis, keepdims=True) for x, axis in ((a, 1), (b, 0))]
    a, b = (x / np.where(size > 0, size, 1) for x, size in zip((a, b), sizes, strict=True))
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0) * (sizes[0] * sizes[1])
    unit = 2.0**-24 if dtype is np.float32 else 2.0**-53
    entries = 2.2 * np.sqrt(k) * 2.0 ** -crt(count).left.bits  # type: ignore[union-attr]
    rounding = unit * (1 + 2.0**-20) * np.abs(value)
    return entries * norms + rounding + (k + 2) * SMALLEST[dtype]


def assert_within_bound(a: Array, b: Array, count: int, dtype: type) -> None:
    a, b = a.astype(dtype), b.astype(dtype)
    value = multiply(a, b, crt(count)).value
    assert value.dtype == dtype
    error = exactly(value) - exactly(a).dot(exactly(b))
    allowed = bound(a.astype(np.float64), b.astype(np.float64), count, value, dtype)
    assert (np.abs(error) <= exactly(allowed)).all()


@pytest.mark.parametrize("family", [*FAMILIES, *EVERYDAY])
def test_stated_bound(family: str) -> None:
    """In exact arithmetic. By default each family meets all shapes, and the cases have turns."""
    families = {**FAMILIES, **EVERYDAY}
    cases = sweep(SHAPES, COUNTS, [np.float32, np.float64])
    turn = 0 if EVERY_CHECK else list(families).index(family) % len(COUNTS)
    rng = np.random.default_rng(1)
    for shape, count, dtype in cases[turn :: 1 if EVERY_CHECK else len(COUNTS)]:
        assert_within_bound(*families[family](rng, *shape), count, dtype)


@every_count
@pytest.mark.parametrize("power", [-1000, -60, 60, 1000])
def test_scale_does_not_matter(count: int, power: int) -> None:
    """Bit for bit, where the result is in range."""
    a, b = FAMILIES["spread 4"](np.random.default_rng(2), 5, 200, 6)
    value = multiply(a, b, crt(count)).value
    scaled = multiply(np.ldexp(a, power), np.ldexp(b, -power + 3), crt(count)).value
    np.testing.assert_array_equal(scaled, value * 8)
    rows, columns = np.arange(-300, 300, 120)[:, None], np.arange(-500, 500, 170)
    scaled = multiply(np.ldexp(a, rows), np.ldexp(b, columns), crt(count)).value
    np.testing.assert_array_equal(scaled, np.ldexp(value, rows + columns))


@every_count
def test_ends_of_the_range(count: int) -> None:
    rng = np.random.default_rng(3)
    a, b = normal(rng, 4, 30, 3)
    for left, right in ((-1074, 0), (-1060, 1000), (-540, -540), (1020, -1074), (900, 118)):
        assert_within_bound(np.ldexp(a, left), np.ldexp(b, right), count, np.float64)


@every_count
def test_the_integer_product_is_rounded_once(count: int) -> None:
    """x' of both operands by `scales`, multiplied as Python's integers."""
    rng = np.random.default_rng(4)
    for family in ("normal", "spread 4", "uniform [0, 1)", "spikes", "scaled inside", "constant"):
        a, b = FAMILIES[family](rng, 9, 90, 8)
        pair = residues.pack(a, b, crt(count))
        left, right = (
            np.frompyfunc(lambda x: int(x), 1, 1)(np.rint(np.ldexp(x, -packed.exponents)))
            for x, packed in ((a, pair.left), (b.T, pair.right))
        )
        whole = left.dot(right.T)
        rounded = np.frompyfunc(float, 1, 1)(whole).astype(np.float64)
        units = pair.left.exponents + pair.right.exponents[:, 0]
        np.testing.assert_array_equal(multiply(a, b, crt(count)).value, np.ldexp(rounded, units))


@pytest.mark.parametrize(
    ("count", "k"), [*((count, k) for count in COUNTS for k in (1, 5, 1000)), (7, 1 << 17)]
)
def test_parallel_rows_stay_within_half_of_the_product(count: int, k: int) -> None:
    """Where Cauchy–Schwarz is an equation, whatever the power of two leaves unused."""
    splitter = crt(count).left
    assert isinstance(splitter, Residues)
    for size in (1.0, 1.2, 1.4142135, 1.7, 1.99999):
        x = np.full((1, k), size)
        x[0, k // 2 :] *= -0.75
        pair = residues.pack(x + 2.0**-40, x.T + 2.0**-40, crt(count))
        (scale,) = -pair.left.exponents[:, 0]
        squares = sum(int(it) ** 2 for it in np.rint(np.ldexp(x[0] + 2.0**-40, scale)))
        assert splitter.largest / 17 < squares <= splitter.largest
        made = multiply(x + 2.0**-40, -x.T - 2.0**-40, crt(count)).value[0, 0]
        assert made == -np.ldexp(float(squares), -2 * scale)


def test_rounding_to_nearest_where_doubles_would_round_twice() -> None:
    """Sums of parts whose lower ones decide a tie, or nearly make one."""
    known = residues.theorem(MODULI[:16])
    rng = np.random.default_rng(6)
    numbers = []
    for _ in range(3000):
        bits = int(rng.integers(54, 124))
        number = (1 << bits) + (int(rng.integers(0, 1 << 52)) << bits - 52)
        number += (1 << bits - 53) + int(rng.integers(-2, 3)) * (1 << int(rng.integers(0, 8)))
        numbers.append(number * int(rng.choice([-1, 1])))
    residue = [[(n + p // 2) % p - p // 2 for n in numbers] for p in MODULI[:16]]
    parts = [
        np.dot(np.array(residue).T, [weights[place] for weights in known.weights])
        for place in range(3)
    ]
    assert residues.combined(parts, known).tolist() == [float(n) for n in numbers]


def integers(rng: Any, shape: tuple[int, int], low: int, high: int) -> Array:
    x = rng.integers(low, high, shape, endpoint=True).astype(np.float64)
    x[0, 0], x[-1, -1] = low, high
    return x


@pytest.mark.parametrize(
    ("left", "right", "k", "terms"),
    [
        ((0, 1), (0, 1), 5000, 1),
        ((0, 255), (0, 255), 5000, 1),
        ((-128, 127), (0, 255), 700, 1),
        ((-128, 127), (-128, 127), 700, 1),
        ((-255, 255), (-255, 255), 3000, 4),
        ((-30_000, 30_000), (-30_000, 30_000), 3000, 6),
        ((0, 1), (-(2**50), 2**50), 40, 8),
        ((-(2**24), 2**24), (-(2**24), 2**24), 40, 7),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_integers_are_exact_by_the_fewest_products(
    left: tuple[int, int], right: tuple[int, int], k: int, terms: int, dtype: type
) -> None:
    rng = np.random.default_rng(7)
    a, b = integers(rng, (7, k), *left), integers(rng, (k, 5), *right)
    a, b = a.astype(dtype), b.astype(dtype)
    product = multiply(a, b, crt(14))
    assert product.terms == terms
    exact = np.frompyfunc(int, 1, 1)(a).dot(np.frompyfunc(int, 1, 1)(b))
    rounded = np.frompyfunc(float, 1, 1)(exact).astype(np.float64).astype(dtype)
    np.testing.assert_array_equal(product.value, rounded)


def test_integers_beside_what_is_not_finite() -> None:
    a, b = np.ones((3, 40)), np.ones((40, 3))
    a[1, 2], b[3, 0] = np.nan, np.inf
    product = multiply(a, b, crt(7))
    assert product.terms == 1
    np.testing.assert_array_equal(product.value, a @ b)
    a[0, 0] = 1.5
    assert multiply(a, b, crt(7)).terms == 7


def test_integers_that_are_too_large_are_scaled() -> None:
    a = np.full((2, 3), 2.0**40)
    a[0, 0] += 1
    assert multiply(a, a.T, crt(7)).terms == 7
    assert_within_bound(a, a.T, 7, np.float64)
    assert residues.pack(a, a.T, crt(7)).moduli == crt(7).moduli
    assert residues.pack(a, a.T, crt(16)).left.exponents.any() == 0
    huge = np.ldexp(np.arange(1.0, 9.0)[None], 100)  # whole numbers, but none that are counted
    assert_within_bound(huge, np.ones((8, 1)), 16, np.float64)


@pytest.mark.parametrize("count", range(7, 17))
def test_declared_error(count: int) -> None:
    a, b = normal(np.random.default_rng(4), 48, 1024, 48)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    difference = np.asarray(multiply(a, b, crt(count)).value - exact, np.float64)
    error = np.linalg.norm(difference) / np.linalg.norm(np.asarray(exact, np.float64))
    assert error == pytest.approx(crt(count).error, rel=0.1)


def test_sums_longer_than_a_segment() -> None:
    """All of one sign, modulo 256 beyond INT32."""
    k = (1 << 17) + 3000
    a = np.full((1, k), -128.0)
    a[0, 0] = 2.0**45  # not of one byte, so that residues are used
    product = multiply(a, np.sign(a.T) * 2.0**20, crt(16))
    assert product.terms > 7
    assert product.value[0, 0] == 2.0**65 + (k - 1) * 2.0**27
    assert INT32 == (1 << 32,)


@pytest.mark.parametrize("moduli", [MODULI, GAUSSIAN])
def test_moduli_have_no_common_factors(moduli: tuple[int, ...]) -> None:
    assert all(math.gcd(p, q) == 1 for p, q in combinations(moduli, 2))
    assert list(moduli) == sorted(moduli, reverse=True)
    left_out = set(range(moduli[-1], 257)) - set(moduli)
    if moduli is GAUSSIAN:
        left_out = {p for p in left_out if any((s * s + 1) % p == 0 for s in range(p))}
        left_out = {p for p in left_out if p % 2}
    assert all(any(math.gcd(p, q) > 1 for q in moduli if q > p) for p in left_out)


@pytest.mark.parametrize("kind", PART_BITS)
@pytest.mark.parametrize("count", range(1, len(MODULI) + 1))
def test_parts_are_the_weights(count: int, kind: Kind) -> None:
    moduli = MODULI[:count] if kind == "real" else of_complex(MODULI[:count])
    known, product = theorem(moduli, kind), math.prod(moduli)
    assert product >= math.prod(MODULI[:count])
    assert sum(map(int, known.product)) == product
    for parts, p in zip(known.weights, moduli, strict=True):
        weight = sum(map(int, parts))
        assert 2 * abs(weight) <= product
        assert not any(weight % q for q in moduli if q != p)
        part = 2 * weight % p  # of U + V, which is twice Re C; of U − V, twice s Im C
        assert {"real": part == 2, "sum": part == 1, "difference": part**2 % p == p - 1}[kind]


@pytest.mark.parametrize("kind", PART_BITS)
@pytest.mark.parametrize("count", range(1, len(MODULI) + 1))
def test_sums_of_parts_are_exact(count: int, kind: Kind) -> None:
    """Those of bytes, and less the quotient that these may have: less than 2^53 units."""
    moduli, most = (MODULI[:count], 256) if kind == "real" else (of_complex(MODULI[:count]), 512)
    known = theorem(moduli, kind)
    for place, unit in enumerate(known.units):
        assert unit == 2.0 ** (PART_BITS[kind] * (len(known.units) - 1 - place))
        sizes = [abs(parts[place]) / unit for parts in known.weights]
        quotient = len(moduli) * most // 4 + 1
        assert sum(sizes) * most / 2 + quotient * abs(known.product[place]) / unit < 2**53
        # On the GPU a byte, or two, count 1 to 2 times `most`, and sums begin at 1.5 times less.
        lowest = highest = -sum(1.5 * most * parts[place] for parts in known.weights) / unit
        for parts in known.weights:
            ends = [parts[place] / unit * most * bound for bound in (1, 2)]
            lowest, highest = lowest + min(ends), highest + max(ends)
            assert max(-lowest, highest) < 2**53


@pytest.mark.parametrize("count", [7, 8, 12, 16])
@pytest.mark.parametrize("k", [1, 100, 1 << 17, 1 << 23])
def test_rows_within_the_limit_stay_within_half_of_the_product(count: int, k: int) -> None:
    """Their norm, √K/2 more by rounding, squared: that bounds |Σ a'b'|."""
    splitter = Residues(MODULI[:count])
    root = math.isqrt(int(splitter.limit(k)))
    assert Fraction(2 * root + 1, 2) + Fraction(math.isqrt(k), 2) <= math.isqrt(splitter.largest)
    assert splitter.largest << 21 <= splitter.product * (2**20 - 1)
    assert 0.99 < splitter.limit(k) / 4**splitter.bits < 1


def test_the_fewest_moduli() -> None:
    """No fewer would tell the largest sum from another."""
    rng = random.Random(0)
    for _ in range(2000):
        a, b, k = (round(2 ** rng.uniform(0, bits)) for bits in (54, 54, 34))
        left, right = rng.choice([(-a, a // 2), (-a // 2, a)]), (0, b)
        found, largest = fewest_moduli(left, right, k), k * a * b
        if found is None:
            assert largest > Residues(MODULI).largest or max(a, b) > 2**53
        elif len(found) > 1:
            assert 2 * largest < math.prod(found)
            assert len(found) == 2 or largest > Residues(found[:-1]).largest
            assert max(a, b) > 127 or largest >= 2**31
        else:
            assert largest < 2**31
            assert max(a, b) < 256


ALL = {**FAMILIES, **EVERYDAY}
M, K, N = 40, 1000, 30
UNIT64 = 2.0**-53

# How many moduli operands of K = 1000 take; all others are multiplied natively.
NEEDED = {
    **dict.fromkeys(("normal", "uniform [0, 1)", "uniform [-1, 1)", "scaled rows"), 14),
    **dict.fromkeys(("integers", "constant", "low-rank"), 14),
    **dict.fromkeys(("crowded", "log-normal 1", "spread 0.5", "softmax 1"), 15),
    **dict.fromkeys(("subnormal-rich",), 15),
}


def operands(family: str, seed: int = 0) -> Any:
    return ALL[family](np.random.default_rng(seed), M, K, N)


def needed(a: Any, b: Any) -> int | None:
    return moduli_for(rows_of(a), rows_of(b.T))


def made(a: Any, b: Any) -> Any:
    return emulation.multiply(Request(a, b, "crt"))


@pytest.mark.parametrize("family", ALL)
def test_moduli_of_every_family(family: str) -> None:
    assert needed(*operands(family)) == NEEDED.get(family)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", NEEDED)
def test_errors_are_below_the_bound_and_those_of_float64(family: str, seed: int) -> None:
    a, b = operands(family, seed)
    product = made(a, b)
    if product is Reason.SPREAD:  # other numbers of the same family
        return
    x, y = a.astype(np.longdouble), b.astype(np.longdouble)
    exact, size = x @ y, abs(x) @ abs(y)
    error = abs(product.value - exact)
    assert (error <= (1 + 5 * K**0.5) * UNIT64 * size).all()
    if family == "constant":
        return  # one sum, again and again: which of the two is closer to it is luck
    # Sums in pairs or blocks may round an exact product's last bit alone: that much is allowed.
    rounded = UNIT64 * np.linalg.norm(size.astype(float))
    native = np.linalg.norm((a @ b - exact).astype(float))
    assert np.linalg.norm(error.astype(float)) <= max(native, rounded)


def test_sixteen_moduli_for_skewed_rows() -> None:
    a, b = spread(0.95)(np.random.default_rng(0), M, 4 * K, N)
    assert needed(a, b) == 16
    x, y = a.astype(np.longdouble), b.astype(np.longdouble)
    allowed = (1 + 5 * (4 * K) ** 0.5) * UNIT64 * (abs(x) @ abs(y))
    assert (abs(made(a, b).value - x @ y) <= allowed).all()


def test_the_constant_of_the_bound() -> None:
    assert 2.2 / LEAST * 2.0 ** -Residues(MODULI[:FEWEST]).bits <= 5 * UNIT64


@pytest.mark.parametrize("family", ALL)
def test_density_is_a_bound_from_below(family: str) -> None:
    a, b = operands(family)
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    with np.errstate(all="ignore"):
        found = (abs(a) @ abs(b)) / norms
    plain = (norms > 0) & np.isfinite(norms)
    least = density(rows_of(a), rows_of(b.T))
    assert (found[plain] >= least * (1 - 1e-12)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_native(value: float) -> None:
    a, b = operands("normal")
    a[3, 5] = value
    assert rows_of(a) == UNFIT
    assert made(a, b) is Reason.SPREAD


def test_integers_are_exact_however_sparse() -> None:
    rng = np.random.default_rng(0)
    a, b = ((rng.random(shape) < 0.01).astype(float) for shape in ((M, K), (K, N)))
    assert needed(a, b) is None
    np.testing.assert_array_equal(made(a, b).value, a.astype(int) @ b.astype(int))
    assert made(a, b * 0.5) is Reason.SPREAD
    assert made(a, b * 2.0**21) is Reason.SPREAD
