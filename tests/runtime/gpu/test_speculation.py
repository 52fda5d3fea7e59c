"""`crt` on a GPU that is not there: what is looked at, packed and multiplied."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.gpu.device import state_of
from mixpert_py.runtime.gpu.speculation import (
    ALL_ROWS,
    MAX_STEADY,
    SAMPLED_ROWS,
    STEADY,
    Outlook,
)
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.schemes import emulation_of
from tests.runtime.gpu.fake import FakeGpu, ndarray, pays_from
from tests.runtime.gpu.fake.stream import Stream
from tests.runtime.gpu.requested import multiplied, transferred

ROWS, K, COLUMNS = 300, 20, 8
SEEN, HIDDEN = 0, 1  # a row that is looked at before, and one that is not
BITS = {14: 0, 15: 4, 16: 6, None: 9}  # below a row's first entry, with which so many moduli do


EXACT = "crt of integers"


def operands(needed: int | None, place: int = SEEN) -> tuple[Any, Any]:
    """A and B of which one row, or column, needs so many moduli; the others need 14."""
    a = np.full((ROWS, K), 1.25)
    a[place, 1:] *= 2.0 ** -BITS[needed]
    return a, a[:COLUMNS].T.copy()


def integers(most: int, place: int = SEEN) -> tuple[Any, Any]:
    """Operands of 0, 1 and, in one row or column, a larger integer."""
    a = np.random.default_rng(most).integers(0, 1, (ROWS, K), endpoint=True).astype(float)
    a[place, 3] = most
    return a, a[:COLUMNS].T.copy()


def broken_integers() -> tuple[Any, Any]:
    a = np.full((ROWS, K), 3.0)
    a[HIDDEN, 0] = 2.5
    return a, np.full((K, COLUMNS), 3.0)


# Operands; what is packed if they are looked at first, and how often multiplied; the number of
# moduli of the result, None where it is native, 0 where it is exact.
KINDS: dict[str, tuple[Any, list[str], int, int | None]] = {
    "14": (operands(14), ["crt14"], 1, 14),
    "15": (operands(15), ["crt15"], 1, 15),
    "16": (operands(16), ["crt16"], 1, 16),
    "native": (operands(None), [], 0, None),
    "15, hidden": (operands(15, HIDDEN), ["crt14", "crt15"], 1, 15),
    "native, hidden": (operands(None, HIDDEN), ["crt14"], 0, None),
    "bits": (integers(1), [f"{EXACT} 1s1s"], 1, 0),
    "bytes": (integers(200), [f"{EXACT} 1u1u"], 1, 0),
    "16 bits, hidden": (integers(60_000, HIDDEN), [f"{EXACT} 1s2u", f"{EXACT} 2u2u"], 2, 0),
    "no integers, hidden": (broken_integers(), [f"{EXACT} 1s1s", "crt14"], 2, 14),
}


def product_of(kind: str, **given: Any) -> Product | Reason:
    (a, b), *_ = KINDS[kind]
    return multiplied(ndarray(a), ndarray(b), "crt", **given)


def assert_right(kind: str, product: Product | Reason) -> None:
    (a, b), _, _, count = KINDS[kind]
    if count is None:
        assert product is Reason.SPREAD
        return
    assert isinstance(product, Product)
    assert product.scheme == "crt"
    wanted = multiply(a, b, emulation_of(f"crt{count}")).value if count else a @ b
    np.testing.assert_array_equal(product.value.get(), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_operands_alone_decide_whatever_ran_before(gpu: FakeGpu, kind: str) -> None:
    for before in KINDS:
        for _ in range(STEADY):
            assert_right(before, product_of(before))
        assert_right(kind, product_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_packed_after_a_look(gpu: FakeGpu, kind: str) -> None:
    product_of(kind)
    assert gpu.looks == [SAMPLED_ROWS]
    assert (gpu.packs, len(gpu.launches)) == KINDS[kind][1:3]


@pytest.mark.parametrize("kind", ["14", "bytes"])
def test_the_same_need_in_a_row_is_not_looked_at(gpu: FakeGpu, kind: str) -> None:
    for _ in range(2 * STEADY):
        product_of(kind)
    assert gpu.looks == [SAMPLED_ROWS] * STEADY
    product_of("15")  # without a look, which is the last product's outlook
    assert gpu.looks == [SAMPLED_ROWS] * STEADY


def test_a_need_is_expected_later_after_a_short_row_and_soon_after_a_long_one() -> None:
    outlook, (one, other) = Outlook(), map(emulation_of, ("crt14", "crt15"))
    outlook.learn(other)
    assert outlook.is_steady
    for steady in (2, 4, 8, 16, 32, MAX_STEADY, MAX_STEADY):
        for row in range(1, steady + 2):
            outlook.learn(one)
            assert outlook.is_steady == (row >= steady)
        one, other = other, one
    for _ in range(4 * MAX_STEADY):
        outlook.learn(one)
    outlook.learn(other)
    assert outlook.steady == STEADY


@pytest.mark.parametrize("kind", ["native", "native, hidden", "15"])
def test_after_native_products_the_next_one_is_begun_before_it_is_known(
    gpu: FakeGpu, kind: str
) -> None:
    for before, looks in (("native", [SAMPLED_ROWS]), ("native, hidden", [SAMPLED_ROWS, ALL_ROWS])):
        for _ in range(STEADY + 1):
            product_of(before)
        gpu.looks.clear()
        gpu.packs.clear()
        begun: list[list[int]] = []
        product = product_of(kind, run=lambda begun=begun: begun.append(gpu.looks.copy()))
        assert gpu.looks == looks
        assert begun == [looks]
        if kind == "15":
            assert_right(kind, product)
        else:
            assert product == Product(None, "native", reason=Reason.SPREAD)
            assert len(gpu.packs) == (kind != "native" and ALL_ROWS not in looks)
        state_of(0).outlooks.clear()


@pytest.mark.parametrize(
    ("kind", "packs", "launches"),
    [
        ("14", ["crt15", "crt14"], 2),
        ("15", ["crt15"], 1),
        ("16", ["crt15", "crt16"], 1),
        ("native", ["crt15"], 0),
        ("bits", ["crt15", f"{EXACT} 1s1s"], 1),
    ],
)
def test_what_is_packed_if_another_need_is_expected(
    gpu: FakeGpu, kind: str, packs: list[str], launches: int
) -> None:
    for _ in range(STEADY):
        product_of("15")
    gpu.packs.clear()
    gpu.launches.clear()
    gpu.looks.clear()
    assert_right(kind, product_of(kind))
    assert (gpu.looks, gpu.packs, len(gpu.launches)) == ([], packs, launches)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", ["14", "15, hidden", "native, hidden"])
def test_operands_are_as_they_were_until_a_product_does(kind: str) -> None:
    (a, b), _, _, count = KINDS[kind]
    x = ndarray(np.hstack([a, a]))
    product = multiplied(x[:, :K], ndarray(b), "crt", out=x[:, K - COLUMNS : K])
    if isinstance(product, Reason):
        np.testing.assert_array_equal(x.get()[:, :K], a)
    else:
        wanted = multiply(a, b, emulation_of(f"crt{count}")).value
        np.testing.assert_array_equal(x.get()[:, K - COLUMNS : K], wanted)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_native_in_a_graph(kind: str) -> None:
    with Stream(ptr=99) as stream:
        for _ in range(STEADY):
            product_of(kind)
        stream.capturing = True
        assert product_of(kind) is Reason.SPREAD


def test_moved_arrays_of_much_spread_are_multiplied_in_fp64_there(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1, host=1.0))
    a, b = operands(None)
    product = transferred(a, b, "crt")
    assert isinstance(product, Product)
    assert product.scheme == "float64"
    np.testing.assert_allclose(product.value, a @ b, rtol=1e-14)


def test_where_the_host_is_quicker_they_stay_if_a_few_rows_show_their_spread(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1))
    for kind, ((a, b), _, _, count) in KINDS.items():
        gpu.peak = 0
        product = transferred(a, b, "crt")
        assert (product is Reason.SPREAD) == (count is None)
        assert (gpu.peak > 0) == (kind != "native")
