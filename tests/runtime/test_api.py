"""Dispatch: every call means what the native one means, and says why it took no scheme."""

import operator
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from time import sleep
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import api
from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, current, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.runtime.worth import MIN_THICKNESS
from tests.every_check import EVERY_CHECK, some
from tests.runtime.operands import (
    OPERANDS,
    SITE,
    SPELLINGS,
    Matrix,
    assert_differs_in_value_only,
    outcome,
    same,
    traced,
)
from tests.runtime.without_gpu import no_gpu as no_gpu


@pytest.fixture(params=["nothing", "a trace", "native", "no tensor core", "too small"])
def passing(request: pytest.FixtureRequest) -> Iterator[None]:
    """States of affairs under which small operands are multiplied natively."""
    context = {
        "nothing": Context(),
        "a trace": Context(trace=Trace(keep=[SITE])),
        "native": Context(plan=Plan(site=[Site(id=SITE, scheme="native")])),
        "no tensor core": Context(plan=Plan(site=[Site(id=SITE, scheme="int8x6")])),
        "too small": Context(scheme="float32", trace=Trace()),
    }[request.param]
    with use(context):
        yield


@pytest.mark.usefixtures("passing")
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_call_that_passes_is_the_native_call(spelling: str) -> None:
    native, ours = SPELLINGS[spelling]
    pairs = list(product(OPERANDS, OPERANDS))
    for left, right in pairs if current() == Context() else some(pairs):
        a, b = OPERANDS[left], OPERANDS[right]
        wanted, its_warnings = outcome(native, a, b)
        for _ in range(2):  # the first call of a site takes another way
            result, our_warnings = outcome(partial(ours, site=SITE), a, b)
            assert same(result, wanted), (left, right, result, wanted)
            assert our_warnings == its_warnings, (left, right)


EMULATING = ("int8x6", "faithful", "float64", "fp16x3")


@pytest.mark.parametrize("scheme", EMULATING)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_emulated_call_differs_in_value_only(spelling: str, scheme: str) -> None:
    """Of any operands; without EVERY_CHECK a pair meets one scheme of three, in each spelling."""
    native, ours = SPELLINGS[spelling]
    pairs = list(product(OPERANDS, OPERANDS))
    with precision(scheme, backend="reference"), np.errstate(all="warn"):
        for left, right in some(pairs[EMULATING.index(scheme) % 3 * (not EVERY_CHECK) :]):
            a, b = OPERANDS[left], OPERANDS[right]
            wanted, its_warnings = outcome(native, a, b)
            result, our_warnings = outcome(partial(ours, site=SITE), a, b)
            assert set(our_warnings) <= set(its_warnings), (left, right)
            if same(result, wanted):
                continue
            assert_differs_in_value_only(result, wanted, (left, right))


def test_the_table_reaches_the_schemes() -> None:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
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


def test_a_users_method_gets_its_arguments_as_written() -> None:
    assert dot_method(Matrix(), 1, 2) == ("dot", 2)
    with precision("int8x6"):
        assert dot_method(Matrix(), 1, 2) == ("dot", 2)


@pytest.mark.parametrize("operand", [np.eye(4), [[1]], None])
def test_unknown_names_are_errors_for_every_operand(operand: Any) -> None:
    with pytest.raises(PlanError, match=r"unknown scheme 'int9x6'; did you mean 'int8x6'"):
        matmul(operand, operand, scheme="int9x6")
    with pytest.raises(PlanError, match="unknown backend 'gpu'; known: reference, cuda"):
        dot(operand, operand, backend="gpu")
    with pytest.raises(DeviceError, match=r"^backend 'cuda': .* use 'reference'$"):
        dot_method(operand, operand, backend="cuda")


def test_cuda_in_force_is_an_error_at_every_call() -> None:
    with use(Context(backend="cuda")):
        for _ in range(2):
            with pytest.raises(DeviceError):
                matmul(np.eye(2), np.eye(2), site=SITE)


