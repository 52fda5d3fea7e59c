"""Products that NumPy makes in loops, by BLAS: within the bound of their own precision."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py import precision
from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import tensordot
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.contract.table import VIEWS
from tests.runtime.operands import ran

UNITS = {"f": 2.0**-24, "d": 2.0**-53, "F": 2.0**-22, "D": 2.0**-51, "e": 2.0**-24}


def entries(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 3, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def check(product: Callable[..., Any], native: Callable[..., Any], k: int, *operands: Any) -> None:
    """`blas` makes it, as a result like the native one, within K·u·(|A||B|)ij."""
    wanted = native(*operands)
    result, scheme, _ = ran(product, *operands, scheme="blas")
    assert scheme == "blas"
    assert (type(result), result.dtype, result.shape) == (type(wanted), wanted.dtype, wanted.shape)
    wide = [x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble) for x in operands]
    exact, sizes = native(*wide), native(*map(np.abs, wide))
    allowed = k * UNITS[wanted.dtype.char] * sizes
    if wanted.dtype == np.float16:
        allowed = allowed + 2.0**-11 * np.abs(exact) * (1 + 2.0**-9) + 2.0**-25
    assert (np.abs(result - exact) <= allowed).all()


EINSUMS = {
    "ij,jk->ik": ((40, 300), (300, 30)),
    "ji,kj": ((300, 20), (30, 300)),
    "bij,bjk->bik": ((3, 20, 50), (3, 50, 10)),
    "ijk,kjl->il": ((7, 8, 9), (9, 8, 6)),
    "ij,j": ((30, 40), (40,)),
    "ij,jk,kl->il": ((20, 30), (30, 25), (25, 12)),
    "ij,jk,kl,lm": ((5, 30), (30, 25), (25, 12), (12, 9)),
}


@pytest.mark.parametrize("dtype", "fdFDe")
@pytest.mark.parametrize("subscripts", EINSUMS)
def test_einsum(subscripts: str, dtype: str) -> None:
    shapes = EINSUMS[subscripts]
    if dtype == "e" and len(shapes) > 2:
        return  # would be rounded between two products
    operands = [entries(dtype, *shape, seed=i) for i, shape in enumerate(shapes)]
    length = 300 if len(shapes) == 2 else 2 * sum(shape[0] for shape in shapes)
    check(partial(einsum, subscripts), partial(np.einsum, subscripts), length, *operands)


PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "@": (matmul, operator.matmul),
    "dot": (dot, np.dot),
    "tensordot": (
        lambda a, b, site: tensordot(a, b, 1, site=site),
        lambda a, b: np.tensordot(a, b, 1),
    ),
}


@pytest.mark.parametrize("dtype", "fde")
@pytest.mark.parametrize("layout", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize(("product", "native"), PRODUCTS.values(), ids=PRODUCTS)
def test_layouts_and_half_precision(product: Any, native: Any, layout: Any, dtype: str) -> None:
    a, b = layout(entries(dtype, 20, 70)), layout(entries(dtype, 70, 9, seed=1))
    check(product, native, 70, a, b)


def test_half_precision_overflows_as_natively() -> None:
    a = np.full((4, 4), 200.0, np.float16)
    with precision("blas"), np.errstate(over="ignore"):
        assert np.isinf(matmul(a, 2 * a, site="s")).all()


def test_it_is_no_default() -> None:
    x, h = entries("d", 200, 200), entries("e", 30, 30)
    for product, native, a in (
        (partial(einsum, "ij,jk"), partial(np.einsum, "ij,jk"), x),
        (matmul, operator.matmul, h),
    ):
        result, scheme, _ = ran(product, a, a)
        assert scheme == "native"
        np.testing.assert_array_equal(result, native(a, a))


def test_out_and_other_operands() -> None:
    a, b = entries("e", 20, 70), entries("e", 70, 9, seed=1)
    out = np.empty((20, 9), np.float16)
    with precision("blas"):
        assert matmul(a, b, out=out, site="s") is out
        np.testing.assert_array_equal(out, matmul(a, b, site="s"))
    _, *how = ran(matmul, a.astype("g"), b.astype("g"), scheme="blas")
    assert how == ["native", Reason.DTYPE]


def test_three_operands_of_integers_are_multiplied_in_pairs_by_default() -> None:
    x = np.arange(64 * 64).reshape(64, 64) << 40
    wanted = np.einsum("ij,jk,kl->il", x, x, x)
    trace = Trace()
    with use(Context(trace=trace)):
        result = einsum("ij,jk,kl->il", x, x, x, site="s")
    np.testing.assert_array_equal(result, wanted)
    assert trace.sites["s"].calls == 2
    many = [x[:3, :3]] * 3
    np.testing.assert_array_equal(einsum("ij,jk,kl", *many), np.einsum("ij,jk,kl", *many))


@pytest.mark.parametrize("dtype", "efd")
def test_overflow_is_reported_as_the_program_wants(dtype: str) -> None:
    a = np.full((64, 64), np.finfo(dtype).max)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        ran(matmul, a, a, scheme="blas")
    with pytest.warns(RuntimeWarning, match="overflow"):
        result, scheme, _ = ran(matmul, a, a, scheme="blas")
    assert scheme == "blas"
    assert np.isinf(result).all()
    with np.errstate(over="ignore"):
        assert np.isinf(ran(matmul, a, a, scheme="blas")[0]).all()
