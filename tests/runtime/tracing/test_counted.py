"""Calls of small products are counted: their number is exact, and what they make is the same."""

import sys
import threading

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
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
