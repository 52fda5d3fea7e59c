"""A product of one device's arrays, on all of the machine."""

import sys
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, on_gpu, use
from mixpert_py.runtime.gpu import multi_gpu, partition
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from tests.runtime.gpu.fake import (
    FakeGpu,
    OutOfMemoryError,
    Pointer,
    Stream,
    ndarray,
    on_device,
    pays_from,
)
from tests.runtime.gpu.requested import multiplied


def normal(*shape: int, dtype: Any = "f", order: Any = "C", seed: int = 0) -> ndarray:
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return ndarray(np.asarray(x, order=order))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu(count=2)
    fake.install(monkeypatch)
    monkeypatch.setattr(partition, "THICKNESS", 5)
    monkeypatch.setattr(Pointer, "copies", [])
    monkeypatch.setattr(
        "mixpert_py.runtime.gpu.break_even.figures", lambda name: pays_from(1, host=1e6)
    )
    return fake


def both(a: Any, b: Any, **given: Any) -> tuple[Any, Any]:
    """The product on one device, and on all."""
    wanted = multiplied(a, b, "int8x6", devices=None, limit=None)
    made = multiplied(a, b, "int8x6", devices="all", **{"limit": None, **given})
    assert isinstance(wanted, Product)
    return wanted.value.x, made


@pytest.mark.parametrize("dtype", ["f", "d", "F"])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_each_device_makes_its_rows(gpu: FakeGpu, orders: str, dtype: str) -> None:
    a = normal(700, 30, dtype=dtype, order=orders[0])
    b = normal(30, 90, dtype=dtype, order=orders[1], seed=1)
    wanted, made = both(a, b)
    np.testing.assert_array_equal(made.value.x, wanted)
    assert made.value.number == 0
    size = np.dtype(dtype).itemsize
    rows = 384  # of 700, a multiple of 128
    assert Pointer.copies == [
        (0, 1, rows * 30 * size),
        (0, 1, 30 * 90 * size),
        (1, 0, rows * 90 * size),
    ]


def test_from_another_device_than_the_first(gpu: FakeGpu) -> None:
    with on_device(1), Stream(ptr=9):
        a, b = normal(600, 30), normal(30, 90, seed=1)
        wanted, made = both(a, b)
        assert made.value.number == 1
    np.testing.assert_array_equal(made.value.x, wanted)
    assert {copy[:2] for copy in Pointer.copies} == {(1, 0), (0, 1)}


def test_the_callers_stream_waits_for_the_others(gpu: FakeGpu) -> None:
    with Stream(ptr=9) as stream:
        both(normal(600, 30), normal(30, 90, seed=1))
    assert stream.waited == [multi_gpu._stream(1)]
    assert stream.waits == 0


def test_outliers_are_read_when_all_devices_are_done(gpu: FakeGpu) -> None:
    a, b = normal(600, 300), normal(300, 90, seed=1)
    a.x[5], a.x[5, 0] = 110 / 256 / 127, 1  # of the other device's rows
    with Stream(ptr=9) as stream:
        made = multiplied(a, b, "int8x6", devices="all", limit=None, traced=True)
        assert isinstance(made, Product)
        assert stream.waits == 0
        assert made.outliers() == 1 / (384 + 90)
        assert stream.waits == 1


@pytest.mark.parametrize("kind", ["C", "Fortran", "an operand"])
def test_out(gpu: FakeGpu, kind: str) -> None:
    a, b = normal(600, 60), normal(60, 60, seed=1)
    out = {"C": normal(600, 60), "Fortran": normal(600, 60, order="F"), "an operand": a}[kind]
    wanted, made = both(a, b, out=out)
    assert made.value is out
    np.testing.assert_array_equal(out.x, wanted)
    assert Pointer.copies


@pytest.mark.parametrize(
    "given",
    [
        {"guarantee": "componentwise"},
        {"certificate": True},
        {"limit": 150_000},
        {"devices": None},
    ],
    ids=str,
)
def test_what_stays_on_one_device(gpu: FakeGpu, given: Any) -> None:
    a, b = normal(600, 30), normal(30, 90, seed=1)
    asked = {"devices": "all", "limit": None, **given}
    multiplied(a, b, "int8x6", **asked)
    assert not Pointer.copies


