"""Arrays of the host on their way: who copies them, and what is multiplied meanwhile."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import device, result_memory, staging, transfer
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.staging import Job
from mixpert_py.runtime.gpu.transfer import GRANULE, panel_rows
from tests.contract.table import normal
from tests.every_check import sweep
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray
from tests.runtime.gpu.fake.stream import LateStream

ROOT = Path(__file__).parents[3]
PARTS = 300

COPIERS = staging._Copiers()  # these tests' own


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three of them."""
    monkeypatch.setattr(staging, "_copiers", COPIERS)
    monkeypatch.setattr(processor, "cores", lambda: 4)
    return COPIERS


def counting(counts: list[int]) -> Any:
    def work(parts: Iterator[int]) -> None:
        for part in parts:
            counts[part] += 1

    return work


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize("count", [0, 1, 2, PARTS])
def test_every_part_is_done_once(count: int) -> None:
    counts = [0] * count
    job = Job(counting(counts), range(count))
    job.begin().end()
    assert counts == [1] * count
    job.end()
    job.stop()
    assert counts == [1] * count


@pytest.mark.usefixtures("some")
def test_all_threads_work() -> None:
    together = threading.Barrier(4)

    def work(parts: Iterator[int]) -> None:
        for _ in parts:
            together.wait(timeout=20)

    Job(work, range(4)).begin().end()


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize("who", ["caller", "copier"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_nobody_works_after_an_error(who: str, error: type[BaseException]) -> None:
    caller = threading.current_thread()
    working: list[int] = []
    raised: list[bool] = []

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            working.append(part)
            sleep(0.002)
            working.remove(part)
            if (threading.current_thread() is caller) == (who == "caller") and not raised:
                raised.append(True)
                raise error

    job = Job(work, range(PARTS))
    with pytest.raises(error):
        job.begin().end()
    assert not working
    counts = [0] * PARTS
    Job(counting(counts), range(PARTS)).begin().end()  # the copiers are still there
    assert counts == [1] * PARTS


FORKING = """
import os, threading
from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import staging

processor.cores = lambda: 4

def right():
    counts = [0] * 300
    def work(parts):
        for part in parts:
            counts[part] += 1
    staging.Job(work, range(300)).begin().end()
    here = [t for t in threading.enumerate() if t.name.startswith("copier ")]
    return counts == [1] * 300 and len(here) == 3

assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() and right() else 1)
assert os.waitpid(child, 0)[1] == 0
assert right()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_helpers_of_its_own_and_the_end_waits_for_none() -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], cwd=ROOT, check=True, timeout=60
    )


product = partial(mixpert_py.matmul, scheme="int8x6", backend="cuda")


def there(a: Any, b: Any) -> Any:
    """The product of arrays that are on the device."""
    return product(ndarray(a), ndarray(b)).get()


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
    result = product(a, b)
    assert result.dtype == np.result_type(a, b)
    assert result.flags.c_contiguous
    panels = len(gpu.launches)
    np.testing.assert_array_equal(result, there(a, b))
    assert (panels > 2) == (m > 600)


def be_late(monkeypatch: pytest.MonkeyPatch, hurries: int) -> list[LateStream]:
    """What is enqueued happens as late as it may, but for one stream, where it happens at once.

    One thread moves all, in slots of 512 bytes. New memory is still written to by what used it
    before on its stream. Returns the streams that are made from now on.
    """

    def later(function: Any) -> Any:
        return lambda *given, **named: Stream.here.do(lambda: function(*given, **named))

    def send(target: Any, x: Any, stream: Any) -> None:
        assert target.x.flags.c_contiguous
        assert x.flags.c_contiguous
        stream.do(lambda: np.copyto(target.x, x))

    def fetch(source: Any, stream: Any, out: Any, blocking: bool) -> None:
        assert not blocking
        stream.do(lambda: np.copyto(out, source.x))

    cupy, kept, streams, numbers = sys.modules["cupy"], [], [], count()
    empty, kernels = cupy.empty, gpu_backend.cuda_kernels()

    def used_before(*given: Any) -> Any:
        made = empty(*given)
        kept.append(made)
        if isinstance(Stream.here, LateStream):
            Stream.here.do(lambda: made.x.fill(np.nan))
        return made

    def stream(non_blocking: bool) -> LateStream:  # three of the product's, then the stager's
        streams.append(LateStream(non_blocking, next(numbers) == hurries))
        return streams[-1]

    kernels = replace(kernels, gemm=later(kernels.gemm), repair=later(kernels.repair))
    monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: kernels)
    monkeypatch.setattr(cupy, "empty", used_before)
    monkeypatch.setattr(cupy.cuda, "Stream", stream)
    monkeypatch.setattr(device, "_states", {})
    monkeypatch.setattr(ndarray, "set", send)
    monkeypatch.setattr(ndarray, "get", fetch)
    monkeypatch.setattr(staging, "SLOT_BYTES", 1 << 9)
    monkeypatch.setattr(processor, "cores", lambda: 1)
    return streams


SQUARE = normal(5 * GRANULE + 1, 40)
STACK = normal(3, GRANULE, 50)
PAIRS: dict[str, Any] = {
    "C": (normal(5 * GRANULE + 1, 50), normal(50, 40, seed=1)),
    "F": (normal(50, 5 * GRANULE + 1).T, normal(40, 50, seed=1).T),
    "other types": (normal(3 * GRANULE, 50), normal(50, 40, dtype="d", seed=1)),
    "long rows": (normal(3 * GRANULE, 200), normal(200, 40, seed=1)),
    "reversed": (normal(50, 3 * GRANULE)[::-1, ::-1].T, normal(50, 40, seed=1)[::-1]),
    "repeated": (np.broadcast_to(normal(50), (3 * GRANULE, 50)), normal(50, 40, seed=1)),
    "every second": (normal(6 * GRANULE, 100)[::2, 1::2], normal(50, 80, seed=1)[:, ::2]),
    "same": (SQUARE, SQUARE.T),
    "stacks": (STACK, normal(3, 50, 40, seed=1)),
    "stacks of transposes": (normal(3, 50, GRANULE).swapaxes(1, 2), normal(3, 40, 50).mT),
    "axes anyhow": (normal(GRANULE, 50, 3).transpose(2, 0, 1), normal(50, 40, seed=1)),
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
    wanted = product(a, b)
    be_late(monkeypatch, hurries)
    np.testing.assert_array_equal(product(a, b), wanted)


@pytest.mark.parametrize("hurries", range(5))
def test_page_locked_memory_is_the_devices_own(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, hurries: int
) -> None:
    monkeypatch.setattr(result_memory, "LEAST_BYTES", SQUARE.nbytes)
    small, double = SQUARE[:40], normal(40, 40, dtype="d")
    first = product(SQUARE, small)
    wanted = [product(first, other) for other in (small, double)]
    be_late(monkeypatch, hurries)
    for _ in range(3):  # what is used again is locked
        product(SQUARE, small)[...] = np.nan
    gc.collect()  # what late streams still hold
    locked = product(SQUARE, small)
    assert locked.ctypes.data in gpu.locked
    np.testing.assert_array_equal(locked, first)
    for other, value in zip((small, double), wanted, strict=True):
        np.testing.assert_array_equal(product(locked, other), value)


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
    a, b = SAME[pair](SQUARE)
    result = product(a, b)
    assert sum(map(prod, moves)) == a.size
    if pair == "x @ x.T":
        assert len(gpu.launches) > 1
    np.testing.assert_array_equal(result, product(a.copy(), b.copy()))


@pytest.mark.usefixtures("gpu")
def test_what_is_multiplied_later_is_not_written_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 4)
    a, b = normal(300, 50), normal(50, 50, seed=1)
    wanted, block = product(a, b), np.full((310, 120), 7, np.float32)[5:305, 10:110:2]
    assert product(a, b, out=block) is block
    assert product(a, b, out=a) is a
    np.testing.assert_array_equal(block, wanted)
    np.testing.assert_array_equal(a, wanted)


@pytest.mark.parametrize("panel", [0, 1, 2, 3])
def test_what_is_raised_in_between_leaves_nothing_behind(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, panel: int
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 4)
    a, b = normal(4 * GRANULE, 50), normal(50, 40, seed=1)
    wanted, as_it_is, held = product(a, b), gpu_backend.multiply, gpu.held
    streams = be_late(monkeypatch, 4)
    turns = count()

    def interrupted(*given: Any, **named: Any) -> Any:
        if next(turns) == panel:
            raise KeyboardInterrupt
        return as_it_is(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(gpu_backend, "multiply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            product(a, b)
    assert all(one.done == len(one.steps) for one in streams)
    assert [len(state.streams) for state in device.states().values()] == [3]
    monkeypatch.undo()
    del streams
    gc.collect()
    assert gpu.held == held
    FakeGpu().install(monkeypatch)
    np.testing.assert_array_equal(product(a, b), wanted)


def test_b_that_is_too_large_goes_in_halves(gpu: FakeGpu) -> None:
    a, b = normal(200, 60), normal(60, 1000, seed=1)
    gpu.memory = 130_000
    result = product(a, b)
    assert len(gpu.launches) > 2
    gpu.memory = float("inf")
    np.testing.assert_array_equal(result, there(a, b))


def test_a_panel_has_no_more_rows_than_the_operand() -> None:
    assert [panel_rows(m, 8192, 4) for m in (10**6, 300, 1)] == [4096, 384, GRANULE]
