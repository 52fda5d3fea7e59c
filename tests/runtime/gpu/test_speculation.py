"""`crt` on a GPU that is not there: what is made, anew or natively, by what packing finds."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.device import state_of
from mixpert_py.runtime.gpu.speculation import MIN_UNSEEN, Outlook
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.integers import Bounds, scheme_for
from tests.runtime.gpu.fake import FakeGpu, ndarray, pays_from
from tests.runtime.gpu.fake.gpu import FakeWatch
from tests.runtime.gpu.fake.stream import Stream
from tests.runtime.gpu.requested import multiplied, transferred

A, B = (np.random.default_rng(seed).standard_normal((20, 20)) for seed in range(2))


@pytest.fixture
def gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(gpu_backend, "Watch", FakeWatch)
    monkeypatch.setattr(FakeWatch, "bounds", None)
    return gpu


def finds(*counts: int | None) -> None:
    FakeWatch.found = iter(counts)


def by(count: int, a: Any = A, b: Any = B) -> Any:
    return multiply(a, b, emulation_of(f"crt{count}")).value


def test_more_moduli_are_made_anew_and_first_the_next_time(gpu: FakeGpu) -> None:
    finds(14, 16, 16, 14, 14)
    for launches, count in ((1, 14), (2, 16), (1, 16), (1, 16), (1, 14)):
        gpu.launches.clear()
        product = multiplied(ndarray(A), ndarray(B), "crt")
        assert isinstance(product, Product)
        assert product.scheme == "crt"
        assert len(gpu.launches) == launches
        np.testing.assert_array_equal(product.value.get(), by(count))


def test_after_failures_products_are_native_unseen(gpu: FakeGpu) -> None:
    finds(None, None, 14, None)
    seen = []
    for _ in range(1 + 16 + 1 + 32 + 2):
        gpu.launches.clear()
        product = multiplied(ndarray(A), ndarray(B), "crt")
        seen.append(("native" if product is Reason.SPREAD else "crt", len(gpu.launches)))
    # Only after one that was made a GEMM is enqueued before it is known whether it does.
    native, made, failed = ("native", 0), ("crt", 1), ("native", 1)
    assert seen == [*[native] * 50, made, failed]
    assert next(FakeWatch.found, "all were asked for") == "all were asked for"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("found", [14, 16, None])
def test_operands_are_as_they_were_until_a_product_does(found: int | None) -> None:
    finds(found)
    a, b = ndarray(A.copy()), ndarray(B.copy())
    product = multiplied(a, b, "crt", out=a)
    if found is None:
        assert product is Reason.SPREAD
        np.testing.assert_array_equal(a.get(), A)
    else:
        assert isinstance(product, Product)
        assert product.value is a
        np.testing.assert_array_equal(a.get(), by(found))


def integers(least: int, most: int) -> tuple[Any, Any, tuple[Bounds, Bounds]]:
    rng = np.random.default_rng(most)
    a, b = (rng.integers(least, most, (20, 20), endpoint=True).astype(float) for _ in "ab")
    a[0, 0], a[0, 1] = b[0, 0], b[0, 1] = least, most
    return a, b, (Bounds(least, most), Bounds(least, most))


def test_integers_are_made_of_the_fewest_products_the_next_time(gpu: FakeGpu) -> None:
    bytes_, large = integers(0, 255), integers(-30_000, 30_000)
    finds(14, 14, None)
    steps = [  # operands, launches, scheme that is begun with the next time
        (bytes_, 1, "crt of integers 1u1u"),
        (bytes_, 1, "crt of integers 1u1u"),
        (large, 2, "crt of integers 2s2s"),  # bytes are too few: made anew
        (bytes_, 1, "crt of integers 1u1u"),  # two digits hold bytes
        ((A, B, None), 2, None),  # no integers: made anew
        (large, 2, "crt of integers 2s2s"),  # FP64 would be needed, but for what they are
    ]
    # What is no integer is packed, and looked at, twice.
    FakeWatch.bounds = iter(
        [bounds for (_, _, bounds), _, _ in steps for _ in range(1 if bounds else 2)]
    )
    for (a, b, bounds), launches, following in steps:
        gpu.launches.clear()
        product = multiplied(ndarray(a), ndarray(b), "crt")
        assert isinstance(product, Product)
        assert len(gpu.launches) == launches
        wanted = by(14, a, b) if bounds is None else a @ b
        np.testing.assert_array_equal(product.value.get(), wanted)
        (outlook,) = state_of(0).outlooks.values()
        assert (outlook.integers and outlook.integers.name) == following


def test_what_is_often_no_integer_is_expected_to_be_none() -> None:
    outlook, made = Outlook(), scheme_for(Bounds(0, 1), Bounds(0, 1), 9)
    for _ in range(3):
        outlook.learn_integers(made)
        assert outlook.integers is made
        outlook.learn_integers(None)
    outlook.learn_integers(made)
    assert outlook.integers is None


def test_moved_arrays_of_much_spread_are_multiplied_in_fp64_there(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1, host=1.0))
    finds(None)
    product = transferred(A, B, "crt")
    assert isinstance(product, Product)
    assert product.scheme == "float64"
    np.testing.assert_allclose(product.value, A @ B, rtol=0, atol=1e-14)


def test_where_the_host_is_quicker_they_stay_while_they_are_native_unseen(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1))
    finds(None, 14)
    moved = []
    for _ in range(1 + MIN_UNSEEN + 1):
        gpu.peak = 0
        product = transferred(A, B, "crt")
        moved.append((product is Reason.SPREAD, gpu.peak > 0))
    assert moved == [(True, True), *[(True, False)] * MIN_UNSEEN, (False, True)]


@pytest.mark.usefixtures("gpu")
def test_integers_are_native_in_a_graph() -> None:
    """Where they are sparse, the device would leave them to a slow kernel."""
    a, b, bounds = integers(0, 1)
    finds(None)
    FakeWatch.bounds = iter([bounds])
    with Stream(ptr=99) as stream:
        assert isinstance(multiplied(ndarray(a), ndarray(b), "crt"), Product)
        stream.capturing = True
        assert multiplied(ndarray(a), ndarray(b), "crt") is Reason.SPREAD
