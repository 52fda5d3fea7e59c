"""NumPy arrays moved to a GPU in panels: the same product, whatever the panels."""

import gc
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod
from time import sleep
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import copiers, device_state, staging, transfer
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.transfer import GRANULE, panel_rows
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.gpu.fake import CUDARuntimeError, FakeGpu, OutOfMemoryError, Stream, ndarray
from tests.runtime.gpu.fake.late import LateStream
from tests.runtime.gpu.requested import multiplied, transferred


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def moved(a: Any, b: Any, scheme: str = "int8x6", **given: Any) -> Any:
    made = transferred(a, b, scheme, **given)
    assert isinstance(made, Product)
    return made.value


def there(a: Any, b: Any, scheme: str = "int8x6") -> Any:
    made = multiplied(ndarray(a), ndarray(b), scheme)
    assert isinstance(made, Product)
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


def be_late(monkeypatch: pytest.MonkeyPatch, hurries: int) -> None:
    """What is enqueued happens as late as it may, but for one stream, where it happens at once.
    Freed memory is not used again.
    """

    def later(function: Any) -> Any:
        return lambda *given, **named: Stream.here.do(lambda: function(*given, **named))

    def send(target: Any, x: Any, stream: Any) -> None:
        stream.do(lambda: np.copyto(target.x, x))

    def fetch(source: Any, stream: Any, out: Any, blocking: bool) -> None:
        stream.do(lambda: np.copyto(out, source.x))

    cupy, kept = sys.modules["cupy"], []
    empty, kernels = cupy.empty, gpu_backend.cuda_kernels()

    def keep(*given: Any) -> Any:
        kept.append(empty(*given))
        return kept[-1]

    kernels = replace(kernels, gemm=later(kernels.gemm), repair=later(kernels.repair))
    monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: kernels)
    monkeypatch.setattr(cupy, "empty", keep)
    numbers = count()  # three of the product's, and then the stager's
    stream = partial(next, (LateStream(True, number == hurries) for number in numbers))
    monkeypatch.setattr(cupy.cuda, "Stream", lambda non_blocking: stream())
    monkeypatch.setattr(device_state, "_states", {})
    monkeypatch.setattr(ndarray, "set", send)
    monkeypatch.setattr(ndarray, "get", fetch)


SQUARE = normal(5 * GRANULE + 1, 40)
PAIRS: dict[str, Any] = {
    "C": (normal(5 * GRANULE + 1, 50), normal(50, 40, seed=1)),
    "F": (normal(50, 5 * GRANULE + 1).T, normal(40, 50, seed=1).T),
    "long rows": (normal(3 * GRANULE, 200), normal(200, 40, seed=1)),
    "same": (SQUARE, SQUARE.T),
    "stacks": (normal(3, GRANULE, 50), normal(3, 50, 40, seed=1)),
    "matrix and vector": (normal(5 * GRANULE, 50), normal(50, seed=1)),
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("hurries", "run_bytes", "pair"), sweep(range(5), [0, 2 * GRANULE * 4], list(PAIRS))
)
def test_everything_waits_for_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, hurries: int, pair: str, run_bytes: int
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 4)
    monkeypatch.setattr(transfer, "RUN_BYTES", run_bytes)
    a, b = PAIRS[pair]
    wanted = moved(a, b)
    be_late(monkeypatch, hurries)
    np.testing.assert_array_equal(moved(a, b), wanted)


SAME: dict[str, Any] = {
    "x @ x.T": lambda x: (x, x.T),
    "x.T @ x": lambda x: (x.T, x),
    "x @ x": lambda x: (x[:40], x[:40]),
    "a stack": lambda x: (x[:40].reshape(2, 20, 40)[:, :, :20],) * 2,
    "strides": lambda x: (x[::-2].T, x[::-2]),
}


@pytest.mark.parametrize("pair", SAME)
def test_one_array_is_moved_once(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, moves: list[Any], pair: str
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 40 * 4)
    a, b = SAME[pair](normal(5 * GRANULE + 1, 40))
    result = moved(a, b)
    assert sum(map(prod, moves)) == a.size
    if pair == "x @ x.T":
        assert len(gpu.launches) > 1
    np.testing.assert_array_equal(result, moved(a.copy(), b.copy()))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("other", [lambda x: x[:, ::-1], lambda x: x.astype(float), np.copy])
