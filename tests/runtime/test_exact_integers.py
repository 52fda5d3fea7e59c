"""Products of integers and booleans: NumPy's own bits, in a stated memory."""

import operator
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from mixpert_py import precision
from mixpert_py.runtime import exact_integers, worth
from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner, tensordot
from mixpert_py.runtime.products.multi_dot import matrix_power, multi_dot
from mixpert_py.runtime.reasons import Reason
from tests.runtime.integers import EVERY_SIZE, PAIRS, entries
from tests.runtime.operands import ran


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floating point is taken for the fastest at every size."""
    for name, value in EVERY_SIZE.items():
        monkeypatch.setattr(worth, name, value)


def check(product: Any, native: Callable[..., Any], *operands: Any, by: str = "exact") -> None:
    """It is made by `exact`, or by another name, with NumPy's bits and type."""
    wanted = native(*operands)
    result, scheme, _ = ran(product, *operands)
    assert scheme == by
    assert type(result) is type(wanted)
    assert result.dtype == wanted.dtype
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_all_pairs_of_types(left: str, right: str) -> None:
    rng = np.random.default_rng(0)
    for kind in ("small", "full", "ends", "11", "26"):
        for m, k, n in ((1, 1, 1), (5, 300, 7), (17, 33, 2), (2, 5000, 3)):
            a, b = entries(rng, left, (m, k), kind), entries(rng, right, (k, n), kind)
            check(matmul, operator.matmul, a, b)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("bits", [24, 53])
