"""What a trace sees of products on a real GPU: time of transfers, buffers, operands."""

from time import perf_counter
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import transfer
from mixpert_py.runtime.tracing.trace import SiteTrace, Trace

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

EDGE = 4096


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def traced(a: Any, b: Any) -> SiteTrace:
    """The second of two products, which finds kernels and memory ready."""
    for _ in range(2):
        trace = Trace()
        with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
            matmul(a, b, site="s")
    return trace.sites["s"]


@pytest.mark.parametrize("panel_bytes", [transfer.PANEL_BYTES, transfer.PANEL_BYTES // 8])
def test_the_time_of_a_transfer_is_told_apart(
    panel_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", panel_bytes)
    a, b = normal(EDGE, EDGE), normal(EDGE, EDGE, seed=1)
    moved, there = traced(a, b), traced(cupy.asarray(a), cupy.asarray(b))
    assert there.transfer == 0
    assert 0 < moved.transfer < moved.seconds
    # The product itself takes well below a millisecond, its operands' way many.
    computing = moved.seconds - moved.transfer
    assert computing < moved.transfer
    assert there.seconds / 4 < computing < 20 * there.seconds


def test_a_stack_is_moved_too() -> None:
    record = traced(normal(8, 512, 1024), normal(1024, 512, seed=1))
    assert 0 < record.transfer < record.seconds


def test_operands_are_looked_at_and_buffers_followed() -> None:
    a, b = cupy.asarray(normal(1024, 1024)), cupy.asarray(normal(1024, 1024, seed=1))
    trace = Trace(["int8x3"])
    with use(Context(trace=trace)):
        c = matmul(a, b, site="p")
        matmul(c.T[:512], b, site="q")
        matmul(c + 1, b, site="r")
        out = matmul(a, b, out=cupy.empty_like(c), site="o", native=cupy.matmul)
        matmul(out, c, site="last")
    fed = {site: dict(record.fed_by) for site, record in trace.sites.items()}
    assert fed == {"p": {}, "q": {"p": 1}, "r": {}, "o": {}, "last": {"o": 1, "p": 1}}
    assert trace.sites.pop("o").sampled == 0  # what was written might be an operand
    for record in trace.sites.values():
        assert record.sampled == 1
        assert 1 < record.spread < 8
        assert record.cancellation > 1
        assert 0 < record.errors["int8x3"] < 1e-3


def test_nothing_is_looked_at_while_a_graph_is_captured() -> None:
    a, b = cupy.asarray(normal(1024, 1024)), cupy.asarray(normal(1024, 1024, seed=1))
    context = Context(scheme="int8x6", backend="cuda", trace=Trace(()))
    stream = cupy.cuda.Stream(non_blocking=True)
    with use(context), stream:
        wanted = matmul(a, b, site="warm").get()  # its memory is free again for the next
        stream.begin_capture()
        found = matmul(a, b, site="captured")
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(found.get(), wanted)
    assert context.trace is not None
    assert context.trace.sites["captured"].sampled == 0
    assert context.trace.sites["warm"].sampled == 1


def test_ten_thousand_calls_are_profiled_in_little_more_time() -> None:
    a = cupy.asarray(normal(64, 64))
    seconds = []
    for levels in (None, ()):
        with use(Context(trace=Trace(levels))):
            matmul(a, a, site="s")
            start = perf_counter()
            for _ in range(10_000):
                matmul(a, a, site="s")
            seconds.append(perf_counter() - start)
    assert seconds[1] < 2 * seconds[0] + 0.5
