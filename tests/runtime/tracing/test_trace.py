"""The trace: counts that add up, from many threads at once."""

import math
import threading
from pathlib import Path

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.xp import xp_product
from mixpert_py.runtime.tracing.operand_statistics import OperandStatistics
from mixpert_py.runtime.tracing.trace import MAX_KINDS, Buffers, Sampling, Trace
from tests.runtime.gpu.fake import FakeGpu, ndarray
from tests.runtime.operands import frames_in


@pytest.mark.parametrize("place", range(3))
def test_not_a_number_is_the_largest(place: int) -> None:
    trace = Trace()
    errors = [1.0, math.inf]
    errors.insert(place, math.nan)
    for error in errors:
        trace.add_statistics("s", OperandStatistics({"fp16": error}, 1.0))
    assert math.isnan(trace.sites["s"].errors["fp16"])


def test_a_child_leaves_the_names_of_its_sites(tmp_path: Path) -> None:
    trace = Trace(("float32",), ("m:f/x~1#0",), children=str(tmp_path / "names"))
    a = np.eye(4)
    with use(Context(trace=trace)):
        matmul(a, a, site="m:f/x~1#0")
        assert not (tmp_path / "names").exists()  # the parent has its records
        trace.begin_child()
        for site in ("m:f/x~1#0", "m:g/x~2#0", "m:f/x~1#0"):
            matmul(a, a, site=site)
    assert (tmp_path / "names").read_text() == "m:f/x~1#0\nm:g/x~2#0\n"
    assert trace.sites["m:f/x~1#0"].calls == 2
    assert trace.sites["m:f/x~1#0"].errors == trace.results == {}
    trace = Trace(children=str(tmp_path / "nowhere" / "names"))
    trace.begin_child()
    with use(Context(trace=trace)):
        matmul(a, a, site="m:f/x~1#0")  # the parent has ended: nobody reads names any more


def test_operands_are_looked_at_where_that_is_asked_for() -> None:
    a = np.random.default_rng(0).standard_normal((80, 80))  # not so small that it is counted
    for levels, errors in ((None, []), ((), []), (("float32",), ["float32"])):
        trace = Trace(levels)
        with use(Context(trace=trace)):
            for _ in range(100):
                result = matmul(a, a, site="p")
            matmul(a.astype(np.float32), a, site="p")
            matmul(result.T, a[:, :3], site="q")
        p, q = trace.sites["p"], trace.sites["q"]
        assert (p.calls, q.calls) == (101, 1)
        assert (p.sampled, q.sampled) == ((0, 0) if levels is None else (11, 1))
        assert list(p.errors) == list(q.errors) == errors
        assert p.fed_by == {}
        assert q.fed_by == ({} if levels is None else {"p": 1})
        if levels is not None:
            assert 1 < p.spread < 10


def test_a_loop_feeds_itself_and_steps_of_one_call_do_not() -> None:
    a = np.random.default_rng(0).standard_normal((6, 6))
    trace = Trace(())
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        x = a
        for _ in range(4):
            x = matmul(a, x, site="loop")
        chain = multi_dot([x, a, a, a], site="chain")
        total = einsum("ij,jk,kl->il", a, a, chain, site="sum")
        matmul(total, a, site="end")
    fed = {site: dict(record.fed_by) for site, record in trace.sites.items()}
    assert trace.sites["chain"].calls == 3
    assert trace.sites["sum"].calls == 2
    assert fed == {
        "loop": {"loop": 3},
        "chain": {"loop": 1},
        "sum": {"chain": 1},
        "end": {"sum": 1},
    }


def taken(kinds: list[object]) -> list[int]:
    sampling = Sampling()
    return [call for call, kind in enumerate(kinds, 1) if sampling.takes(kind)]


