"""Calls of small products are counted: their number is exact, and what they make is the same."""

import sys
import threading
from contextlib import nullcontext

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.xp import xp_product
from mixpert_py.runtime.tracing.trace import Trace

A = np.arange(9.0).reshape(3, 3)
CALLS = 5000


def frames_in(work) -> int:
    """The Python functions that are called while `work` runs."""
    count = 0

    def profile(frame, event, arg) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


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


def test_a_scheme_is_taken_however_many_calls_were_counted() -> None:
    trace, narrow = Trace(), A.astype(np.float32)
    with use(Context(trace=trace)):
        for number in range(300):
            with precision("float64") if number % 100 == 99 else nullcontext():
                matmul(narrow, narrow, site="s")
    assert trace.sites["s"].schemes == {"native": 297, "float64": 3}


def test_a_large_product_ends_the_counting() -> None:
    trace, large = Trace(), np.ones((80, 80))
    with use(Context(trace=trace)):
        for _ in range(100):
            matmul(A, A, site="s")
        for _ in range(100):
            matmul(large, large, site="s")
    shapes = trace.sites["s"].shapes
    assert sum(shapes.values()) == 200
    assert shapes[80, 80, 80] > 75


def test_results_that_are_kept_are_those_of_the_last_call() -> None:
    trace = Trace(keep=["s"])
    with use(Context(trace=trace)):
        for number in range(CALLS):
            matmul(A, number * A, site="s")
    assert np.array_equal(trace.results["s"], A @ ((CALLS - 1) * A))


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


def test_each_pair_of_a_product_of_several_arrays_is_a_call() -> None:
    trace = Trace()
    with use(Context(trace=trace)):
        for _ in range(200):
            multi_dot([A, A, A], site="s")
    assert trace.sites["s"].calls == 400