def test_arrays_that_only_look_alike_are_two(moves: list[Any], other: Any) -> None:
    x = normal(40, 40)
    result = moved(x, other(x))
    assert sum(map(prod, moves)) == 2 * x.size
    np.testing.assert_allclose(result, x @ other(x), atol=1e-4)


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_longer_than_a_slot_goes_in_pieces(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, moves: list[Any], order: Any
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", 1 << 14)
    monkeypatch.setattr(staging, "SLOT_BYTES", 1 << 12)
    monkeypatch.setattr(copiers, "_copiers", copiers._Copiers())
    monkeypatch.setattr(processor, "cores", lambda: 1)  # what is faked is not the threads' own
    a, b = np.asarray(normal(3 * GRANULE, 50), order=order), normal(50, 40, seed=1)
    result = moved(a, b)
    assert len(gpu.launches) == 3
    assert max(map(prod, moves)) <= 1 << 10
    np.testing.assert_array_equal(result, there(a, b))


def test_what_is_there_is_multiplied_in_panels_of_the_result(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", 1 << 18)
    x = normal(1200, 150)
    moved(x.T, x)
    assert gpu.launches == [(1, 150, 150)]
    moved(x.T, x.copy())
    assert gpu.launches[1:] == [(1, 128, 150), (1, 22, 150)]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_runs_are_long(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, moves: list[Any], rows: int
) -> None:
    """Strips of several panels, where a panel's rows are few of a column."""
    monkeypatch.setattr(transfer, "PANEL_BYTES", 1 << 17)
    monkeypatch.setattr(transfer, "RUN_BYTES", rows * GRANULE * 4)
    a, b = normal(200, 5 * GRANULE + 1).T, normal(200, 50, seed=1)
    result = moved(a, b)
    assert len(gpu.launches) == 6
    assert max(map(prod, moves)) == 200 * rows * GRANULE
    np.testing.assert_array_equal(result, there(a, b))


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_did_not_fit_is_not_tried_again(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    """Of B, all was moved in vain."""
    sizes, as_it_is = [], transfer._moved

    def noted(how: Any, value: Any, a: Any, b: Any, *rows: int) -> Any:
        sizes.append(b.shape[1])
        return as_it_is(how, value, a, b, *rows)

    monkeypatch.setattr(transfer, "_moved", noted)
    gpu.memory = 130_000
    a, b = np.asarray(normal(200, 60), order=order), normal(60, 500, seed=1)
    np.testing.assert_allclose(moved(a, b), a @ b, atol=1e-4)
    assert max(sizes) == 500
    assert len(sizes) == len(set(sizes))


def test_short_runs_take_less_memory(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", 1 << 17)
    strips, as_it_is = [], transfer._moved

    def short(*given: Any) -> Any:
        strips.append(given[-1])
        if given[-1] > GRANULE:
            raise OutOfMemoryError(1, 0)
        return as_it_is(*given)

    monkeypatch.setattr(transfer, "_moved", short)
    a, b = normal(200, 5 * GRANULE).T, normal(200, 50, seed=1)
    np.testing.assert_array_equal(moved(a, b), there(a, b))
    assert len(strips) == 2
    assert strips[0] > strips[1] == GRANULE


@pytest.mark.usefixtures("gpu")
def test_the_result_is_written_where_it_belongs() -> None:
    a, b = normal(300, 50), normal(50, 50, seed=1)
    wanted, out = moved(a, b), np.empty((300, 50), np.float32)
    assert moved(a, b, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    whole = np.full((310, 120), 7, np.float32)
    block = whole[5:305, 10:110:2]
    assert moved(a, b, out=block) is block
    np.testing.assert_array_equal(block, wanted)
    block[...] = 7
    assert np.all(whole == 7)
    before = a.copy()
    result = moved(a, b, out=a)  # what is multiplied later is not written yet
    np.testing.assert_array_equal(a, before)
    np.testing.assert_array_equal(result, wanted)
    assert matmul(a, b, out=a, scheme="int8x6", backend="cuda") is a
    np.testing.assert_array_equal(a, wanted)


@pytest.mark.parametrize("panel", [0, 1, 2, 3])
def test_what_is_raised_in_between_leaves_nothing_behind(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, panel: int
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 4)
    a, b = normal(4 * GRANULE, 50), normal(50, 40, seed=1)
    wanted, as_it_is, held = moved(a, b), gpu_backend.multiply, gpu.held

    def interrupted(*given: Any, **named: Any) -> Any:
        if len(gpu.launches) == panel:
            raise KeyboardInterrupt
        return as_it_is(*given, **named)

    gpu.launches.clear()
    with monkeypatch.context() as patch:
        patch.setattr(gpu_backend, "multiply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            moved(a, b)
    assert [len(state.streams) for state in device_state.states().values()] == [3]
    gc.collect()
    assert gpu.held == held
    np.testing.assert_array_equal(moved(a, b), wanted)


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
    assert len(streams) == 3
    moved(normal(2, 300, 50), normal(50, 40, seed=1))
    assert len(streams) == 6  # both operands, and the result
    assert Stream.here not in streams


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["alloc_pinned_memory", "Stream"])
@pytest.mark.parametrize("status", [2, 1])
def test_no_memory_for_lanes_is_no_memory(
    monkeypatch: pytest.MonkeyPatch, status: int, name: str
) -> None:
    def begin(*given: Any, **named: Any) -> Any:
        raise CUDARuntimeError(status)

    monkeypatch.setattr(sys.modules["cupy"].cuda, name, begin)
    a, b = normal(40, 50), normal(50, 300, seed=1)
    if status == 2:
        assert transferred(a, b, "int8x6") is Reason.MEMORY
    else:
        with pytest.raises(CUDARuntimeError):
            transferred(a, b, "int8x6")


def test_no_memory_has_a_reason(gpu: FakeGpu) -> None:
    gpu.memory = 1000
    assert transferred(normal(5, 6), normal(6, 4), "int8x6") is Reason.MEMORY
    assert transferred(normal(2, 5, 6), normal(6, 4), "int8x6") is Reason.MEMORY


def test_a_kernel_that_does_not_compile_has_a_reason(gpu: FakeGpu) -> None:
    gpu.refuses = DeviceError("no such instruction")
    assert transferred(normal(5, 6), normal(6, 4), "int8x6") is Reason.KERNEL
    assert transferred(normal(5, 6), normal(6, 4), "int8x6") is Reason.KERNEL


@pytest.mark.usefixtures("gpu")
def test_outliers_come_back() -> None:
    a, b = normal(5, 90), normal(90, 4, seed=1)
    a[3] = 110 / 256 / 127
    a[3, 0] = 1
    made = transferred(a, b, "int8x6", traced=True)
    assert isinstance(made, Product)
    assert made.outliers() == 1 / 9


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
    count = 3 * (len(shape) == 2)
    if slow == "kernels":
        slowed(monkeypatch, gpu, "gemm")
    elif slow == "packing":
        slowed(monkeypatch, gpu, "pack_one", 0.1)
    else:
        slowed(monkeypatch, ndarray, "set")
        slowed(monkeypatch, ndarray, "get")
    gpu.install(monkeypatch)
    trace = Trace()
    with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
        matmul(a, b, site="s")
    record = trace.sites["s"]
    computing = record.seconds - record.transfer
    if slow == "kernels":
        assert computing > 0.02 * max(count, 1)
    elif slow == "packing":  # b's too
        assert record.transfer < 0.1 < computing
    else:  # b there, the panels there and back; of a stack only the result is slow
        assert record.transfer > 0.02 * (1 + 2 * count if count else 1)
    assert 0 < record.transfer < record.seconds


@pytest.mark.usefixtures("gpu")
def test_no_event_where_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["cupy"].cuda, "Event")
    for shape in ((9, 50), (2, 9, 50)):
        made = transferred(normal(*shape), normal(50, 40, seed=1), "int8x6")
        assert isinstance(made, Product)
        assert made.transfer == 0


@pytest.mark.parametrize(
    ("m", "length", "itemsize", "rows"),
    [(10**6, 8192, 4, 4096), (300, 8192, 4, 384), (10**6, 10**9, 4, GRANULE), (1, 1, 8, GRANULE)],
)
def test_panels_are_large_and_whole(m: int, length: int, itemsize: int, rows: int) -> None:
    assert panel_rows(m, length, itemsize) == rows
