"""What a trace keeps of calls: their counts and errors, copies of operands, and statistics."""

import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import context as contexts
from mixpert_py.runtime import worth
from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.xp import xp_product
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, matmul_shape
from mixpert_py.runtime.tracing import captures as module
from mixpert_py.runtime.tracing.captures import Captures, shared_out
from mixpert_py.runtime.tracing.operand_statistics import (
    MAX_MATRICES,
    OperandStatistics,
    emulated_errors,
    exponent_spread,
    operand_statistics,
    sampled,
)
from mixpert_py.runtime.tracing.operand_statistics import MAX_SAMPLED_ROWS as MAX_SAMPLED
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


DTYPES = ("float64", "float64")


def square(n: int, value: float = 1.0) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.full((n, n), value)


def call(a: Any, b: Any, native: Native = np.matmul) -> Call:
    return Call(native, a, b, (), None, matmul_shape)


def test_a_trace_hands_over_copies_of_sampled_calls() -> None:
    found = Captures()
    a = np.arange(12.0).reshape(3, 4)
    with contexts.use(replace(contexts.current(), trace=Trace(captures=found))):
        for _ in range(4):  # the first three are sampled
            matmul(a, a.T, site="s:1")
            a += 1.0
        matmul(a.astype("g"), a.T.astype("g"), site="s:2")  # takes no scheme
    (one,) = found.calls
    assert (one.site, one.shape) == ("s:1", (3, 4, 3))
    assert one.a[0, 0] == 2.0
    np.testing.assert_array_equal(one.a.T, one.b)
    assert one.b.flags.f_contiguous
    assert not one.b.flags.c_contiguous
    assert found.seconds > 0


def test_operands_that_the_result_replaced_are_not_captured() -> None:
    found = Captures()
    a = square(4)
    with contexts.use(replace(contexts.current(), trace=Trace(captures=found))):
        matmul(a, square(4), out=a, site="s:1")
    assert not found.calls


def test_small_products_give_way_to_large_ones() -> None:
    found = Captures(max_bytes=2 * 8 * (100 + 16))
    for n in (10, 4):
        found.add(f"s:{n}", (n, n, n), DTYPES, call(square(n), square(n)))
    assert [one.site for one in found.calls] == ["s:10", "s:4"]
    found.add("s:5", (5, 5, 5), DTYPES, call(square(5), square(5)))  # not without s:10 gone
    assert [one.site for one in found.calls] == ["s:10", "s:4"]
    found.add("s:4b", (4, 5, 4), DTYPES, call(np.ones((2, 4)), np.ones((4, 2))))
    assert [one.site for one in found.calls] == ["s:10", "s:4b"]
    found.add("s:99", (99, 99, 99), DTYPES, call(square(99), square(99)))
    assert [one.site for one in found.calls] == ["s:10", "s:4b"]


def test_of_large_operands_some_rows_and_columns_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ELEMENTS", 1000)
    monkeypatch.setattr(module, "LEAST_ROWS", 8)
    found = Captures()
    found.add("s:1", (100, 50, 100), DTYPES, call(np.ones((100, 50)), np.ones((50, 100))))
    found.add("s:2", (100, 500, 100), DTYPES, call(np.ones((100, 500)), np.ones((500, 100))))
    found.add("s:3", (1, 5000, 1), DTYPES, call(np.ones(5000), np.ones(5000)))
    shapes = [(one.a.shape, one.b.shape) for one in found.calls]
    assert shapes == [((20, 50), (50, 20)), ((8, 500), (500, 8)), ((5000,), (5000,))]


def test_a_native_function_that_is_bound_to_operands_is_not_kept() -> None:
    found = Captures()
    a = square(4)
    found.add("s:1", (4, 4, 4), DTYPES, call(a, a, lambda *_: a @ a))
    found.add("s:2", (4, 4, 4), DTYPES, call(a, a, np.dot))
    assert [one.native for one in found.calls] == [None, np.dot]