def test_the_distance_between_calls_grows() -> None:
    assert taken(["a"] * 100) == [1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    assert len(taken(["a"] * 100_000)) == 24


def test_many_kinds_are_few_calls_all_the_same() -> None:
    calls = taken(list(range(100_000)))
    assert calls[: MAX_KINDS + 3] == list(range(1, MAX_KINDS + 4))
    assert len(calls) == MAX_KINDS + 24
    assert len(taken([n % 1000 for n in range(100_000)])) < MAX_KINDS * 11 + 24


@pytest.fixture
def buffers() -> Buffers:
    return Buffers()


def test_a_result_and_its_views(buffers: Buffers) -> None:
    c = np.ones((4, 6))
    buffers.write(c, "p")
    for view in (c, c.T, c[1:, ::2], c.reshape(3, 8), c[1][2:], c.view(np.matrix)):
        assert buffers.sites(view) == {"p"}
    for other in (c + 1, c.copy(), np.ones((4, 6)), c[[1, 2]], 3.0, None):
        assert buffers.sites(other) == set()
    c *= 2
    assert buffers.sites(c) == {"p"}


def test_parts_of_one_array_are_told_apart(buffers: Buffers) -> None:
    c = np.zeros((4, 6))
    buffers.write(c[:, :2], "p")
    buffers.write(c[:, 2:4], "q")
    assert buffers.sites(c[1:, 1]) == {"p"}
    assert buffers.sites(c[:, 3:]) == {"q"}
    assert buffers.sites(c[0]) == {"p", "q"}
    assert buffers.sites(c[:, 4:]) == set()
    buffers.write(c[:, :2], "r")
    assert buffers.sites(c) == {"q", "r"}
    buffers.write(c, "s")
    assert buffers.sites(c[2:, 2:4]) == {"s"}


def test_nothing_is_kept_alive_and_no_address_remembered(buffers: Buffers) -> None:
    places = set()
    for _ in range(200):
        c = np.empty((64, 64))  # NumPy gives the same memory, CPython the same id, again
        places.add((id(c), c.ctypes.data))
        assert buffers.sites(c) == set()
        buffers.write(c, "p")
        del c
    assert len(places) < 100


def test_arrays_of_a_gpu(buffers: Buffers, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    c = ndarray(np.ones((4, 4)))
    buffers.write(c, "p")
    assert buffers.sites(c) == buffers.sites(c[1:]) == buffers.sites(c[1:][:2]) == {"p"}
    assert buffers.sites(ndarray(np.ones((4, 4)))) == set()
    d = ndarray(np.ones((4, 4)))
    buffers.write(d[:2], "q")  # where it lies in d is not known
    assert buffers.sites(d) == set()


A = np.arange(9.0).reshape(3, 3)
CALLS = 5000


@pytest.mark.parametrize(
    "product",
    [
        lambda: matmul(A, A, site="s"),
        lambda: dot(A, A, site="s"),
        lambda: dot_method(A, A, site="s"),
        lambda: inner(A, A, site="s"),
        lambda: einsum("ij,jk->ik", A, A, site="s"),
        lambda: xp_product(A, A, native=np.matmul, site="s"),
    ],
    ids=["@", "dot", "method", "inner", "einsum", "by name"],
)
def test_small_products_cost_little_more_than_without_a_trace(product) -> None:
    def work() -> None:
        for _ in range(CALLS):
            product()

    with use(Context(scheme="native")):
        product()  # the site is known
        alone = frames_in(work)
    trace = Trace(())
    with use(Context(scheme="native", trace=trace)):
        traced = frames_in(work)
    assert traced < 2 * alone + 40 * CALLS // 20
    record = trace.sites["s"]
    assert record.calls == CALLS > 10 * (record.calls - record.counted)
    assert record.shapes == {(3, 3, 3): CALLS}
    assert record.schemes == {"native": CALLS}
    assert record.seconds > 0


def test_counts_are_exact_in_threads() -> None:
    trace = Trace()
    context = Context(trace=trace)

    def work() -> None:
        with use(context):
            for _ in range(CALLS):
                matmul(A, A, site="s")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trace.sites["s"].calls == 8 * CALLS
    assert trace.take()["s"].calls == 8 * CALLS
    assert not trace.sites
