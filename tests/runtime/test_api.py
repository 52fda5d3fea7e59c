"""Dispatch: every call means what the native one means, takes its `out`, and says why it took no
scheme.
"""

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.operands import SITE, frames_in
from tests.runtime.without_gpu import no_gpu as no_gpu


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


@pytest.mark.parametrize("native", [None, np.matmul])
def test_a_call_that_passes_costs_no_other(native: Any) -> None:
    call = partial(matmul, np.eye(2), np.eye(2), site=SITE, native=native)
    call()
    assert frames_in(call) == 1


def test_float32_takes_no_memory_beside_out() -> None:
    a, b, out = np.random.default_rng(4).standard_normal((3, 300, 300))
    wanted = matmul(a, b, scheme="float32")
    tracemalloc.start()
    try:
        assert matmul(a, b, scheme="float32", out=out) is out
        assert tracemalloc.get_traced_memory()[1] < out.nbytes / 4
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(out, wanted)
    assert matmul(a, b, scheme="float32", out=a) is a
    np.testing.assert_array_equal(a, wanted)