@pytest.mark.parametrize("beyond", [0, 1], ids=["at the limit", "beyond"])
def test_sums_as_large_as_a_significand(bits: int, beyond: int) -> None:
    """Odd sums above 2^24, or 2^53, are no numbers of float32, or float64."""
    k = 64
    a = np.full((2, k), 1 << bits // 2)
    b = np.full((k, 2), (1 << bits - bits // 2 - 6) + beyond)
    a[0, 0] += beyond
    check(matmul, operator.matmul, a, b)
    check(matmul, operator.matmul, -a, b - 1)


A, B = (entries(np.random.default_rng(i), "i8", (12, 12), "full") for i in (1, 2))
T = entries(np.random.default_rng(4), "i4", (3, 4, 5), "full")


def of_einsum(subscripts: str, *operands: Any, **given: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    return partial(einsum, subscripts, **given), partial(np.einsum, subscripts, **given), operands


# name → our function, NumPy's, and the operands.
SPELLINGS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "dot": (dot, np.dot, (A, B)),
    "method": (dot_method, lambda a, b: a.dot(b), (A, B)),
    "matmul": (partial(matmul, native=np.matmul), np.matmul, (A, B)),
    "X.T @ X": (matmul, operator.matmul, (A[:9].T, A[:9])),
    "inner": (inner, np.inner, (A, B)),
    "tensordot": (partial(tensordot, axes=2), np.tensordot, (T, T.transpose(1, 2, 0))),
    "multi_dot": (multi_dot, np.linalg.multi_dot, ([A, B, A],)),
    "matrix_power": (partial(matrix_power, n=11), partial(np.linalg.matrix_power, n=11), (A,)),
    "einsum": of_einsum("ij,jk", A, B),
    "einsum of a stack": of_einsum("bij,kbj->bik", T, T.transpose(1, 0, 2)),
    "einsum of booleans": of_einsum("ij,kj", A > 0, B > 2**62),
    "einsum, optimized": of_einsum("ij,jk", A, B, optimize=True),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("product", "native", "operands"), SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling(product: Any, native: Any, operands: Any) -> None:
    check(product, native, *operands)


@pytest.mark.usefixtures("always")
def test_einsums_have_numpys_types_errors_and_order() -> None:
    narrow = A.astype("i1")
    mixed = ("ij,jk,kl->il", narrow, narrow, A)  # with `optimize` NumPy wraps each pair by itself
    for optimize in (True, False):
        wanted = np.einsum(*mixed, optimize=optimize)
        np.testing.assert_array_equal(einsum(*mixed, optimize=optimize, site="s"), wanted)
    with pytest.raises(TypeError, match="according to the rule 'no'"):
        einsum("ij,jk", narrow, A, casting="no", site="s")
    turned = einsum("ij,jk->ki", A, B, optimize=True, site="s")
    np.testing.assert_array_equal(turned, (A @ B).T)
    assert turned.flags.c_contiguous


FROZEN = np.broadcast_to(A[0], A.shape)
REFUSED: dict[str, Callable[[Any], Any]] = {
    "shapes": lambda f: f(A, B[:5]),
    "a read-only out": lambda f: f(A, B, out=FROZEN),
    "a narrow out": lambda f: f(A, B, out=np.empty((12, 12), "?")),
    "an out of another shape": lambda f: f(A, B, out=np.empty((3, 12), "i8")),
    "casting": lambda f: f(A, B, dtype="i1", casting="safe"),
    "no such casting": lambda f: f(A, B, casting="maybe"),
    "a number": lambda f: f(A, np.int64(3)),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_errors_are_numpys(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as wanted:
        call(np.matmul)
    with pytest.raises(type(wanted.value)) as raised:
        call(partial(matmul, site="s", native=np.matmul))
    assert str(raised.value) == str(wanted.value)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(A, B, dtype="f8"),
        lambda f: f(A, B, dtype="i1"),
        lambda f: f(A, B, out=np.empty((12, 12), "i1")),
        lambda f: f(A, B, dtype="i4", casting="unsafe"),
        lambda f: f(A, B, out=np.empty((12, 12), "f8")),
        lambda f: f(A, A.astype("u8")),
        lambda f: f(A, A / 2),
        lambda f: f(A.astype(">i8"), B),
        lambda f: f(A.view(np.matrix), B),
        lambda f: f(A.astype(object), B),
        lambda f: f(A[:, :0], B[:0]),
        lambda f: f(A[:0], B),
        lambda f: f(A, B[0]),
        lambda f: f(A[0], B[0]),
        lambda f: f(A.astype(np.longdouble), B),
        lambda f: f(np.ma.masked_less(A, 0), B),
    ],
)
def test_what_is_left_to_numpy(call: Callable[[Any], Any]) -> None:
    ours = partial(matmul, native=np.matmul)
    check(lambda site: call(partial(ours, site=site)), lambda: call(np.matmul), by="native")


LARGE = np.arange(40_000).reshape(200, 200) % 9


def test_which_products_take_it() -> None:
    for a, scheme, wanted in (
        (LARGE, None, ("exact", None)),
        (LARGE, "int8x6", ("exact", None)),
        (LARGE, "exact", ("exact", None)),
        (LARGE, "native", ("native", None)),
        (LARGE[:20, :20], None, ("native", None)),
        (LARGE[:20, :20], "exact", ("native", Reason.TOO_SMALL)),
        (LARGE / 2, "exact", ("native", Reason.NO_INTEGERS)),
        (LARGE / 2, None, ("native", None)),
    ):
        _, *made = ran(matmul, a, a, scheme=scheme)
        assert tuple(made) == wanted


def test_sizes_alone_tell_of_no_product_that_may_gain() -> None:
    edges, stacks = (7, 8, 9, 20, 72, 73, 300, 6000), ("", "5", "51", "13")
    for m, k, n, left, right in product(edges, edges, edges, stacks, stacks):
        a, b = np.empty((*map(int, left), m, k), "i1"), np.empty((*map(int, right), k, n), "i1")
        assert a.size * b.size >= worth.MIN_PAIRS or not worth.may_be_exact(a, b)


def test_later_calls_are_decided_by_their_own_values() -> None:
    wide = LARGE + (1 << 62)
    for a in (LARGE, wide, -wide, LARGE):
        np.testing.assert_array_equal(matmul(a, a, site="same"), a @ a)


def test_a_site_rests_after_a_look_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(exact_integers, "_first_true", lambda a, b: looks.append(a) or 1.0)
    trues = np.ones((300, 300), "?")
    with use(Context()):
        for _ in range(2 * worth.RESTED + 3):
            assert matmul(trues, trues, site="s").all()
    assert len(looks) == 3


@pytest.mark.parametrize("shape", [(400, 400), (3, 300, 300)])
def test_a_sample_that_shows_wide_entries_ends_the_look(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    seen: list[int] = []
    largest = exact_integers._largest
    monkeypatch.setattr(exact_integers, "_largest", lambda x: seen.append(x.size) or largest(x))
    monkeypatch.setattr(worth, "HOST", 8e9)
    _, scheme, _ = ran(matmul, a := np.full(shape, 1 << 62), a)
    assert scheme == "native"
    assert max(seen) < 2000


@pytest.mark.filterwarnings("error")
def test_a_lower_scheme_means_exact_and_warns_of_nothing() -> None:
    with precision("int8x6"):
        np.testing.assert_array_equal(matmul(LARGE, LARGE, site="s"), LARGE @ LARGE)


def test_the_memory_is_the_stated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_integers, "PANEL", exact_integers.PANEL // 16)
    a = np.arange(750 * 550, dtype="i8").reshape(750, 550) << 40
    b = a.reshape(550, 750)[:, :175]
    one = 8 * exact_integers.PANEL
    tracemalloc.start()
    try:
        for x, y, most in ((a >> 40, b >> 40, 4 * one), (a, b, 10 * one)):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            result = exact_integers.multiply(
                exact_integers.Request(x, y, "exact", native=operator.matmul)
            )
            assert tracemalloc.get_traced_memory()[1] - before - result.value.nbytes <= most
    finally:
        tracemalloc.stop()
