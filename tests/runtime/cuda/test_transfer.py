"""NumPy arrays moved to a GPU in panels: the same product, whatever the panels."""

import sys
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.call import Made
from mixpert_py.runtime.cuda import product as device_product
from mixpert_py.runtime.cuda import transfer
from mixpert_py.runtime.cuda.busy import Busy
from mixpert_py.runtime.cuda.transfer import GRANULE, panel_rows
from mixpert_py.runtime.dispatch import matmul
from mixpert_py.runtime.in_force import InForce, use
from mixpert_py.runtime.trace import Reason, Trace
from tests.runtime.cuda.fake_device import CUDARuntimeError, FakeGpu, Stream, ndarray


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def moved(a: Any, b: Any, scheme: str = "int8x6", **given: Any) -> Any:
    made = transfer.make(a, b, scheme, **given)
    assert isinstance(made, Made)
    return made.value


def there(a: Any, b: Any, scheme: str = "int8x6") -> Any:
    made = device_product.make(ndarray(a), ndarray(b), scheme)
    assert isinstance(made, Made)
    return made.value.get()


@pytest.mark.parametrize("dtypes", ["ff", "dd", "fd"])
@pytest.mark.parametrize("m", [1, GRANULE, 5 * GRANULE + 1])
@pytest.mark.parametrize("order", ["C", "F", "reversed"])
def test_panels_make_the_same_product(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, dtypes: str, m: int, order: str
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 8)
    a, b = normal(m, 50, dtype=dtypes[0]), normal(50, 40, dtype=dtypes[1], seed=1)
    if order == "F":
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    elif order == "reversed":
        a, b = a[::-1, ::-1], b[::-1, ::-1]
    result = moved(a, b)
    assert result.dtype == np.result_type(a, b)
    assert result.flags.c_contiguous
    count = len(gpu.launches)
    np.testing.assert_array_equal(result, there(a, b))
    assert count == (3 if m > 600 and dtypes == "ff" else 6 if m > 600 else 1)


@pytest.mark.parametrize(
    "shapes", [((6,), (6, 4)), ((5, 6), (6,)), ((6,), (6,)), ((3, 5, 6), (6, 4)), ((0, 6), (6, 4))]
)
@pytest.mark.usefixtures("gpu")
def test_other_shapes_move_as_they_are(shapes: Any) -> None:
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    result, wanted = moved(a, b, "int8x8"), np.matmul(a, b)
    assert type(result) is type(wanted)
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, atol=2e-6)


def test_b_that_is_too_large_goes_in_halves(gpu: FakeGpu) -> None:
    a, b = normal(200, 60), normal(60, 1000, seed=1)
    gpu.memory = 130_000
    result = moved(a, b)
    assert len(gpu.launches) > 2
    gpu.memory = float("inf")
    np.testing.assert_array_equal(result, there(a, b))


