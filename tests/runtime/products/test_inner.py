"""`inner` means np.inner, and says why it took no scheme."""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import some
from tests.runtime.operands import OPERANDS, assert_differs_in_value_only, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu


@pytest.mark.parametrize("context", FORCES)
def test_a_call_that_passes_is_the_native_call(context: str) -> None:
    with use(FORCES[context]()):
        for left, right in some(product(OPERANDS, OPERANDS)):
            a, b = OPERANDS[left], OPERANDS[right]
            wanted, its_warnings = outcome(np.inner, a, b)
            for _ in range(2):  # the first call of a site takes another way
                result, our_warnings = outcome(partial(inner, site=SITE), a, b)
                assert same(result, wanted), (left, right, result, wanted)
                assert our_warnings == its_warnings, (left, right)


@pytest.mark.parametrize("scheme", ["int8x6", "faithful", "float64", "float32"])
def test_an_emulated_call_differs_in_value_only(scheme: str) -> None:
    with precision(scheme, backend="reference"), np.errstate(all="warn"):
        for left, right in some(product(OPERANDS, OPERANDS)):
            a, b = OPERANDS[left], OPERANDS[right]
            wanted, _ = outcome(np.inner, a, b)
            result, _ = outcome(inner, a, b)
            if same(result, wanted):
                continue
            assert_differs_in_value_only(result, wanted, (left, right))


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ((5, 4), (3, 4), (5, 4, 3)),
        ((5, 4), (4,), (5, 4, 1)),
        ((4,), (3, 4), (1, 4, 3)),
        ((4,), (4,), (1, 4, 1)),
    ],
)
def test_vectors_and_matrices_take_the_scheme(
    a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(a), rng.standard_normal(b)
    trace = Trace(levels=["float32"])
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        result = inner(x, y, site=SITE)
    record = trace.sites[SITE]
    assert record.schemes == {"int8x6": 1}
    assert record.shapes == {shape: 1}
    assert not record.reasons
    assert 0 < record.errors["float32"] < 1e-6
    assert type(result) is type(np.inner(x, y))
    np.testing.assert_allclose(result, np.inner(x, y), atol=1e-5)
    assert not np.array_equal(result, np.inner(x, y))


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (np.ones((2, 3, 4)), np.ones((3, 4)), Reason.DIMENSIONS),
        (np.ones(4), np.ones((2, 3, 4)), Reason.DIMENSIONS),
        (np.ones((3, 4), int), np.ones((3, 4)), Reason.INTEGER),
        (np.ones((3, 4), object), np.ones((3, 4)), Reason.DTYPE),
        (np.array(2.0), np.ones(3), Reason.SCALAR),
        (np.ones((3, 4)), np.matrix(np.ones((3, 4))), Reason.SUBCLASS),
        ([1.0, 2.0], np.ones(2), Reason.NOT_AN_ARRAY),
    ],
)
def test_other_operands_are_native_for_a_reason(a: Any, b: Any, reason: Reason) -> None:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        assert same(inner(a, b, site=SITE), np.inner(a, b))
    assert trace.sites[SITE].schemes == {"native": 1}
    assert trace.sites[SITE].reasons == {reason: 1}


def test_the_programs_own_function_is_called() -> None:
    calls = []

    def native(a: Any, b: Any) -> Any:
        calls.append((a, b))
        return np.inner(a, b)

    a, b = np.ones((3, 4)), np.ones((5, 4))
    for scheme in (None, "native", "int8x6"):
        result = inner(a, b, scheme=scheme, site=SITE, native=native)
        assert result.shape == (3, 5)
    assert len(calls) == 3
    assert all(x is a and y is b for x, y in calls)


def test_the_block_reaches_the_scheme() -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((4, 512)) * np.exp(4 * rng.standard_normal((1, 512)))
    one, other = (
        inner(a, a, scheme="int8x3", backend="reference", block=block) for block in (32, None)
    )
    assert not np.array_equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize(("edge", "scheme"), [(2048, "int8x6"), (32, "native")])
def test_cupy_arrays(edge: int, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # there is a GPU
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = cupy.random.default_rng(0)
    a, b = (rng.standard_normal((edge, edge), dtype="float32") for _ in range(2))
    trace = Trace()
    with use(Context(scheme="int8x6", trace=trace)):
        result = inner(a, b, site=SITE, native=cupy.inner)
    assert trace.sites[SITE].schemes == {scheme: 1}
    assert type(result) is cupy.ndarray
    assert result.dtype == a.dtype
    exact = cupy.inner(a.astype(float), b.astype(float))
    assert float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact)) < 2e-6