def test_the_time_of_a_site_is_shared_out_by_multiplications() -> None:
    shapes = [(2, 2, 2, 1), (4, 2, 2, 2), (0, 2, 2, 9)]
    assert shared_out(10.0, shapes) == {(2, 2, 2): 2.0, (4, 2, 2): 8.0, (0, 2, 2): 0.0}
    assert shared_out(10.0, [(0, 2, 2, 9)]) == {(0, 2, 2): 0.0}


def test_operands_that_share_all_memory_still_do() -> None:
    found = Captures()
    a = np.arange(12.0).reshape(3, 4)
    found.add("s:1", (3, 4, 3), DTYPES, call(a, a.T))
    found.add("s:2", (3, 3, 3), DTYPES, call(a[:, :3], a[:, :3]))
    square = a[:, :3]
    found.add("s:3", (3, 3, 3), DTYPES, call(square, square))
    transposed, views, same = found.calls
    assert transposed.b.base is transposed.a
    np.testing.assert_array_equal(transposed.b, a.T)
    assert not np.may_share_memory(views.a, views.b)
    assert same.b is same.a
    assert not np.may_share_memory(same.a, a)


def test_rows_of_a_copy_begin_where_those_of_the_operand_do_within_a_page() -> None:
    found, whole = Captures(), np.arange(100.0 * 1024).reshape(100, 1024)
    a, b = whole[:, :192], whole[:50, :192].T  # from row to row, or column to column, two pages
    found.add("s:1", (100, 192, 50), DTYPES, call(a, b))
    (one,) = found.calls
    assert (one.a.strides, one.b.strides) == ((4096, 8), (8, 4096))
    np.testing.assert_array_equal(one.a, a)
    np.testing.assert_array_equal(one.b, b)
    assert one.nbytes == 4096 * (100 + 50)
    narrow = Captures()
    narrow.add("s:1", (100, 2, 50), DTYPES, call(whole[:, :2], np.ones((2, 50))))
    assert narrow.calls[0].nbytes == 8 * (200 + 100)


