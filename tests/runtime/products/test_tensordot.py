"""`tensordot` means np.tensordot, and says why it took no scheme."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.operands import OPERANDS, Function, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


CASES: dict[str, tuple[Any, ...]] = {
    "matrices": (normal(3, 4), normal(4, 5), 1),
    "vectors": (normal(4), normal(4), 1),
    "outer": (normal(3, 4), normal(2), 0),
    "by default": (normal(5, 3, 4), normal(3, 4, 6)),
    "all": (normal(3, 4), normal(3, 4), 2),
    "pairs": (normal(3, 4, 5), normal(4, 3, 2), ([1, 0], [0, 1])),
    "pairs in another order": (normal(3, 4, 5), normal(4, 3, 2), ([0, 1], [1, 0])),
    "numbers": (normal(3, 4, 5), normal(2, 4), (1, 1)),
    "list of numbers": (normal(3, 4), normal(2, 4), [1, 1]),
    "negative": (normal(3, 4, 5), normal(2, 4), (-2, -1)),
    "tuples": (normal(3, 4, 5), normal(2, 4), ((1,), (1,))),
    "arrays": (normal(3, 4, 5), normal(2, 4), (np.array([1]), np.array([1]))),
    "one array": (normal(3, 4), normal(4, 2), np.array([1, 0])),
    "NumPy's number": (normal(3, 4), normal(4, 2), np.int64(1)),
    "no axes": (normal(3, 4), normal(2), ([], [])),
    "five dimensions": (normal(2, 3, 4, 5, 2), normal(5, 4, 3), ([3, 1], [0, 2])),
    "transposed": (normal(4, 3).T, normal(5, 4).T, 1),
    "strided": (normal(6, 8, 5)[::2, ::-2], normal(4, 3, 2), ([0, 1], [1, 0])),
    "empty sum": (normal(3, 0), normal(0, 5), 1),
    "no rows": (normal(0, 4), normal(4, 5), 1),
    "float32": (normal(3, 4).astype("float32"), normal(4, 5).astype("float32"), 1),
    "both dtypes": (normal(3, 4).astype("float32"), normal(4, 5), 1),
    "no match": (normal(3, 4), normal(5, 4), 1),
    "too many axes": (normal(3, 4), normal(3, 4), 3),
    "negative number": (normal(3, 4), normal(3, 4), -1),
    "unequal numbers of axes": (normal(3, 4), normal(3, 4), ([0, 1], [0])),
    "beyond": (normal(3, 4), normal(3, 4), (2, 0)),
    "twice": (normal(4, 4), normal(4, 4), ([0, 0], [0, 1])),
    "twice, one negative": (normal(4, 4), normal(4, 4), ([0, -2], [0, 1])),
    "three parts": (normal(4, 4), normal(4, 4), (0, 1, 0)),
    "a fraction": (normal(4, 4), normal(4, 4), 1.0),
    "nothing": (normal(4, 4), normal(4, 4), None),
}


@pytest.mark.parametrize("context", FORCES)
def test_a_call_that_passes_is_the_native_call(context: str) -> None:
    with use(FORCES[context]()):
        for name, case in CASES.items():
            wanted, _ = outcome(np.tensordot, *case)
            for _ in range(2):  # the first call of a site takes another way
                result, _ = outcome(partial(tensordot, site=SITE), *case)
                assert same(result, wanted), (name, result, wanted)


@pytest.mark.parametrize("context", FORCES)
def test_whatever_the_operands_are(context: str) -> None:
    with use(FORCES[context]()):
        for left, a in OPERANDS.items():
            for right, b in OPERANDS.items():
                if isinstance(a, Function) or isinstance(b, Function):
                    continue  # sees whether axes were given, which means nothing
                wanted, its_warnings = outcome(np.tensordot, a, b, 1)
                result, our_warnings = outcome(partial(tensordot, site=SITE), a, b, 1)
                assert same(result, wanted), (left, right, result, wanted)
                assert our_warnings == its_warnings, (left, right)


@pytest.mark.parametrize(
    ("name", "scheme", "own"),
    sweep(list(CASES), ["int8x6", "faithful", "float64", "float32"], [False, True]),
)
def test_an_emulated_call_differs_in_value_only(name: str, scheme: str, own: bool) -> None:
    native = (lambda *arguments: np.tensordot(*arguments)) if own else np.tensordot
    wanted, _ = outcome(np.tensordot, *CASES[name])
    with precision(scheme, backend="reference"):
        result, _ = outcome(partial(tensordot, native=native), *CASES[name])
    if not same(result, wanted):
        assert type(result) is type(wanted), (result, wanted)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("matrices", (3, 4, 5)),
        ("vectors", (1, 4, 1)),
        ("outer", (12, 1, 2)),
        ("by default", (5, 12, 6)),
        ("pairs", (5, 12, 2)),
        ("five dimensions", (16, 15, 4)),
    ],
)
def test_two_matrices_take_the_scheme(name: str, shape: tuple[int, int, int]) -> None:
    trace = Trace(levels=["float32"], keep=[SITE])
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        result = tensordot(*CASES[name], site=SITE)
    record = trace.sites[SITE]
    assert record.schemes == {"int8x6": 1}
    assert record.shapes == {shape: 1}
    assert not record.reasons
    assert 0 < record.errors["float32"] < 1e-6
    assert not np.array_equal(result, np.tensordot(*CASES[name]))
    np.testing.assert_array_equal(trace.results[SITE].ravel(), result.ravel())


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (np.ones((3, 4), int), np.ones((4, 3)), Reason.INTEGER),
        (np.ones((3, 4), object), np.ones((4, 3)), Reason.DTYPE),
        (np.ones((3, 4)), np.matrix(np.ones((4, 3))), Reason.SUBCLASS),
        ([[1.0, 2.0]], np.ones((2, 1)), Reason.NOT_AN_ARRAY),
    ],
)
def test_other_operands_are_native_for_a_reason(a: Any, b: Any, reason: Reason) -> None:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        assert same(tensordot(a, b, 1, site=SITE), np.tensordot(a, b, 1))
    assert trace.sites[SITE].schemes == {"native": 1}
    assert trace.sites[SITE].reasons == {reason: 1}


@pytest.mark.parametrize("scheme", [None, "native", "int8x6"])
def test_the_programs_own_function_is_called(scheme: str | None) -> None:
    calls = []

    def native(a: Any, b: Any, axes: Any) -> Any:
        calls.append((a, b, axes))
        return np.tensordot(a, b, axes)

    a, b, axes = np.ones((3, 4, 2)), np.ones((5, 4)), (1, 1)
    result = tensordot(a, b, axes, scheme=scheme, site=SITE, native=native)
    assert result.shape == (3, 2, 5)
    ((x, y, z),) = calls
    assert x is a
    assert y is b
    assert z is axes


def test_the_kept_result_has_one_shape() -> None:
    shapes = set()

    def primitive(*arguments: Any) -> Any:
        return np.tensordot(*arguments)

    primitive.fun = np.tensordot  # type: ignore[attr-defined]  # as autograd's have
    for scheme in ("native", "int8x6"):
        for native in (np.tensordot, primitive):
            trace = Trace(keep=[SITE])
            with use(Context(scheme=scheme, backend="reference", trace=trace)):
                tensordot(normal(2, 3, 4), normal(4, 5), 1, site=SITE, native=native)
            shapes.add(trace.results[SITE].shape)
    assert shapes == {(6, 5)}


@pytest.mark.gpu
@pytest.mark.parametrize(("edge", "scheme"), [(2048, "int8x6"), (32, "native")])
def test_cupy_arrays(edge: int, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # there is a GPU
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = cupy.random.default_rng(0)
    a = rng.standard_normal((edge, 4, edge // 4), dtype="float32")
    b = rng.standard_normal((edge // 4, edge, 4), dtype="float32")
    trace = Trace()
    with use(Context(scheme="int8x6", trace=trace)):
        result = tensordot(a, b, ([1, 2], [2, 0]), site=SITE, native=cupy.tensordot)
    assert trace.sites[SITE].schemes == {scheme: 1}
    assert type(result) is cupy.ndarray
    assert (result.dtype, result.shape) == (a.dtype, (edge, edge))
    exact = cupy.tensordot(a.astype(float), b.astype(float), ([1, 2], [2, 0]))
    assert float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact)) < 2e-6
