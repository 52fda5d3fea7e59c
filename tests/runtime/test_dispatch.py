"""Dispatch: every call means what the native one means, and says why it took no scheme."""

import operator
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from time import sleep
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import dispatch
from mixpert_py.runtime.call import Made
from mixpert_py.runtime.cuda import device
from mixpert_py.runtime.dispatch import dot, dot_method, matmul
from mixpert_py.runtime.in_force import InForce, precision, use
from mixpert_py.runtime.route import FLOAT32_PAYS
from mixpert_py.runtime.tracing.trace import Reason, Trace

SITE = "m:f/matmul~aa#0"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is of machines without one."""
    absent = device.Absent(Reason.NO_TENSOR_CORE, "there is no GPU")
    monkeypatch.setattr(device, "may_be_here", lambda: False)
    monkeypatch.setattr(device, "find", lambda number=None: absent)


class Matrix:
    """A user's class with a product of its own, on both sides."""

    def __matmul__(self, other: object) -> str:
        return "left"

    def __rmatmul__(self, other: object) -> str:
        return "right"

    def dot(self, other: object, weight: object = None) -> tuple[str, object]:
        return "dot", weight


class Refuses:
    """A class that NumPy may not touch, in a module without a name."""

    __array_ufunc__ = None
    __module__ = None  # type: ignore[assignment]


class Ufunc:
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ufunc.__name__, len(inputs), sorted(kwargs)


class Function:
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func.__name__, len(args), sorted(kwargs)


class Raises:
    def __matmul__(self, other: object) -> None:
        raise KeyError("from __matmul__")

    def dot(self, other: object) -> None:
        raise KeyError("from dot")


class Tagged(np.ndarray[Any, Any]):
    """A subclass without anything of its own."""


def _operands() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int, dtype: Any = float) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    square = normal(4, 4)
    read_only = normal(4, 4)
    read_only.flags.writeable = False
    return {
        "()": np.array(2.5),
        "(4)": normal(4),
        "(3)": normal(3),
        "(4, 4)": square,
        "(3, 4)": normal(3, 4),
        "(4, 1)": normal(4, 1),
        "(2, 4, 4)": normal(2, 4, 4),
        "(5, 4, 4)": normal(5, 4, 4),
        "(5, 1, 4, 3)": normal(5, 1, 4, 3),
        "(0)": np.empty(0),
        "(0, 4)": np.empty((0, 4)),
        "(4, 0)": np.empty((4, 0)),
        "(0, 0)": np.empty((0, 0)),
        "(2, 0, 4)": np.empty((2, 0, 4)),
        "float32": normal(4, 4, dtype=np.float32),
        "float32 vector": normal(4, dtype=np.float32),
        "float16": normal(4, 4, dtype=np.float16),
        "longdouble": normal(4, 4, dtype=np.longdouble),
        "complex": normal(4, 4) + 1j,
        "int": rng.integers(-9, 9, (4, 4)),
        "uint8": rng.integers(0, 9, (4, 4)).astype(np.uint8),
        "bool": rng.integers(0, 2, (4, 4)) == 1,
        "object": normal(4, 4).astype(object),
        "swapped": square.astype(square.dtype.newbyteorder()),
        "structured": np.zeros((4, 4), [("x", float)]),
        "datetime": np.zeros((4, 4), "datetime64[s]"),
        "string": np.full((4, 4), "a"),
        "transposed": normal(4, 4).T,
        "reversed": normal(4, 4)[::-1, ::-1],
        "every other": normal(8, 8)[::2, ::2],
        "stride 0": np.broadcast_to(normal(4), (4, 4)),
        "read-only": read_only,
        "NaN": np.where(np.eye(4) > 0, np.nan, square),
        "Inf": np.where(np.eye(4) > 0, np.inf, square),
        "matrix": np.matrix(normal(4, 4)),
        "masked": np.ma.masked_less(normal(4, 4), 0),
        "subclass": normal(4, 4).view(Tagged),
        "csr": sparse.csr_array(np.eye(4)),
        "csr matrix": sparse.csr_matrix(np.eye(4)),
        "float": 2.0,
        "float64 scalar": np.float64(2),
        "list": [[1.0, 0.0, 0.0, 0.0]] * 4,
        "None": None,
        "str": "text",
        "user's class": Matrix(),
        "refuses": Refuses(),
        "ufunc": Ufunc(),
        "function": Function(),
        "raises": Raises(),
    }