def test_a_thin_product_and_a_stack_stay(gpu: FakeGpu) -> None:
    for a, b in ((normal(600, 3), normal(3, 90)), (normal(2, 600, 30), normal(30, 90))):
        multiplied(a, b, "int8x6", devices="all", limit=None)
    assert not Pointer.copies


def test_devices_of_another_name_are_left_out(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert partition._alike(0) == (1, 0)
    partition._alike.cache_clear()
    names = {0: "H200", 1: "A100"}
    monkeypatch.setattr(
        partition.device, "find", lambda number: partition.device.Device(number, names[number], 90)
    )
    assert partition._alike(0) == (0,)


def test_a_reason_of_one_is_that_of_all(gpu: FakeGpu) -> None:
    gpu.memory = 1000
    a, b = normal(600, 30), normal(30, 90, seed=1)
    assert multiplied(a, b, "int8x6", devices="all", limit=None) is Reason.MEMORY


@pytest.mark.parametrize("nth", range(1, 5))
def test_where_there_is_no_room_for_copies_one_device_makes_it(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """C here, rows of A and B there, their product: the allocation that fails."""
    cupy, sizes = sys.modules["cupy"], []
    empty = cupy.empty

    def short(shape: Any, dtype: Any) -> Any:
        sizes.append(shape)
        if len(sizes) == nth:
            raise OutOfMemoryError(1, 0)
        return empty(shape, dtype)

    a, b = normal(600, 30), normal(30, 90, seed=1)
    wanted = multiplied(a, b, "int8x6", devices=None, limit=None)
    monkeypatch.setattr(cupy, "empty", short)
    with Stream(ptr=9) as stream:
        made = multiplied(a, b, "int8x6", devices="all", limit=None)
    # What was copied before there was no room may still be read.
    assert stream.waited == ([] if nth == 1 else [multi_gpu._stream(1)])
    assert isinstance(made, Product)
    assert isinstance(wanted, Product)
    assert len(sizes) > nth
    np.testing.assert_array_equal(made.value.x, wanted.value.x)


@pytest.mark.parametrize(
    ("order", "limit", "is_divided"),
    [("C", 780_000, True), ("F", 780_000, False), ("C", 400_000, False)],
)
def test_copies_count(gpu: FakeGpu, order: str, limit: int, is_divided: bool) -> None:
    """Of A in Fortran's order all rows are copied before they are moved."""
    a, b = normal(2000, 100, order=order), normal(100, 16, seed=1)
    wanted, made = both(a, b, limit=limit)
    assert isinstance(made, Product)  # the limit is that of one device where it makes the product
    np.testing.assert_array_equal(made.value.x, wanted)
    assert bool(Pointer.copies) == is_divided


@pytest.mark.parametrize("setting", [None, "all"])
def test_the_setting_reaches_the_product(gpu: FakeGpu, setting: str | None) -> None:
    a, b = normal(600, 30), normal(30, 90, seed=1)
    with use(Context(scheme="int8x6")), on_gpu(devices=setting):
        matmul(a, b)
    assert bool(Pointer.copies) == (setting == "all")


def test_what_pays() -> None:
    assert not partition.is_profitable(1 << 20, 1 << 20, 1 << 20, 1)
    assert [partition.is_profitable(n, n, n, 2) for n in (4096, 5120)] == [False, True]
    assert [partition.is_profitable(n, n, n, 4) for n in (7168, 8192)] == [False, True]
    assert not partition.is_profitable(128, 16384, 16384, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_on_the_devices_of_this_machine(dtype: str, order: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    count = cupy.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip(f"needs two GPUs, and there is {count}")
    a = cupy.asarray(normal(9000, 8000, dtype=dtype).x, order=order)
    b = cupy.asarray(normal(8000, 9216, dtype=dtype, seed=1).x, order=order)
    wanted = matmul(a, b, scheme="int8x6")
    cupy.cuda.Device().synchronize()  # operands come from the host on the default stream
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(3):
        with on_gpu(devices="all"), stream:
            later = cupy.empty_like(a)
            for _ in range(5):
                later[...] = a  # what is copied is there only when the stream has come so far
            value = matmul(later, b, scheme="int8x6")
            later[...] = 0
        stream.synchronize()
        assert value.data.device_id == a.data.device_id
        cupy.testing.assert_array_equal(value, wanted)