@pytest.mark.parametrize(
    "shapes",
    [
        ((50, 3, 4), (50, 4, 2)),
        ((50, 3, 4), (4, 2)),
        ((10, 1, 3, 4), (5, 4, 2)),
        ((4,), (50, 4, 2)),
    ],
)
def test_a_stack_is_sampled_matrix_by_matrix(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (np.arange(np.prod(shape), dtype=float).reshape(shape) for shape in shapes)
    whole = (a @ b).reshape(50, -1)
    sample = np.matmul(*sampled(a, b)).reshape(MAX_MATRICES, -1)
    np.testing.assert_array_equal(sample[[0, -1]], whole[[0, -1]])
    assert all((whole == one).all(axis=1).any() for one in sample)


def test_values_that_native_does_not_make_finite_do_not_count() -> None:
    a = np.random.default_rng(2).standard_normal((6, 6))
    a[2, 3] = np.nan
    b = np.random.default_rng(3).standard_normal((6, 6))
    b[4, 4] = np.inf
    errors = emulated_errors(a, b, ("native", "int8x6", "float32"))
    assert errors["native"] == 0
    assert 0 < errors["int8x6"] < 1e-6
    assert 0 < errors["float32"] < 1e-6


def normal(*shape: int, dtype: Any = np.float64, seed: int = 5) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_the_spread_of_exponents_in_a_row() -> None:
    assert exponent_spread(np.full((3, 4), 1.7), -1) == 0
    assert exponent_spread(np.array([[8.0, 1, 1, 2], [4, 4, 4, 4]]), -1) == 2  # (0 + 3 + 3 + 2) / 4
    assert exponent_spread(np.array([[8.0, 1, 1, 2], [4, 4, 4, 4]]), -2) == 1
    assert exponent_spread(np.array([1.0, -(2.0**-10)]), -1) == 5
    one_large = np.r_[2.0**20, np.ones(999)]
    assert exponent_spread(one_large, -1) == pytest.approx(20, rel=0.01)
    # What is just next to zero says nothing of the others.
    one_small = np.r_[2.0**-60, np.ones(999)]
    assert exponent_spread(one_small, -1) < 0.1
    assert 2.5 < exponent_spread(normal(100, 1000), -1) < 4
    assert exponent_spread(np.exp(20 * normal(8, 1000)), -1) > 60


def test_the_spread_counts_neither_zeros_nor_what_is_not_finite() -> None:
    x = np.array([[8.0, 2, 0, 0], [0, 0, 0, 0]])
    assert exponent_spread(x, -1) == 1
    for odd in (np.nan, np.inf, -np.inf):
        x[1] = 1, 2.0**30, 1, odd
        assert exponent_spread(x, -1) == 1
    assert exponent_spread(np.zeros((2, 3)), -1) == 0
    assert exponent_spread(np.zeros((0, 3)), -1) == exponent_spread(np.zeros((3, 0)), -1) == 0
    assert exponent_spread(np.array([[2.0**1020, 2.0**-1060]]), -1) == 1040


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shapes",
    [
        ((40, 70), (70, 30)),
        ((70,), (70, 30)),
        ((40, 70), (70,)),
        ((70,), (70,)),
        ((20, 9, 8), (8, 5)),
        ((20, 9, 8), (20, 8, 5)),
        ((3, 1, 9, 8), (20, 8, 5)),
        ((0, 3), (3, 4)),
        ((4, 0), (0, 4)),
    ],
)
def test_a_call_is_looked_into(dtype: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    found = operand_statistics(a, b, ["int8x3"])
    assert found is not None
    assert found.errors == emulated_errors(a, b, ["int8x3"])
    if a.size and b.size:
        assert 1 < found.spread < 10
    without = operand_statistics(a, b, ())
    assert without is not None
    assert without == found._replace(errors={})


class TestOnAGpu:
    """What the operands' own device says, where there is one: by kernels, not by NumPy."""

    @staticmethod
    def operands() -> tuple[Any, Any]:
        rng = np.random.default_rng(5)
        return rng.standard_normal((700, 96)), rng.standard_normal((96, 600))

    def test_its_kernels_are_asked(self, gpu: FakeGpu) -> None:
        a, b = (x.astype(np.float32) for x in self.operands())
        levels = ("float64", "float32", "faithful", "int8x3", "fp16")
        found = operand_statistics(ndarray(a), ndarray(b), levels)
        assert found is not None
        assert list(found.errors) == list(levels)
        # One of each emulation, of the sample; and nothing native.
        assert gpu.launches == [(1, MAX_SAMPLED, MAX_SAMPLED)] * 3
        expected = emulated_errors(a, b, (*levels, "bf16x6"))
        expected["faithful"] = expected.pop("bf16x6")  # as products that are so small are made
        assert found.errors == pytest.approx(expected, rel=1e-3)

    def test_what_it_cannot_make_numpy_emulates(
        self, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = (x.astype(np.float32) for x in self.operands())
        monkeypatch.setattr(gpu_backend, "multiply", lambda *given, **how: Reason.KERNEL)
        found = operand_statistics(ndarray(a), ndarray(b), ("int8x3",))
        assert found is not None
        assert found.errors == emulated_errors(a, b, ("int8x3",))
        assert gpu.launches == []

    @pytest.mark.parametrize(("least", "launched"), [(1, 1), (1 << 40, 0)])
    def test_numpys_large_operands_move_there(
        self, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, least: int, launched: int
    ) -> None:
        a, b = self.operands()
        monkeypatch.setattr(worth, "MIN_SAMPLE_TO_MOVE", least)
        found = operand_statistics(a, b, ("int8x3",))
        assert found is not None
        assert gpu.launches == [(1, MAX_SAMPLED, MAX_SAMPLED)] * launched
        assert found.errors == pytest.approx(emulated_errors(a, b, ("int8x3",)), rel=1e-3)

    def test_integers_have_no_errors(self, gpu: FakeGpu) -> None:
        a = ndarray(np.ones((8, 8), np.int32))
        found = operand_statistics(a, a, ("int8x3",))
        assert found is not None
        assert found.errors == {}


@pytest.mark.filterwarnings("error")
def test_an_infinite_imaginary_part_is_no_warning() -> None:
    a = np.array([[complex(0, np.inf), 1]], np.complex64)
    operand_statistics(a, np.ones((2, 1), np.complex64), ())
