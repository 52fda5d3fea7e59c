"""The accuracy of `faithful`, and of the parts of complex products."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py import matmul
from mixpert_py.runtime.complex_product import NUMPYS, parts, split
from mixpert_py.runtime.model.device_model import model_of
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.floats import WIDER
from tests.benchmarks.contract import Exact, Sums, allowed, errors, grades
from tests.contract.table import normal
from tests.every_check import EVERY_CHECK, some, sweep
from tests.runtime.emulations import EMULATIONS, with_block
from tests.runtime.families import EVERYDAY, FAMILIES, Array
from tests.runtime.operands import chained

PAIRS = ("FF", "DD", "FD", "Ff", "fF", "dF", "Dd")  # NumPy's letters of A's and B's type
UNIT = 2.0**-24


def of_family(name: str, pair: str, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Parts of one family, imaginary ones of A far smaller."""
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        (a, b), (c, d) = (FAMILIES[name](rng, m, k, n) for _ in range(2))
        found = []
        for re, im, letter in ((a, c * 2.0**-12, pair[0]), (b, d, pair[1])):
            x = np.empty(re.shape, letter)
            x.real = re
            if x.dtype.kind == "c":
                x.imag = im
            found.append(x)
    return found[0], found[1]


def exact(a: Array, b: Array) -> Array:
    return a.astype(np.clongdouble) @ b.astype(np.clongdouble)


def by_definition(a: Array, b: Array, product: Callable[[Array, Array], Any]) -> Array:
    """The parts of C from real products, each part of an operand by itself."""
    out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    out = out.astype(np.result_type(a, b))
    if a.dtype.kind == b.dtype.kind:
        out.real = product(a.real, b.real) - product(a.imag, b.imag)
        out.imag = product(a.real, b.imag) + product(a.imag, b.real)
    elif a.dtype.kind == "c":
        out.real, out.imag = product(a.real, b), product(a.imag, b)
    else:
        out.real, out.imag = product(a, b.real), product(a, b.imag)
    return out


@pytest.mark.parametrize(
    ("name", "pair", "family"),
    sweep(
        ["faithful", "int8x8", "int8x10"],
        PAIRS,
        [name for name in FAMILIES if name != "subnormal"],
    ),
)
def test_each_part_is_as_accurate_as_a_real_product(name: str, pair: str, family: str) -> None:
    """Grade B by parts: the small imaginary parts are not drowned in what the real ones lose."""
    k = 140
    a, b = of_family(family, pair, 9, k, 11)
    error = emulate(a, b, name) - exact(a, b)
    norm = [[np.linalg.norm(x.astype(complex), axis=i) for x in (y.real, y.imag)]
            for y, i in ((a, 1), (b, 0))]  # fmt: skip
    (ar, ai), (br, bi) = norm
    limit = (k + 2) * UNIT
    assert (abs(error.real) <= limit * (np.outer(ar, br) + np.outer(ai, bi))).all()
    assert (abs(error.imag) <= limit * (np.outer(ar, bi) + np.outer(ai, br))).all()


SPECIALS = [0.0, 1.5, np.inf, -np.inf, np.nan]
VALUES = [complex(x, y) for x, y in itertools.product(SPECIALS, SPECIALS)]


@pytest.mark.parametrize("name", ["faithful", "int8x6", "fp16x3", "mixpert-IV", "float64"])
@pytest.mark.parametrize("pair", ["FF", "DD", "Ff", "fF"])
def test_nan_and_inf_are_where_the_formulas_put_them(name: str, pair: str) -> None:
    """Every value, at one place of A, one of B, and where both meet, against NumPy's own."""
    for one, other in some(itertools.product(VALUES, [1 + 0j, *VALUES[::3]]), 7):
        a, b = normal(5, 6, dtype=pair[0]), normal(6, 4, dtype=pair[1], seed=1)
        a[2, 3] = one if pair[0] in "FD" else one.real
        b[3, 1] = other if pair[1] in "FD" else other.real
        b[0, 2] = 0
        with np.errstate(all="ignore"):
            native = a @ b
            wanted = by_definition(a, b, np.matmul)
            value = emulate(a, b, name)
        np.testing.assert_array_equal(np.isfinite(value), np.isfinite(native))
        if name == "float64":  # NumPy's own product
            continue
        for part, expected in ((value.real, wanted.real), (value.imag, wanted.imag)):
            np.testing.assert_array_equal(np.isnan(part), np.isnan(expected))
            np.testing.assert_allclose(part, expected, atol=1e-4)


