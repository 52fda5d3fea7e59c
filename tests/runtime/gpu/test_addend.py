"""Sums of a product with another array in one pass, on a GPU that is not there."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import device_state
from mixpert_py.runtime.products import fused as fused_module
from mixpert_py.runtime.products.fused import fused
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.gpu.fake import FakeGpu, Stream, multiply_add, ndarray
from tests.runtime.products.test_fused import FORMS, arguments

SITE = "m:f/product~aa#0"
ALPHA, BETA = 1.5, -0.3
SCHEMES = ["int8x6", "int8x10", "fp16x3", "mixpert-IV"]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> ndarray:
    return ndarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Its kernels for both types have run."""
    fake = FakeGpu()
    fake.install(monkeypatch)
    for dtype in (np.float32, np.float64):
        matmul(normal(2, 2, dtype=dtype), normal(2, 2, dtype=dtype), **CUDA)
    fake.launches.clear()
    return fake


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The signs of sums that operators have made."""
    made: list[str] = []

    def noted(sign: str, add: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def apply(x: Any, y: Any) -> Any:
            made.append(sign)
            return add(x, y)

        return apply

    sums = {sign: noted(sign, add) for sign, add in fused_module.SUMS.items()}
    monkeypatch.setattr(fused_module, "SUMS", sums)
    return made


CUDA: dict[str, Any] = {"scheme": "int8x6", "backend": "cuda"}


class Multiplied:
    """An operand whose product is known."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __matmul__(self, other: Any) -> Any:
        return self.value


def by_steps(form: str, a: Any, b: Any, c: Any, alpha: Any, beta: Any, **given: Any) -> Any:
    """The emulated product, and then the program's own operators."""
    product = Multiplied(matmul(a, b, **(given or CUDA)))
    with np.errstate(all="ignore"):
        return FORMS[form](*arguments(form, product, b, c, alpha, beta))


def copied(c: Any) -> Any:
    return ndarray(c.x.copy()) if isinstance(c, ndarray) else c


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("gpu")
def test_every_form_is_one_pass_with_the_rounding_it_states(
    form: str, scheme: str, dtype: Any, signs: list[str]
) -> None:
    a, b, c = (normal(*s, dtype=dtype) for s in ((9, 40), (40, 7), (9, 7)))
    product = matmul(a, b, scheme=scheme, backend="cuda").x
    steps = by_steps(form, a, b, copied(c), ALPHA, BETA, scheme=scheme, backend="cuda")
    alpha, beta = ALPHA if "alpha" in form else 1.0, BETA if "beta" in form else 1.0
    first, second = form.replace("=", "").replace("-", "+").split("+")
    alpha *= -1 if "-" in form and "ab" in second else 1
    beta *= -1 if "-" in form and "ab" in first else 1
    wanted = multiply_add(float(dtype(beta)), c.x, dtype(alpha) * product)
    value = fused(*arguments(form, a, b, c, ALPHA, BETA), form=form, scheme=scheme, backend="cuda")
    assert not signs
    assert (type(value), value.shape, value.dtype) == (ndarray, (9, 7), dtype)
    assert (value is c) == ("=" in form)
    np.testing.assert_array_equal(value.x, wanted)
    if "beta" not in form:
        np.testing.assert_array_equal(value.x, steps.x)


ONE_PASS: dict[str, Any] = {
    # (shapes of a, b, c), launches
    "a row": (((9, 40), (40, 7), (7,)), 1),
    "rows of one": (((9, 40), (40, 7), (1, 7)), 1),
    "a matrix for each": (((3, 9, 40), (40, 7), (3, 9, 7)), 1),
    "a matrix for all": (((3, 9, 40), (3, 40, 7), (9, 7)), 1),
    "a row for all": (((3, 9, 40), (3, 40, 7), (7,)), 1),
    "a row for each": (((9, 40), (3, 40, 7), (3, 1, 7)), 1),
    "some launches": (((2, 1, 9, 40), (3, 40, 7), (2, 3, 9, 7)), 2),
    "one axis": (((3, 1, 40), (40, 1), (3, 1, 1)), 1),
}


