"""`xp_product` multiplies where a module is NumPy, and calls what it was given everywhere else."""

import functools
import operator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.xp import reduce_product, xp_product
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.operands import same
from tests.runtime.without_gpu import SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

A, B = np.random.default_rng(0).standard_normal((2, 4, 4))


def test_a_function_of_another_module_is_only_called() -> None:
    calls = []

    def matmul(*operands: Any, **options: Any) -> str:
        calls.append((operands, options))
        return "theirs"

    with use(Context(scheme="int8x3", backend="reference", trace=(trace := Trace()))):
        for xp in (SimpleNamespace(matmul=matmul),):
            assert xp_product(A, B, out=3, site=SITE, native=xp.matmul) == "theirs"
        assert same(
            xp_product(B, native=SimpleNamespace(dot=lambda b: A @ b).dot, site=SITE), A @ B
        )
    assert calls == [((A, B), {"out": 3})]
    assert not trace.sites


def test_a_primitive_of_autograds_is_the_product_that_it_wraps() -> None:
    calls = []

    def dot(a: Any, b: Any) -> Any:
        calls.append((a, b))
        return np.dot(a, b)

    dot.fun = np.dot  # type: ignore[attr-defined]
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = xp_product(A, B, site=SITE, native=dot)
    assert trace.sites[SITE].schemes == {"int8x3": 1}
    assert np.abs(result - A @ B).max() > 0
    with use(Context()):
        assert same(xp_product(A, B, site=SITE, native=dot), A @ B)
    assert len(calls) == 1


def test_a_function_that_is_replaced_after_its_first_call_is_no_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, original, trace = np.eye(3), np.dot, Trace()
    with use(Context(trace=trace)):
        for others in (False, True, False):
            with monkeypatch.context() as patch:
                if others:
                    patch.setattr(np, "dot", np.matmul)
                xp_product(x, x, native=original, site=SITE)
    assert trace.sites[SITE].calls == 2


def test_another_reduce_gets_the_function_itself() -> None:
    def reduce(*given: Any) -> Any:
        return given

    assert reduce_product(np.dot, [A], native=reduce, site=SITE) == (np.dot, [A])
    total = reduce_product(operator.add, [1, 2, 3], native=functools.reduce, site=SITE)
    assert total == 6


@pytest.mark.parametrize(
    ("native", "operands"),
    [
        (partial(np.einsum, optimize=True), ("ij,jk->ik", A, B)),
        (partial(partial(np.einsum, "ij,jk->ik"), A), (B,)),
        (partial(np.matmul, A), (B,)),
        (partial(np.tensordot, axes=1), (A, B)),
        (partial(A.dot, out=None), (B,)),
    ],
)
def test_a_partial_is_the_function_that_it_calls(native: Any, operands: Any) -> None:
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = xp_product(*operands, site=SITE, native=native)
    assert trace.sites[SITE].schemes == {"int8x3": 1}
    assert 0 < np.abs(result - A @ B).max() < 0.1
    with use(Context()):
        assert same(xp_product(*operands, native=native), native(*operands))


def test_a_partial_of_another_function_is_only_called() -> None:
    native = partial(lambda *given, **named: (given, named), 1, scheme=2, b=3)
    with use(Context(scheme="int8x3", backend="reference", trace=(trace := Trace()))):
        result = xp_product(4, b=5, site=SITE, native=native)
    assert result == native(4, b=5) == ((1, 4), {"scheme": 2, "b": 5})
    assert not trace.sites
    assert trace.others[SITE].calls == 1