def test_float32_casts_where_there_is_room() -> None:
    a, b = normal(40, 40, dtype="D"), normal(40, 40, dtype="D", seed=1)
    value = emulate(a, b, "float32")
    assert value.dtype == np.complex128
    np.testing.assert_array_equal(value, a.astype("F") @ b.astype("F"))
    assert emulate(a * 1e200j, b, "float32") is None
    assert emulate(a * 1e-40j, b, "float32") is None
    assert emulate(a * 1e25, b * 1e25j, "float32") is None
    mixed = emulate(a.real, b, "float32")
    np.testing.assert_array_equal(mixed, a.real.astype("f") @ b.astype("F"))


def test_a_repeated_operand_is_split_once() -> None:
    shapes: list[Any] = []
    way = NUMPYS._replace(split=lambda x: (shapes.append(x.shape), split(x))[1])
    assert parts(way, np.broadcast_to(normal(3, 4, dtype="F"), (7, 3, 4))).shape == (2, 7, 3, 4)
    assert shapes == [(1, 3, 4)]


ALL = {**FAMILIES, **EVERYDAY}


def faithful(a: Any, b: Any, backend: str = "reference") -> Any:
    return matmul(a, b, scheme="faithful", backend=backend)


def beyond(a: Any, b: Any, value: Any) -> Any:
    """Elements that break |E|ij ≤ (12 + K) u (|A||B|)ij + K · 2^-149, of those that fit float32."""
    exact, size = a.astype("d") @ b.astype("d"), abs(a).astype("d") @ abs(b).astype("d")
    with np.errstate(invalid="ignore"):
        wrong = ~(abs(value.astype("d") - exact) <= allowed(a.shape[1], size))
    return wrong & (size < np.finfo(np.float32).max * (1 - 2.0**-20))


# name → how a product is made, and the lengths of its sums.
LIKE = {"FP32 sums": None, "an H200": model_of("h200").accumulation}
SCHEMES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "faithful": (faithful, (300,)),
    "on an H200": (partial(faithful, backend="reference:h200"), (48, 64, 128)),
    "wider, on an H200": (
        lambda a, b: multiply(a, b, WIDER, like=LIKE["an H200"]).value,
        (16, 48, 64, 256, 1024),
    ),
}


@pytest.mark.parametrize("family", ALL)
def test_no_family_is_worse_than_a_sequential_chain(family: str) -> None:
    """Where tensor cores truncate, constant operands make one sum, and the chain's luck decides."""
    for scheme, (product, lengths) in SCHEMES.items():
        if family == "constant" and scheme != "faithful":
            continue
        if scheme == "wider, on an H200" and not EVERY_CHECK:  # families take the lengths in turn
            lengths = lengths[[*ALL].index(family) % 5 :: 5]
        for k in lengths:
            made = ALL[family](np.random.default_rng(0), 32, k, 24)
            a, b = (x.astype(np.float32) for x in made)
            value = product(a, b)
            assert not beyond(a, b, value).any(), (scheme, k)
            exact = Exact.of(a, b)
            ratios = errors(exact, value).over(errors(exact, chained(a, b)), Sums.of(exact).floor)
            assert ratios.frobenius <= 1, (scheme, k)
            assert ratios.componentwise <= 1 or scheme != "faithful", (scheme, k)


@pytest.mark.parametrize("seed", range(8))
def test_random_pairs_of_families_under_any_scaling(seed: int) -> None:
    rng, names = np.random.default_rng(seed), list(ALL)
    for _ in range(40):
        m, k, n = (int(2 ** rng.uniform(0, 8)) for _ in range(3))
        left, right = rng.choice(names, 2)
        a = np.asarray(ALL[left](rng, m, k, n)[0], float) * 10 ** rng.uniform(-8, 8, (m, 1))
        b = np.asarray(ALL[right](rng, m, k, n)[1], float) * 10 ** rng.uniform(-8, 8, n)
        d = 10 ** rng.uniform(-8, 8, k)
        with np.errstate(over="ignore", under="ignore"):
            a, b = (a * d).astype(np.float32), (b / d[:, None]).astype(np.float32)
        if np.isfinite(a).all() and np.isfinite(b).all():
            assert not beyond(a, b, faithful(a, b)).any(), (left, right, m, k, n)


def block_cases(k: int) -> Any:
    """What is small in both operands meets, what is large meets zeros."""
    for small in (2.0**-24, 2.0**-28, 2.0**-29, 2.0**-30, 2.0**-32, 2.0**-35, 2.0**-39):
        for times in (1.0, 1 + 2.0**-11 + 2.0**-23):
            a, b = np.zeros((1, k), np.float32), np.zeros((k, 1), np.float32)
            a[0, 0] = b[1, 0] = 1
            a[0, 2:] = b[2:, 0] = small * times
            yield a, b
            n = 2.0 ** (14 - (k.bit_length() - 1))
            a[0, 2:] = b[2:, 0] = (n + 0.5) * 2.0**-38 * times
            yield a, b


