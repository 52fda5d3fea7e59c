"""CuPy arrays pass through to what the program did before, and the trace says why."""

from dataclasses import replace

import numpy as np
import pytest

from mixpert_py.runtime.dispatch import dot, dot_method, matmul
from mixpert_py.runtime.in_force import current, use
from mixpert_py.runtime.trace import Reason, Trace

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def operands():
    generator = cupy.random.default_rng(0)
    return generator.standard_normal((600, 600)), generator.standard_normal((600, 600))


@pytest.mark.parametrize("scheme", [None, "native", "float32", "int8x6"])
def test_results_are_cupys_own(operands, scheme) -> None:
    a, b = operands
    expected = a @ b
    out = cupy.empty_like(a)
    results = [
        matmul(a, b, scheme=scheme, site="m:f/matmul~1#0"),
        matmul(a, b, scheme=scheme, site="m:f/matmul~1#0", native=cupy.matmul),
        dot(a, b, scheme=scheme, site="m:f/dot~1#0", native=cupy.dot),
        dot_method(a, b, scheme=scheme, site="m:f/dot~1#0"),
        matmul(a, b, scheme=scheme, out=out, native=cupy.matmul),
    ]
    for result in results:
        assert type(result) is cupy.ndarray
        assert bool((result == expected).all())
    assert results[-1] is out


def test_the_trace_says_why_a_scheme_was_not_taken(operands) -> None:
    trace = Trace()
    with use(replace(current(), trace=trace)):
        matmul(*operands, scheme="float32", site="s")
    assert trace.sites["s"].reasons == {Reason.NOT_AN_ARRAY: 1}


def test_a_mix_of_numpy_and_cupy_fails_as_it_did(operands) -> None:
    a, _ = operands
    with pytest.raises(TypeError) as native:
        np.eye(600) @ a
    with pytest.raises(TypeError) as ours:
        matmul(np.eye(600), a, scheme="float32")
    assert str(ours.value) == str(native.value)