@pytest.mark.parametrize(
    ("shape", "pays"),
    [
        ((MIN_THICKNESS * 3, MIN_THICKNESS * 3, MIN_THICKNESS * 3), True),
        ((MIN_THICKNESS * 3 - 1, MIN_THICKNESS * 3 - 1, MIN_THICKNESS * 3), False),
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
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
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
        with use(Context(plan=plan, backend="reference")):
            results.append(matmul(a, a.T, site=SITE))
    assert not np.array_equal(*results)
    given = matmul(a, a.T, scheme="int8x3", block=32, backend="reference")
    np.testing.assert_array_equal(given, results[0])


def test_a_trace_sees_calls_and_not_those_that_raise() -> None:
    trace = Trace(levels=["float32"], keep=[SITE])
    a = np.random.default_rng(7).standard_normal((6, 5))
    with use(Context(trace=trace)):
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
    with use(Context(trace=trace)):
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

    monkeypatch.setattr(api, "execute", lambda *_, **__: Product(np.eye(2), "int8x6", slowly))
    trace = Trace()
    with use(Context(scheme="int8x6", trace=trace)):
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

    monkeypatch.setattr(api, "wait_for", wait)
    trace = Trace()
    with use(Context(trace=trace)):
        matmul(*late, site="s")
    assert not late
    assert trace.sites["s"].seconds < 0.05


@pytest.mark.parametrize("context", [Context(), Context(scheme="float64")], ids=["none", "float64"])
@pytest.mark.parametrize("native", [operator.matmul, np.matmul])
@pytest.mark.parametrize(
    "options",
    [
        {"axes": [(0, 1), (1, 0), (0, 1)]},
        {"axes": [(0, 1), (1, 0), (0, 1)], "out": np.zeros((4, 3))},
        {"dtype": np.float32, "casting": "same_kind"},
        {"dtype": int},
        {"order": "F"},
        {"subok": False},
        {"signature": "dd->d"},
        {"axis": 0},
        {"where": True},
        {"kind": 1},
    ],
    ids=str,
)
def test_matmul_takes_what_numpys_takes(
    options: dict[str, Any], native: Any, context: Context
) -> None:
    a, b = np.arange(12.0).reshape(4, 3) / 7, np.arange(12.0).reshape(3, 4)
    wanted, its_warnings = outcome(partial(np.matmul, **options), a, b)
    with use(context):
        for _ in range(2):  # the first call of a site takes another way
            result, ours = outcome(partial(matmul, native=native, site=SITE, **options), a, b)
            assert same(result, wanted), (result, wanted)
            assert ours == its_warnings


def test_an_argument_of_numpys_is_a_reason() -> None:
    trace = Trace()
    with use(Context(scheme="float64", trace=trace)):
        matmul(np.eye(2), np.eye(2), site=SITE, dtype=np.float32)
    assert trace.sites[SITE].reasons == {Reason.ARGUMENT: 1}


class Convertible:
    """Something that NumPy takes as an array, and that has no `@`."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.eye(2)


@pytest.mark.parametrize("operands", [([[1, 2]], [[3], [4]]), (Convertible(), Convertible())])
def test_matmul_by_name_takes_what_has_no_operator(operands: tuple[Any, Any]) -> None:
    for scheme in (None, "float64"):
        assert same(matmul(*operands, scheme=scheme), np.matmul(*operands))
        with pytest.raises(TypeError, match="unsupported operand"):
            matmul(*operands, scheme=scheme, site=SITE)  # a rewritten `a @ b`


def test_another_function_in_numpys_place_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "matmul", matmul)
    out = np.zeros((2, 2))
    assert np.matmul(np.eye(2), np.eye(2), out=out) is out
    assert same(np.matmul(np.eye(2), np.eye(2), dtype=np.float32), np.eye(2, dtype=np.float32))


@pytest.mark.parametrize("native", [None, np.matmul])
def test_a_call_that_passes_costs_no_other(native: Any) -> None:
    a, seen = np.eye(2), []
    matmul(a, a, site=SITE, native=native)
    sys.setprofile(lambda frame, event, _: seen.append(frame) if event == "call" else None)
    try:
        matmul(a, a, site=SITE, native=native)
    finally:
        sys.setprofile(None)
    assert len(seen) == 1


def test_what_else_functions_take_passes_too() -> None:
    """Wherever it would be theirs to judge."""
    a = np.arange(4.0).reshape(2, 2)
    for _ in range(2):
        for function in (matmul, dot, dot_method):
            out = np.zeros((2, 2))
            assert function(a, a, out=out, site=SITE) is out  # type: ignore[operator]
            assert function(a, a, out, site=SITE) is out  # type: ignore[operator]
            np.testing.assert_array_equal(out, a @ a)
            for given in ({}, {"scheme": "int8x1", "backend": "reference"}):
                with pytest.raises(TypeError):
                    function(a, a, more=1, site=SITE, **given)  # type: ignore[operator]
        assert matmul(a, a, dtype="float32", site=SITE).dtype == np.float32
        emulated = matmul(a / 3, a, scheme="int8x1", backend="reference", site=SITE)
        assert (emulated != a / 3 @ a).any()


def test_a_program_may_put_ours_in_numpys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import mixpert_py

    a = np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)
    expected = mixpert_py.matmul(a, a, scheme="int8x6", backend="reference")
    for name in ("matmul", "dot", "tensordot", "einsum", "inner"):
        monkeypatch.setattr(np, name, getattr(mixpert_py, name))
    monkeypatch.setattr(np.linalg, "multi_dot", mixpert_py.multi_dot)
    with mixpert_py.precision("int8x6", backend="reference"):
        for found in (
            *(np.matmul(a, a), np.dot(a, a), np.tensordot(a, a, 1), np.einsum("ij,jk", a, a)),
            *(np.inner(a, a.T), np.linalg.multi_dot([a, a])),
        ):
            np.testing.assert_array_equal(found, expected)


def test_a_method_that_takes_no_out_refuses_none_too() -> None:
    class Sparse:
        def dot(self, other: object) -> str:
            return "product"

    with pytest.raises(TypeError, match="out"):
        dot_method(Sparse(), 1, out=None)
    assert dot_method(Sparse(), 1) == "product"
    a = np.eye(2)
    assert dot_method(a, a, out=None) is not a