OPERANDS = _operands()

Product = Callable[..., Any]
SPELLINGS: dict[str, tuple[Product, Product]] = {
    "@": (operator.matmul, matmul),
    "np.matmul": (np.matmul, lambda *a, **k: matmul(*a, native=np.matmul, **k)),
    "np.dot": (np.dot, lambda *a, **k: dot(*a, native=np.dot, **k)),
    "x.dot": (lambda a, *b, **k: a.dot(*b, **k), dot_method),
}


def outcome(product: Product, *operands: Any) -> tuple[Any, list[str]]:
    """What a product returned or raised, and the warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = product(*operands)
        except Exception as error:
            result = type(error), str(error)
    return result, [str(warning.message) for warning in caught]


def dense(x: Any) -> Any:
    return x.toarray() if sparse.issparse(x) else x


def same(result: Any, native: Any) -> bool:
    if type(result) is not type(native):
        return False
    if isinstance(native, (np.ndarray, np.generic)) or sparse.issparse(native):
        if (result.dtype, result.shape) != (native.dtype, native.shape):
            return False
        one, other = np.asarray(dense(result)), np.asarray(dense(native))
        if one.dtype == object:
            return all(same(x, y) for x, y in zip(one.flat, other.flat, strict=True))
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return bool(result == native or (result != result and native != native))


@pytest.fixture(params=["nothing", "a trace", "native", "no tensor core", "too small"])
def passing(request: pytest.FixtureRequest) -> Iterator[None]:
    """States of affairs under which small operands are multiplied natively."""
    force = {
        "nothing": InForce(),
        "a trace": InForce(trace=Trace(keep=[SITE])),
        "native": InForce(plan=Plan(site=[Site(id=SITE, scheme="native")])),
        "no tensor core": InForce(plan=Plan(site=[Site(id=SITE, scheme="int8x6")])),
        "too small": InForce(scheme="float32", trace=Trace()),
    }[request.param]
    with use(force):
        yield


@pytest.mark.usefixtures("passing")
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_call_that_passes_is_the_native_call(spelling: str) -> None:
    native, ours = SPELLINGS[spelling]
    for left, a in OPERANDS.items():
        for right, b in OPERANDS.items():
            wanted, its_warnings = outcome(native, a, b)
            for _ in range(2):  # the first call of a site takes another way
                result, our_warnings = outcome(partial(ours, site=SITE), a, b)
                assert same(result, wanted), (left, right, result, wanted)
                assert our_warnings == its_warnings, (left, right)


@pytest.mark.parametrize("scheme", ["int8x6", "faithful", "float64", "fp16x3"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_emulated_call_differs_in_value_only(spelling: str, scheme: str) -> None:
    native, ours = SPELLINGS[spelling]
    with precision(scheme, backend="reference"), np.errstate(all="warn"):
        for left, a in OPERANDS.items():
            for right, b in OPERANDS.items():
                wanted, its_warnings = outcome(native, a, b)
                result, our_warnings = outcome(ours, a, b)
                assert set(our_warnings) <= set(its_warnings), (left, right)
                if same(result, wanted):
                    continue
                assert type(result) is type(wanted), (left, right, result, wanted)
                assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
                np.testing.assert_array_equal(np.isfinite(result), np.isfinite(wanted))
                # Of complex numbers that are not finite, libraries make different ones.
                kept = np.isfinite(wanted) | (np.asarray(wanted).dtype.kind != "c")
                difference = np.asarray(result)[kept], np.asarray(wanted)[kept]
                np.testing.assert_allclose(*difference, rtol=0, atol=3e-5)


def test_the_table_reaches_the_schemes() -> None:
    trace = Trace()
    with use(InForce(scheme="int8x6", backend="reference", trace=trace)):
        for a in OPERANDS.values():
            for b in OPERANDS.values():
                outcome(partial(dot, site=SITE), a, b)
    record = trace.sites[SITE]
    assert record.schemes["int8x6"] > 150
    assert record.schemes["native"] == record.reasons.total() > 150
    assert set(record.reasons) >= {
        Reason.SCALAR,
        Reason.INTEGER,
        Reason.DTYPE,
        Reason.SUBCLASS,
        Reason.SPARSE,
        Reason.NOT_AN_ARRAY,
    }


@pytest.mark.parametrize("spelling", ["np.matmul", "np.dot", "x.dot"])
@pytest.mark.parametrize("by", ["position", "keyword"])
@pytest.mark.parametrize("scheme", [None, "int8x6"])
def test_out_is_native(spelling: str, by: str, scheme: str | None) -> None:
    native, ours = SPELLINGS[spelling]
    a = np.arange(16.0).reshape(4, 4)
    read_only = np.zeros((4, 4))
    read_only.flags.writeable = False
    outs: dict[str, Callable[[], Any]] = {
        "fits": lambda: np.full((4, 4), 7.0),
        "Fortran": lambda: np.zeros((4, 4), order="F"),
        "strided": lambda: np.zeros((8, 8))[::2, ::2],
        "float32": lambda: np.zeros((4, 4), np.float32),
        "int": lambda: np.zeros((4, 4), int),
        "shape": lambda: np.zeros((3, 3)),
        "dimensions": lambda: np.zeros((1, 4, 4)),
        "read-only": lambda: read_only,
        "subclass": lambda: np.zeros((4, 4)).view(Tagged),
        "tuple": lambda: (np.zeros((4, 4)),),
        "number": lambda: 5,
    }
    for name, make in outs.items():
        theirs, mine = make(), make()
        if by == "position":
            wanted, _ = outcome(native, a, a, theirs)
        else:
            wanted, _ = outcome(partial(native, out=theirs), a, a)
        with use(InForce(scheme=scheme, backend="reference")):
            if by == "position":
                result, _ = outcome(ours, a, a, mine)
            else:
                result, _ = outcome(partial(ours, out=mine), a, a)
        if isinstance(wanted, np.ndarray):
            assert result is (mine[0] if isinstance(mine, tuple) else mine), name
            np.testing.assert_allclose(result, wanted, rtol=1e-5)
        else:
            assert same(result, wanted), name


@pytest.mark.parametrize("spelling", ["np.matmul", "np.dot", "x.dot"])
@pytest.mark.parametrize("operand", [0, 1])
def test_out_may_be_an_operand(spelling: str, operand: int) -> None:
    native, ours = SPELLINGS[spelling]
    pair = np.random.default_rng(3).standard_normal((2, 5, 5))
    wanted = native(*pair)
    for scheme in ("native", "int8x6"):
        a, b = pair.copy()
        out = (a, b)[operand]
        with precision(scheme, backend="reference"):
            assert ours(a, b, out) is out
        np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_out_of_no_dimension_is_native() -> None:
    v, out = np.ones(3), np.zeros(())
    with precision("int8x6", backend="reference"):
        assert matmul(v, v, out=out) is out
        assert type(dot(v, v, out=out)) is np.float64


def test_a_users_method_gets_its_arguments_as_written() -> None:
    assert dot_method(Matrix(), 1, 2) == ("dot", 2)
    with precision("int8x6"):
        assert dot_method(Matrix(), 1, 2) == ("dot", 2)


def test_an_operator_with_out_becomes_a_function() -> None:
    a, out = np.eye(2), np.zeros((2, 2))
    assert matmul(a, a, out=out) is matmul(a, a, out) is out


@pytest.mark.parametrize("operand", [np.eye(4), [[1]], None])
def test_unknown_names_are_errors_for_every_operand(operand: Any) -> None:
    with pytest.raises(PlanError, match=r"unknown scheme 'int9x6'; known: .*int8x6"):
        matmul(operand, operand, scheme="int9x6")
    with pytest.raises(PlanError, match="unknown backend 'gpu'; known: reference, cuda"):
        dot(operand, operand, backend="gpu")
    with pytest.raises(DeviceError, match=r"^backend 'cuda': .* use 'reference'$"):
        dot_method(operand, operand, backend="cuda")


def test_cuda_in_force_is_an_error_at_every_call() -> None:
    with use(InForce(backend="cuda")):
        for _ in range(2):
            with pytest.raises(DeviceError):
                matmul(np.eye(2), np.eye(2), site=SITE)


def traced(a: Any, b: Any, scheme: str, backend: str | None = None, **given: Any) -> Any:
    """The result of one product, the scheme that ran, and the reason if it was not `scheme`."""
    trace = Trace()
    with use(InForce(scheme=scheme, backend=backend, trace=trace)):
        result = matmul(a, b, site=SITE, **given)
    record = trace.sites[SITE]
    assert record.calls == record.schemes.total() == 1
    return result, *record.schemes, *(record.reasons or [None])


@pytest.mark.parametrize(
    ("shape", "pays"),
    [
        ((FLOAT32_PAYS * 3, FLOAT32_PAYS * 3, FLOAT32_PAYS * 3), True),
        ((FLOAT32_PAYS * 3 - 1, FLOAT32_PAYS * 3 - 1, FLOAT32_PAYS * 3), False),
        ((900, 40, 900), False),
        ((1, 4000, 1000), False),
    ],
)
def test_float32_runs_where_it_pays(shape: tuple[int, int, int], pays: bool) -> None:
    m, k, n = shape
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    result, ran, reason = traced(a, b, "float32")
    assert (ran, reason) == (("float32", None) if pays else ("native", Reason.TOO_SMALL))
    assert result.dtype == np.float64
    error = np.linalg.norm(result - a @ b) / np.linalg.norm(a @ b)
    assert (1e-8 < error < 1e-6) if pays else error == 0


def test_both_operands_of_a_stack_count() -> None:
    a = np.ones((5, 128, 128))
    assert traced(a, a, "float32")[1:] == ("native", Reason.TOO_SMALL)
    assert traced(a, a[0], "float32")[1:] == ("float32", None)


def test_float32_operands_need_no_float32_scheme() -> None:
    a = np.random.default_rng(5).standard_normal((5, 5)).astype(np.float32)
    result, ran, reason = traced(a, a, "float32")
    assert (ran, reason) == ("float32", None)
    assert same(result, a @ a)


PLACES: dict[str, Callable[[], Any]] = {
    "C order": lambda: np.zeros((4, 4)),
    "Fortran": lambda: np.zeros((4, 4), order="F"),
    "a block": lambda: np.zeros((8, 8))[2:6, 1:5],
    "strides": lambda: np.zeros((8, 8))[::-2, ::2],
    "misaligned": lambda: np.zeros(129, np.uint8)[1:].view(float).reshape(4, 4),
    "float32": lambda: np.zeros((4, 4), np.float32),
}


@pytest.mark.parametrize("place", PLACES)
def test_np_matmul_writes_to_any_array_of_the_results_shape_and_type(place: str) -> None:
    a, b = np.random.default_rng(2).standard_normal((2, 4, 4))
    out = PLACES[place]()
    takes = place not in ("misaligned", "float32")
    result, ran, reason = traced(a, b, "int8x3", "reference", out=out, native=np.matmul)
    assert result is out
    assert (ran, reason) == (("int8x3", None) if takes else ("native", Reason.OUT))
    wanted = matmul(a, b, scheme="int8x3" if takes else "native", backend="reference")
    np.testing.assert_array_equal(out, wanted.astype(out.dtype))


@pytest.mark.parametrize("place", [name for name in PLACES if name != "C order"])
def test_np_dot_wants_c_order(place: str) -> None:
    a = np.eye(4)
    with pytest.raises(ValueError, match="output array is not acceptable"):
        traced(a, a, "int8x3", "reference", out=PLACES[place](), native=np.dot)


@pytest.mark.parametrize(("native", "step"), [(np.matmul, 2), (np.dot, 1)])
@pytest.mark.parametrize("vector", [False, True])
def test_stacks_of_products_have_an_out(native: Any, step: int, vector: bool) -> None:
    stack = np.random.default_rng(2).standard_normal((3, 4, 4))
    a, b = (stack[0, 0], stack) if vector else (stack, stack[0])
    out = np.zeros((3 * step, *native(a, b).shape[1:]))[::step]
    assert traced(a, b, "int8x3", "reference", out=out, native=native)[1:] == ("int8x3", None)
    np.testing.assert_allclose(out, native(a, b), atol=1e-3)
    np.testing.assert_array_equal(out, matmul(a, b, scheme="int8x3", backend="reference"))


def test_out_of_another_shape_is_numpys_to_refuse() -> None:
    a = np.eye(4)
    with pytest.raises(ValueError, match="mismatch"):
        traced(a, a, "float64", "reference", out=np.zeros((3, 3)), native=np.matmul)


def test_no_scheme_without_a_device_or_a_backend() -> None:
    a = np.eye(4)
    assert traced(a, a, "int8x6")[1:] == ("native", Reason.NO_TENSOR_CORE)
    assert traced(a, a, "int8x6", "reference")[1:] == ("int8x6", None)
    assert traced(a, a, "native")[1:] == ("native", None)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ((2, 3, 4), (4, 5), None),
        ((2, 3, 4), (4,), None),
        ((2, 6, 3, 4), (4, 5), None),
        ((4,), (2, 4, 5), None),
        ((3, 4), (2, 4, 5), Reason.DIMENSIONS),
        ((2, 3, 4), (2, 4, 5), Reason.DIMENSIONS),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", [dot, dot_method])
def test_dot_of_many_dimensions(
    way: Any, a: tuple[int, ...], b: tuple[int, ...], reason: Reason | None
) -> None:
    trace = Trace()
    draw = np.random.default_rng(0)
    left, right = draw.standard_normal(a), draw.standard_normal(b)
    with use(InForce(scheme="int8x6", backend="reference", trace=trace)):
        found = way(left, right, site=SITE)
    wanted = np.dot(left, right)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert trace.sites[SITE].reasons == ({reason: 1} if reason else {})


def test_a_plan_brings_its_block() -> None:
    rng = np.random.default_rng(6)
    a = rng.standard_normal((8, 512)) * np.exp(4 * rng.standard_normal((1, 512)))
    results = []
    for block in (32, None):
        plan = Plan(site=[Site(id=SITE, scheme="int8x3", block=block)])
        with use(InForce(plan=plan, backend="reference")):
            results.append(matmul(a, a.T, site=SITE))
    assert not np.array_equal(*results)
    given = matmul(a, a.T, scheme="int8x3", block=32, backend="reference")
    np.testing.assert_array_equal(given, results[0])


def test_a_trace_sees_calls_and_not_those_that_raise() -> None:
    trace = Trace(levels=["float32"], keep=[SITE])
    a = np.random.default_rng(7).standard_normal((6, 5))
    with use(InForce(trace=trace)):
        for _ in range(3):
            result = matmul(a, a.T, site=SITE)
        with pytest.raises(ValueError, match="mismatch"):
            matmul(a, a, site=SITE)
        matmul(a[:0], a.T, site=SITE)
    record = trace.sites[SITE]
    assert record.calls == 4
    assert record.shapes == {(6, 5, 6): 3, (0, 5, 6): 1}
    assert record.dtypes == {"float64": 4}
    assert not record.reasons
    assert 1e-9 < record.errors["float32"] < 1e-6
    kept = trace.results[SITE]
    assert kept is not result
    np.testing.assert_array_equal(kept, result)


def test_local_errors_are_of_operands_that_are_still_there() -> None:
    trace = Trace(levels=["float32"])
    a = np.random.default_rng(8).standard_normal((6, 6))
    with use(InForce(trace=trace)):
        matmul(a, a, np.empty((6, 6)), site="apart", native=np.matmul)
        matmul(a, a, a, site="over", native=np.matmul)
    assert trace.sites["apart"].errors
    assert not trace.sites["over"].errors


def test_outliers_are_counted_past_the_clock_and_not_at_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def slowly() -> float:
        asked.append(sleep(0.05))
        return 0.5

    monkeypatch.setattr(dispatch, "make", lambda *_, **__: Made(np.eye(2), "int8x6", slowly))
    trace = Trace()
    with use(InForce(scheme="int8x6", trace=trace)):
        for _ in range(6):
            matmul(np.eye(2), np.eye(2), site="s")
    assert len(asked) == 4  # calls 1, 2, 3 and 5
    assert trace.sites["s"].outliers == 0.5
    assert trace.sites["s"].seconds < 0.05


def test_the_clock_starts_when_the_operands_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [np.eye(2), np.eye(2)]

    def wait(x: Any) -> bool:
        if late and x is late[0]:
            sleep(0.05)
            late.pop(0)
        return True

    monkeypatch.setattr(dispatch, "wait_for", wait)
    trace = Trace()
    with use(InForce(trace=trace)):
        matmul(*late, site="s")
    assert not late
    assert trace.sites["s"].seconds < 0.05