@pytest.mark.parametrize("case", ONE_PASS)
def test_what_c_may_be_broadcast_from(gpu: FakeGpu, signs: list[str], case: str) -> None:
    shapes, launches = ONE_PASS[case]
    a, b, c = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    wanted = by_steps("alpha*ab-beta*c", a, b, c, 2.0, 0.5)
    gpu.launches.clear()
    value = fused(2.0, (a, b), 0.5, c, form="alpha*ab-beta*c", **CUDA)
    assert (signs, len(gpu.launches)) == ([], launches)
    np.testing.assert_array_equal(value.x, wanted.x)
    # In place there is one matrix, which a launch can be sure of.
    if c.shape == wanted.shape:
        wanted = by_steps("c-=ab", a, b, copied(c), 1, 1)
        assert fused(c, a, b, form="c-=ab", **CUDA) is c
        np.testing.assert_array_equal(c.x, wanted.x)


FACTORS: dict[str, Any] = {
    "int": 3,
    "float": 0.1,
    "0": 0,
    "-0.0": -0.0,
    "float32": np.float32(0.1),
    "bool": True,
    "float64": np.float64(0.1),
    "int64": np.int64(3),
    "many bits": 2**30 + 1,
    "too many": 10**400,
    "inf": np.inf,
    "nan": np.nan,
    "too large": 1e39,
    "subnormal": 1e-42,
    "underflow": 1e-50,
    "complex": 1j,
    "an array": ndarray(np.array(0.5, np.float32)),
}
ONE_PASS_FACTORS = {"int", "float", "float32"}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("side", ["alpha", "beta"])
@pytest.mark.usefixtures("gpu")
def test_which_factors_the_kernels_take(name: str, side: str, signs: list[str]) -> None:
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    a.x[2, 3], c.x[4, 5] = np.inf, np.nan
    factors = {"alpha": 1.0, "beta": 1.0, side: FACTORS[name]}
    form = "alpha*ab+beta*c"
    make = partial(fused, factors["alpha"], (a, b), factors["beta"], c, form=form, **CUDA)
    if name == "too many":
        with pytest.raises(OverflowError):
            make()
        return
    wanted = by_steps(form, a, b, c, **factors)
    with np.errstate(all="ignore"):
        value = make()
    one_pass = ONE_PASS_FACTORS | ({"0", "-0.0", "underflow"} if side == "alpha" else set())
    assert bool(signs) == (name not in one_pass)
    assert value.dtype == wanted.dtype
    np.testing.assert_array_equal(np.isnan(value.x), np.isnan(wanted.x))
    np.testing.assert_allclose(value.x, wanted.x, rtol=3e-7, atol=3e-7)


@pytest.mark.usefixtures("gpu")
def test_c_may_stand_before_its_factor(signs: list[str]) -> None:
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    value = fused(a, b, c, 0.5, form="ab-beta*c", **CUDA)
    assert not signs
    np.testing.assert_array_equal(value.x, by_steps("ab-beta*c", a, b, c, 1, 0.5).x)
    fused(a, b, c, c, form="ab-beta*c", **CUDA)  # elementwise
    assert signs == ["-"]


OTHERS: dict[str, Any] = {
    "a number": lambda: 2.0,
    "a column": lambda: normal(9, 1),
    "of no dimension": lambda: ndarray(np.array(2.0, np.float32)),
    "a stack": lambda: normal(2, 9, 7),
    "Fortran": lambda: ndarray(normal(7, 9).x.T),
    "every other column": lambda: normal(9, 14)[:, ::2],
    "float64": lambda: normal(9, 7, dtype=np.float64),
    "integers": lambda: ndarray(np.ones((9, 7), np.int32)),
}


@pytest.mark.parametrize("form", ["ab+c", "alpha*ab-beta*c", "c+=ab"])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.usefixtures("gpu")
def test_what_else_is_added_by_operators(name: str, form: str, signs: list[str]) -> None:
    a, b, c = normal(9, 40), normal(40, 7), OTHERS[name]()
    given = copied(c)
    try:
        wanted = by_steps(form, a, b, given, 2.0, 0.5)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            fused(*arguments(form, a, b, c, 2.0, 0.5), form=form, **CUDA)
        return
    value = fused(*arguments(form, a, b, c, 2.0, 0.5), form=form, **CUDA)
    assert signs
    assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(value.x, wanted.x)