@pytest.mark.parametrize(
    ("k", "backend"),
    [(k, "reference") for k in (3, 64, 65, 128, 255, 512, 4096, 32768)]
    + [(k, "reference:h200") for k in (3, 64, 128, 600)],
)
def test_small_entries_that_meet_while_large_ones_meet_zeros(k: int, backend: str) -> None:
    for a, b in some(block_cases(k)):
        value = faithful(a, b, backend)
        assert not beyond(a, b, value).any()
        if k >= 512:
            error = abs(value - a.astype("d") @ b.astype("d"))
            assert (error <= k * UNIT * (a.astype("d") @ b.astype("d")) + k * 2.0**-149).all()


def meeting(k: int, other: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A's largest entries, near 2^20, meet zeros, and so do B's, near 2^other; small ones meet."""
    a, b = (np.ldexp(rng.uniform(1, 2, shape), -1) for shape in ((6, k), (k, 6)))
    a[:, 1], b[0] = 0, 0
    sizes = np.array([20, -20, -60, -100, -130, -147])
    a[:, 0] = np.ldexp(a[:, 0], 20)
    a[:, 2:] = np.ldexp(a[:, 2:], sizes[:, None])
    b[1] = np.ldexp(b[1], other)
    b[2:] = np.ldexp(b[2:], other - np.array([0, 20, 40, 60, 80, 93]))
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("other", [-60, 0, 20, 40, 62, 90, 127])
def test_small_entries_that_meet_small_ones(like: str, other: int) -> None:
    for k in (128, 600):
        a, b = meeting(k, other, np.random.default_rng(k))
        for x, y in ((a, b), (np.ascontiguousarray(b.T), np.ascontiguousarray(a.T))):
            value = multiply(x, y, WIDER, like=LIKE[like]).value
            exact, size = (
                p(x).astype(np.float64) @ p(y).astype(np.float64) for p in (np.positive, abs)
            )
            assert (abs(value - exact) <= allowed(k, size))[size < 2.0**128].all()


GRADES = {"A": ("bf16x6", "bf16x9", "tf32x3", "fp16x3"), "B": ("int8x6", "int8x8", "int8x10")}


@pytest.mark.parametrize("family", ALL)
def test_grades_count_from_16_on(family: str) -> None:
    for k in (16, 64, 256, 1024):
        a, b = (x.astype(np.float32) for x in ALL[family](np.random.default_rng(2), 24, k, 20))
        exact = Exact.of(a, b)
        for grade, names in GRADES.items():
            for name in names:
                value = multiply(a, b, EMULATIONS[name]).value
                assert grade in grades(exact, value), (k, name)


TWO = 32_639  # what two balanced digits hold
EXACT = {"int8x3": (127, TWO), "int8x6": (TWO, TWO), "int8x8": (TWO, TWO), "int8x10": (TWO, TWO)}


def integers(m: int, k: int, n: int, left: int, right: int, seed: int = 0) -> tuple[Array, Array]:
    """Integers up to ±left and ±right; every row and column reaches its bound."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-left, left + 1, (m, k)), rng.integers(-right, right + 1, (k, n))
    a[np.arange(m), rng.integers(0, k, m)] = left
    b[rng.integers(0, k, n), np.arange(n)] = -right
    return a, b


def check(a: Array, b: Array, scheme: Scheme, dtype: type, block: int | None = None) -> None:
    product = multiply(a.astype(dtype), b.astype(dtype), with_block(scheme, block))
    assert product.outliers == 0
    assert product.value.dtype == dtype
    np.testing.assert_array_equal(product.value, (a @ b).astype(dtype))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("k", [20, 100, 3000])
@pytest.mark.parametrize("block", [None, 64])
def test_integers_of_two_digits(name: str, swapped: bool, k: int, block: int | None) -> None:
    """In float64, which holds them all."""
    a, b = integers(13, k, 9, *EXACT[name])
    check(*((b.T, a.T) if swapped else (a, b)), EMULATIONS[name], np.float64, block)


@pytest.mark.parametrize("k", [16, 500, 2500, 5200])
@pytest.mark.parametrize(("left", "right"), [(31, 127), (2048, 3)])
def test_faithful_keeps_integers(k: int, left: int, right: int) -> None:
    """One FP16 slice holds integers up to 2048."""
    check(*integers(40, k, 30, left, right, seed=4), emulation_of("faithful"), np.float32)
