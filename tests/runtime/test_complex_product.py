"""Complex products: what they are made of, how accurate each part is, and where NaN and Inf go."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.in_place import imatmul
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.tracing.local_errors import emulated_errors
from mixpert_py.runtime.tracing.operand_statistics import operand_statistics
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import some, sweep
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES, Array
from tests.runtime.reference.test_emulation import SHAPES

SITE = "m:f/matmul~aa#0"
NAMES = ("faithful", *EMULATIONS)
PAIRS = ("FF", "DD", "FD", "Ff", "fF", "dF", "Dd")  # NumPy's letters of A's and B's type
UNIT = 2.0**-24


def normal(*shape: int, dtype: Any = "F", seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (x if np.dtype(dtype).kind == "c" else x.real).astype(dtype)


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


@pytest.mark.parametrize(("name", "pair"), sweep(NAMES, PAIRS, together=1))
def test_a_product_is_the_real_products_of_its_parts(name: str, pair: str) -> None:
    a, b = normal(13, 150, dtype=pair[0]), normal(150, 7, dtype=pair[1], seed=1)
    wanted = by_definition(a, b, lambda x, y: emulate(x, y, name))
    np.testing.assert_array_equal(emulate(a, b, name), wanted)


@pytest.mark.parametrize(
    ("pair", "shapes", "scheme"),
    sweep(
        PAIRS,
        [*SHAPES, ((3, 5), (2, 4, 5, 2)), ((1, 3, 5), (6, 5, 2))],
        ["native", "float64", "float32", "faithful", "int8x10", "fp16"],
    ),
)
def test_shape_and_type_are_those_of_matmul(scheme: str, shapes: Any, pair: str) -> None:
    a, b = (normal(*shape, dtype=t) for shape, t in zip(shapes, pair, strict=True))
    wanted, result = np.matmul(a, b), emulate(a, b, scheme)
    assert type(result) is type(wanted)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(result, wanted, atol=0.05 if scheme == "fp16" else 1e-5)


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


def test_an_imaginary_part_of_a_millionth_is_not_lost() -> None:
    a, b = (normal(40, 300, seed=i) for i in (1, 2))
    a.imag *= 1e-6
    b.imag *= 1e-6
    wanted, value = exact(a, b.T), emulate(a, b.T, "int8x6")
    error = np.linalg.norm((value - wanted).imag) / np.linalg.norm(wanted.imag)
    assert error < 1e-6


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


def test_products_beyond_the_range_are_infinite_where_native_ones_are() -> None:
    a, b = normal(8, 30), normal(30, 8, seed=1)
    a[3] *= np.float32(1e30)
    b[:, 5] *= np.float32(1e30)
    with np.errstate(all="ignore"):
        native, value = a @ b, emulate(a, b, "int8x6")
    np.testing.assert_array_equal(np.isfinite(value), np.isfinite(native))
    assert not np.isfinite(value[3, 5])


def test_subnormal_parts_are_kept() -> None:
    a = np.full((4, 4), complex(1, 2.0**-149), np.complex64)
    b = np.eye(4, dtype=np.complex64)
    np.testing.assert_array_equal(emulate(a, b, "int8x10"), a)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "conjugate transpose": lambda x: x.conj().T.copy().conj().T,
    "part of a structure": lambda x: np.stack([x, x * 2], -1)[..., 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_changes_nothing(layout: str) -> None:
    a, b = normal(9, 40), normal(40, 6, seed=1)
    wanted = emulate(a, b, "int8x6")
    np.testing.assert_array_equal(emulate(LAYOUTS[layout](a), LAYOUTS[layout](b), "int8x6"), wanted)


def test_a_repeated_operand_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixpert_py.runtime import complex_product
    from mixpert_py.runtime.reference import emulation

    shapes = []

    def counted(x: Array) -> Array:
        shapes.append(x.shape)
        return complex_product.split(x)

    way = complex_product.NUMPYS._replace(split=counted)
    monkeypatch.setattr(emulation.complex_product, "NUMPYS", way)
    a, b = np.broadcast_to(normal(3, 4), (7, 3, 4)), normal(7, 4, 2, seed=1)
    np.testing.assert_allclose(emulate(a, b, "int8x10"), a @ b, atol=1e-5)
    assert shapes == [(1, 3, 4), (7, 4, 2)]


@pytest.mark.parametrize("dtype", ["F", "D"])
def test_every_spelling(dtype: str) -> None:
    """The whole way: what the program wrote, under a scheme that is far from native."""
    a, b, c = (normal(12, 12, dtype=dtype, seed=i) for i in range(3))
    out = np.empty_like(a)

    def in_place() -> Array:
        x = a.copy()
        assert imatmul(x, b, site=SITE) is x
        return x

    spellings: dict[str, tuple[Callable[[], Any], Any]] = {
        "matmul": (lambda: matmul(a, b, site=SITE), a @ b),
        "out": (lambda: matmul(a, b, site=SITE, out=out, native=np.matmul), a @ b),
        "dot": (lambda: dot(a, b, site=SITE), a @ b),
        "dot out": (lambda: dot(a, b, out=out, site=SITE), a @ b),
        "method": (lambda: dot_method(a, b, site=SITE), a @ b),
        "conjugate": (lambda: matmul(a.conj().T, b, site=SITE), a.conj().T @ b),
        "inner": (lambda: inner(a, b, site=SITE), np.inner(a, b)),
        "tensordot": (lambda: tensordot(a, b, 1, site=SITE), a @ b),
        "einsum": (lambda: einsum("ij,jk->ki", a, b, site=SITE), (a @ b).T),
        "einsum of three": (lambda: einsum("ij,jk,kl", a, b, c, site=SITE), a @ b @ c),
        "multi_dot": (lambda: multi_dot([a, b, c], site=SITE), a @ b @ c),
        "in place": (in_place, a @ b),
        "vector": (lambda: matmul(a[0], b, site=SITE), a[0] @ b),
        "real": (lambda: matmul(a.real, b, site=SITE), a.real @ b),
    }
    for name, (ours, native) in spellings.items():
        trace = Trace()
        with use(Context(scheme="fp16", backend="reference", trace=trace)):
            result = ours()
        error = np.linalg.norm(result - native) / np.linalg.norm(native)
        assert 1e-6 < error < 1e-2, name
        assert result.dtype == native.dtype, name
        assert set(trace.sites[SITE].schemes) == {"fp16"}, name
        assert not trace.sites[SITE].reasons, name
        if "out" in name:
            assert result is out


def test_a_trace_has_the_programs_own_shape() -> None:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        matmul(normal(2, 3, 4), normal(4, 5), site=SITE)
    assert trace.sites[SITE].shapes == {(6, 4, 5): 1}
    assert trace.sites[SITE].dtypes == {"complex64": 1}
    assert trace.sites[SITE].calls == 1


def test_without_a_plan_numpy_multiplies() -> None:
    a = normal(30, 30)
    with use(Context()):
        np.testing.assert_array_equal(matmul(a, a, site=SITE), a @ a)


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


def test_float64_is_complex128() -> None:
    a, b = normal(9, 30), normal(30, 9, seed=1)
    wanted = (a.astype("D") @ b.astype("D")).astype("F")
    np.testing.assert_array_equal(emulate(a, b, "float64"), wanted)


def test_local_errors_lead_down_the_ladder() -> None:
    a, b = normal(60, 200, dtype="D"), normal(200, 40, dtype="D", seed=1)
    errors = emulated_errors(a, b, ("native", "int8x10", "int8x6", "float32", "int8x3", "int8x1"))
    assert errors["native"] == 0
    assert 0 < errors["int8x10"] < errors["int8x6"] < errors["int8x3"] < errors["int8x1"] < 0.1
    assert 1e-8 < errors["float32"] < 1e-6


def test_what_operands_are_like() -> None:
    a, b = normal(60, 200), normal(200, 40, seed=1)
    found = operand_statistics(a, b, ["int8x6"])
    assert found is not None
    assert 1e-8 < found.errors["int8x6"] < 1e-6
    assert 1 < found.spread < 4
    assert 5 < found.cancellation < 15  # about 0.8 √K
    cancelling = operand_statistics(np.array([[1, 1j]]), np.array([[1], [1j]]), [])
    assert cancelling is not None
    assert cancelling.cancellation == 2.0**53