PLACES: dict[str, Any] = {
    "wide rows": (lambda x: ndarray(np.zeros((9, 12), np.float32))[:, 2:11], True),
    "every other row": (lambda x: ndarray(np.zeros((18, 9), np.float32))[::2], True),
    "a": (lambda x: x, False),
    "a transposed": (lambda x: x.T, False),
    "rows reversed": (lambda x: ndarray(np.zeros((9, 9), np.float32))[::-1], False),
    "every other column": (lambda x: ndarray(np.zeros((9, 18), np.float32))[:, ::2], False),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("form", ["c+=ab", "c-=alpha*ab"])
@pytest.mark.usefixtures("gpu")
def test_sums_in_place(place: str, special: bool, form: str, signs: list[str]) -> None:
    a, b = normal(9, 9), normal(9, 9, seed=1)
    if special:
        a.x[2, 3], a.x[5, 1], b.x[4, 6] = np.nan, np.inf, -np.inf
    make, one_pass = PLACES[place]
    product = Multiplied(matmul(a, b, **CUDA))
    c = make(a)
    if one_pass:
        c.x[...] = normal(9, 9, seed=2).x
    with np.errstate(all="ignore"):
        wanted = FORMS[form](*arguments(form, product, b, copied(c), 0.3, 1)).x
        assert fused(*arguments(form, a, b, c, 0.3, 1), form=form, **CUDA) is c
    assert bool(signs) != one_pass
    np.testing.assert_array_equal(c.x, wanted)


@pytest.mark.usefixtures("gpu")
def test_sums_in_place_beside_the_operands(signs: list[str]) -> None:
    """Blocks of one matrix: between their first and last elements lie those of the others."""
    whole = normal(9, 27)
    a, b, c = (whole[:, at : at + 9] for at in (0, 9, 18))
    expected = whole.x.copy()
    expected[:, 18:] = by_steps("c+=ab", a, b, copied(c), 1, 1).x
    signs.clear()
    assert fused(c, a, b, form="c+=ab", **CUDA) is c
    assert not signs
    np.testing.assert_array_equal(whole.x, expected)


def test_sums_in_place_wait_until_nothing_can_fail(
    gpu: FakeGpu, signs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_state, "_states", {})
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    native = c.x + a.x @ b.x
    gpu.refuses = DeviceError("no such instruction")
    fused(c, a, b, form="c+=ab", **CUDA | {"scheme": "int8x8"})
    np.testing.assert_array_equal(c.x, native)
    gpu.refuses = None
    wanted = by_steps("c+=ab", a, b, by_steps("c+=ab", a, b, copied(c), 1, 1), 1, 1)
    device_state.state_of(0).repaired.clear()
    matmul(normal(2, 2), normal(2, 2, dtype=np.float64), **CUDA)  # which has a kernel of its own
    for _ in range(2):
        fused(c, a, b, form="c+=ab", **CUDA)
    assert signs == ["+=", "+="]
    np.testing.assert_array_equal(c.x, wanted.x)


@pytest.mark.usefixtures("gpu")
def test_segments_of_k_meet_in_c(signs: list[str]) -> None:
    a, b, c = normal(9, 2000), normal(2000, 7), normal(9, 7)
    given = CUDA | {"block": 1024}
    wanted = by_steps("c+=ab", a, b, copied(c), 1, 1, **given)
    value = fused(c, a, b, form="c+ab", **given)
    assert not signs
    np.testing.assert_array_equal(value.x, wanted.x)
    fused(c, a, b, form="c+=ab", **given)
    assert signs == ["+="]
    np.testing.assert_array_equal(c.x, wanted.x)


@pytest.mark.parametrize("scheme", ["int8x6", "mixpert-IV"])
@pytest.mark.parametrize("form", ["alpha*ab+beta*c", "c-alpha*ab", "c+=alpha*ab"])
@pytest.mark.usefixtures("gpu")
def test_outliers_and_special_values_are_scaled_too(scheme: str, form: str) -> None:
    a, b, c = normal(9, 300), normal(300, 7, seed=1), normal(9, 7, seed=2)
    a.x[2, 3], a.x[5, 1], b.x[4, 6] = np.nan, np.inf, -np.inf
    a.x[3] = b.x[:, 2] = 110 / 256 / 127  # second digits are large, one entry most of the norm
    a.x[3, 0] = b.x[0, 2] = 1
    c.x[0, 0], c.x[5, 3] = np.nan, -np.inf
    given = {"scheme": scheme, "backend": "cuda"}
    wanted = by_steps(form, a, b, copied(c), -1.5, 0.3, **given).x
    with np.errstate(all="ignore"):
        value = fused(*arguments(form, a, b, c, -1.5, 0.3), form=form, **given).x
    np.testing.assert_array_equal(np.isnan(value), np.isnan(wanted))
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(value[infinite], wanted[infinite])
    np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("form", ["alpha*ab+beta*c", "c+=ab"])
def test_short_memory_makes_a_product_in_parts(gpu: FakeGpu, signs: list[str], form: str) -> None:
    a, b, c = normal(700, 40), normal(40, 300, seed=1), normal(700, 300, seed=2)
    wanted = by_steps(form, a, b, copied(c), 1.5, -0.3)
    gpu.launches.clear()
    gpu.memory = 200_000
    value = fused(*arguments(form, a, b, c, 1.5, -0.3), form=form, **CUDA)
    assert (len(gpu.launches) > 2, len(signs)) == (True, 1)
    np.testing.assert_array_equal(value.x, wanted.x)


@pytest.mark.parametrize("scheme", ["native", "float64"])
@pytest.mark.usefixtures("gpu")
def test_products_that_are_not_emulated_are_added_by_operators(
    scheme: str, signs: list[str]
) -> None:
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    value = fused(c, a, b, form="c+=ab", scheme=scheme, backend="cuda")
    assert (value is c, signs) == (True, ["+="])


@pytest.mark.parametrize(
    "shapes", [((0, 4), (4, 3)), ((5, 0), (0, 3)), ((6,), (6, 3)), ((5, 6), (6,))]
)
@pytest.mark.usefixtures("gpu")
def test_nothing_and_vectors_are_added_by_operators(shapes: Any, signs: list[str]) -> None:
    a, b = normal(*shapes[0]), normal(*shapes[1])
    c = normal(*np.matmul(a.x, b.x).shape)
    wanted = by_steps("ab-c", a, b, c, 1, 1)
    np.testing.assert_array_equal(fused(a, b, c, form="ab-c", **CUDA).x, wanted.x)
    assert signs == ["-"]


@pytest.mark.usefixtures("gpu")
def test_shapes_that_do_not_multiply_are_the_programs_error() -> None:
    with pytest.raises(ValueError, match="matmul"):
        fused(normal(3, 4), normal(5, 6), normal(3, 6), form="ab+c", **CUDA)


@pytest.mark.parametrize(
    ("trace", "by_operators"),
    [(Trace(), False), (Trace(keep=[SITE]), True), (Trace(levels=["int8x3"]), True)],
    ids=["plain", "keep", "levels"],
)
@pytest.mark.usefixtures("gpu")
def test_who_looks_at_a_product_sees_one(
    trace: Trace, by_operators: bool, signs: list[str]
) -> None:
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    with use(Context(trace=trace, backend="cuda", scheme="int8x6")):
        value = fused(a, b, c, form="ab+c", site=SITE)
    assert bool(signs) == by_operators
    site = trace.sites[SITE]
    assert (site.calls, site.schemes, site.shapes) == (1, {"int8x6": 1}, {(9, 40, 7): 1})
    np.testing.assert_array_equal(value.x, by_steps("ab+c", a, b, c, 1, 1).x)
    if trace.keep:
        np.testing.assert_array_equal(trace.results[SITE], matmul(a, b, **CUDA).x)
    if trace.levels:
        assert site.errors["int8x3"] > 0


def test_a_product_that_is_refused_has_its_reason(gpu: FakeGpu, signs: list[str]) -> None:
    trace = Trace()
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    gpu.memory = 100
    with use(Context(trace=trace, backend="cuda", scheme="int8x6")):
        value = fused(a, b, c, form="ab+c", site=SITE)
    assert (trace.sites[SITE].reasons, signs) == ({Reason.MEMORY: 1}, ["+"])
    np.testing.assert_array_equal(value.x, a.x @ b.x + c.x)


@pytest.mark.parametrize("form", ["ab+c", "c+=ab"])
@pytest.mark.usefixtures("gpu")
def test_a_captured_sum_keeps_what_its_graph_uses(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []

    def finalize(owner: Any, function: Any, used: Any) -> Any:
        kept.append((owner, used))
        return SimpleNamespace()

    monkeypatch.setattr("mixpert_py.runtime.gpu.slices.weakref.finalize", finalize)
    a, b, c = normal(9, 40), normal(40, 7), normal(9, 7)
    with Stream(ptr=99) as stream:
        stream.capturing = True
        value = fused(*arguments(form, a, b, c, 1, 1), form=form, **CUDA)
    (owner, used), *_ = kept
    assert owner is value
    assert any(x is c for x in used[0]) == (form == "ab+c")  # else nobody would ever let go of c
