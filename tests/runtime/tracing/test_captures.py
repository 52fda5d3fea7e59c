"""Captured operands: of which calls, how much of them, and in how much memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.request import Call, Native, matmul_shape
from mixpert_py.runtime.tracing import captures as module
from mixpert_py.runtime.tracing.captures import Captures, shared_out
from mixpert_py.runtime.tracing.trace import Trace

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
