"""NumPy arrays moved to a GPU in panels: the same product, whatever the panels."""

import gc
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu import device, transfer
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.transfer import GRANULE, panel_rows
from mixpert_py.runtime.request import Product
from tests.contract.table import normal
from tests.every_check import sweep
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray
from tests.runtime.gpu.fake.stream import LateStream
from tests.runtime.gpu.requested import multiplied, transferred


def moved(a: Any, b: Any, scheme: str = "int8x6", **given: Any) -> Any:
    made = transferred(a, b, scheme, **given)
    assert isinstance(made, Product)
    return made.value


def there(a: Any, b: Any, scheme: str = "int8x6") -> Any:
    made = multiplied(ndarray(a), ndarray(b), scheme)
    assert isinstance(made, Product)
    return made.value.get()


@pytest.mark.parametrize("dtypes", ["ff", "dd", "fd", "FF"])
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
    assert (count > 2) == (m > 600)


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
    monkeypatch.setattr(device, "_states", {})
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
    assert [len(state.streams) for state in device.states().values()] == [3]
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


def test_a_panel_has_no_more_rows_than_the_operand() -> None:
    assert [panel_rows(m, 8192, 4) for m in (10**6, 300, 1)] == [4096, 384, GRANULE]