def test_what_the_lanes_write_to_is_theirs(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller's stream has freed, it may not have written yet."""
    cupy, streams = sys.modules["cupy"], []
    empty = cupy.empty

    def seen(*given: Any) -> Any:
        streams.append(Stream.here)
        return empty(*given)

    monkeypatch.setattr(cupy, "empty", seen)
    moved(normal(300, 50), normal(50, 40, seed=1))
    assert len(streams) == 5
    assert Stream.here not in streams


@pytest.mark.parametrize("status", [2, 1])
def test_no_page_locked_memory_is_no_memory(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    def allocate(size: int) -> Any:
        raise CUDARuntimeError(status)

    monkeypatch.setattr(sys.modules["cupy"].cuda, "alloc_pinned_memory", allocate)
    a, b = normal(40, 50), normal(50, 300, seed=1)
    if status == 2:
        assert transfer.make(a, b, "int8x6") is Reason.MEMORY
    else:
        with pytest.raises(CUDARuntimeError):
            transfer.make(a, b, "int8x6")


def test_no_memory_has_a_reason(gpu: FakeGpu) -> None:
    gpu.memory = 1000
    assert transfer.make(normal(5, 6), normal(6, 4), "int8x6") is Reason.MEMORY
    assert transfer.make(normal(2, 5, 6), normal(6, 4), "int8x6") is Reason.MEMORY


def test_a_kernel_that_does_not_compile_has_a_reason(gpu: FakeGpu) -> None:
    gpu.refuses = DeviceError("no such instruction")
    assert transfer.make(normal(5, 6), normal(6, 4), "int8x6") is Reason.KERNEL
    assert transfer.make(normal(5, 6), normal(6, 4), "int8x6") is Reason.KERNEL


@pytest.mark.usefixtures("gpu")
def test_certificates_and_outliers_come_back() -> None:
    a, b = normal(5, 90), normal(90, 4, seed=1)
    a[3] = 110 / 256 / 127
    a[3, 0] = 1
    made = transfer.make(a, b, "int8x6", traced=True)
    assert isinstance(made, Made)
    assert made.outliers() == 1 / 9
    made = transfer.make(a, b, "int8x6", certificate=True)
    assert isinstance(made, Made)
    assert made.certificate is not None
    assert (np.abs(made.value - a.astype(float) @ b) <= made.certificate.bound()).all()


def slowed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, seconds: float = 0.02) -> None:
    """Every call takes so much more."""
    as_it_is = getattr(owner, name)

    def slow(*given: Any, **named: Any) -> Any:
        sleep(seconds)
        return as_it_is(*given, **named)

    monkeypatch.setattr(owner, name, slow)


@pytest.mark.parametrize("shape", [(3 * GRANULE, 50), (2, GRANULE, 50)], ids=["panels", "stack"])
@pytest.mark.parametrize("slow", ["copies", "kernels", "packing"])
def test_the_time_of_a_transfer_is_told_apart(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, shape: Any, slow: str
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 4)
    a, b = normal(*shape), normal(50, 40, seed=1)
    matmul(a, b, scheme="int8x6", backend="cuda")  # what a first product takes is no computing
    panels = 3 * (len(shape) == 2)
    if slow == "kernels":
        slowed(monkeypatch, gpu, "gemm")
    elif slow == "packing":
        slowed(monkeypatch, gpu, "pack_one", 0.1)
    else:
        slowed(monkeypatch, ndarray, "set")
        slowed(monkeypatch, ndarray, "get")
    gpu.install(monkeypatch)
    trace = Trace()
    with use(InForce(scheme="int8x6", backend="cuda", trace=trace)):
        matmul(a, b, site="s")
    record = trace.sites["s"]
    computing = record.seconds - record.transfer
    if slow == "kernels":
        assert computing > 0.02 * max(panels, 1)
    elif slow == "packing":  # b's too
        assert record.transfer < 0.1 < computing
    else:  # b there, the panels there and back; of a stack only the result is slow
        assert record.transfer > 0.02 * (1 + 2 * panels if panels else 1)
    assert 0 < record.transfer < record.seconds


@pytest.mark.usefixtures("gpu")
def test_no_event_where_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["cupy"].cuda, "Event")
    for shape in ((9, 50), (2, 9, 50)):
        made = transfer.make(normal(*shape), normal(50, 40, seed=1), "int8x6")
        assert isinstance(made, Made)
        assert made.transfer == 0


def test_spans_that_overlap_count_once() -> None:
    moments = [SimpleNamespace(record=lambda: None, at=at) for at in (5, 10, 7, 12, 20, 30, 21, 22)]
    events = iter(moments)
    cuda = SimpleNamespace(
        Event=lambda: next(events), get_elapsed_time=lambda begin, end: float(end.at - begin.at)
    )
    busy = Busy(SimpleNamespace(cuda=cuda))
    assert busy.seconds() == 0
    for _ in range(4):
        with busy.span():
            pass
    assert busy.seconds() == pytest.approx(0.017)


@pytest.mark.parametrize(
    ("m", "length", "itemsize", "rows"),
    [(10**6, 8192, 4, 2048), (300, 8192, 4, 384), (10**6, 10**9, 4, GRANULE), (1, 1, 8, GRANULE)],
)
def test_panels_are_large_and_whole(m: int, length: int, itemsize: int, rows: int) -> None:
    assert panel_rows(m, length, itemsize) == rows
