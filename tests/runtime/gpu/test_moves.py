"""Threads that copy, and arrays on their way to a device and back."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from math import prod
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import device, result_memory, staging
from mixpert_py.runtime.gpu.moves import moves
from mixpert_py.runtime.gpu.staging import Job, pieces
from tests.contract.table import normal
from tests.runtime.gpu.fake import CUDARuntimeError, OutOfMemoryError, on_device
from tests.runtime.gpu.fake.stream import LateStream, Stream

SLOT = 1 << 9  # bytes


class LateArray:
    def __init__(self, x: Any) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype

    def __getitem__(self, place: Any) -> "LateArray":
        return LateArray(self.x[place])

    def transpose(self, axes: tuple[int, ...]) -> "LateArray":
        return LateArray(self.x.transpose(axes))

    def set(self, x: Any, stream: LateStream) -> None:
        assert self.x.flags.c_contiguous
        assert x.flags.c_contiguous
        assert (x.shape, x.dtype) == (self.shape, self.dtype)
        stream.do(lambda: self.x.__setitem__(..., x))

    def get(self, stream: LateStream, out: Any, blocking: bool) -> None:
        assert not blocking
        assert self.x.flags.c_contiguous
        stream.do(lambda: out.__setitem__(..., self.x))


@pytest.fixture
def xp(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(device, "_states", {})
    monkeypatch.setattr(staging, "SLOT_BYTES", SLOT)
    monkeypatch.setattr(staging, "_copiers", staging._Copiers())
    monkeypatch.setattr(processor, "cores", lambda: 1)  # nobody helps: what is late has one thread
    given: list[int] = []

    def allocate(size: int) -> Any:
        given.append(size)
        return np.full(size, 255, np.uint8)

    def empty(shape: Any, dtype: Any) -> LateArray:
        x = np.zeros(shape, dtype)
        if isinstance(Stream.here, LateStream):  # it may yet write to what it has freed
            Stream.here.do(lambda: x.fill(np.nan))
        return LateArray(x)

    return SimpleNamespace(
        empty=empty,
        pinned=given,
        cuda=SimpleNamespace(
            Device=on_device,
            Stream=LateStream,
            alloc_pinned_memory=allocate,
            runtime=SimpleNamespace(getDevice=lambda: 0, CUDARuntimeError=CUDARuntimeError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        ),
    )


LAYOUTS = {
    "C": normal(30, 70),
    "F": normal(70, 30).T,
    "long rows": normal(5, 700),
    "rows reversed": normal(30, 70)[::-1],
    "F reversed": normal(70, 30)[::-1, ::-1].T,
    "a row again and again": np.broadcast_to(normal(70), (30, 70)),
    "a column again and again": np.broadcast_to(normal(30, 1), (30, 70)),
    "every second": normal(60, 140)[::2, 1::2],
    "a vector": normal(700),
    "a stack": normal(7, 20, 30),
    "a stack of transposes": normal(7, 20, 30).swapaxes(1, 2),
    "axes anyhow": normal(7, 20, 30).transpose(2, 0, 1),
    "one number": normal(1, 1),
    "nothing": normal(0, 5),
}


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_sent_is_there(xp: Any, layout: str, dtype: str) -> None:
    x = LAYOUTS[layout]
    with moves(xp) as on_their_way:
        there = on_their_way.send(x, np.dtype(dtype)).arrived()
        on_their_way.stream.synchronize()
        assert there.x.tobytes() == x.astype(dtype).tobytes()
        assert there.shape == x.shape


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_page_locked_memory_is_the_devices_own(
    xp: Any, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(result_memory, "is_locked", lambda x: True)
    monkeypatch.setattr(np, "copyto", lambda *given: calls.append(given))
    calls: list[Any] = []
    x, value = normal(30, 70), np.zeros((30, 70), np.float32)
    with moves(xp) as on_their_way:
        there = on_their_way.send(x, np.dtype(dtype)).arrived()
        fetched = on_their_way.fetch(value, there)
        assert bool(calls) == (dtype == "d")  # another type is the host's to make
        monkeypatch.undo()
        on_their_way.stream.synchronize()
        fetched.end()
    if dtype == "f":
        np.testing.assert_array_equal(value, x)


def test_the_end_waits_for_what_was_begun(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "is_locked", lambda x: x.size == 64)
    x, value = normal(8, 8), np.zeros((8, 8), np.float32)
    there: list[Any] = []

    def begin() -> None:
        with moves(xp) as on_their_way:
            there.extend(on_their_way.send(one, x.dtype) for one in (x, normal(30, 70)))
            on_their_way.fetch(value, LateArray(x))
            there[1].arrived()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()
    for sent, one in zip(there, (x, normal(30, 70)), strict=True):
        np.testing.assert_array_equal(sent.arrived().x, one)
    np.testing.assert_array_equal(value, x)


def test_what_nobody_waited_for_is_not_done_later(xp: Any) -> None:
    value = np.zeros((30, 70), np.float32)
    with moves(xp) as on_their_way:
        fetched = on_their_way.fetch(value, LateArray(normal(30, 70)))
    fetched.end()
    assert not value.any()


@pytest.mark.parametrize(
    "shape", [(10,), (3, 4), (2, 3, 4), (1, 100), (100, 1), (4, 5, 6, 7)], ids=str
)
@pytest.mark.parametrize("most", [1, 5, 12, 1000])
def test_pieces_are_contiguous_and_cover_all_once(shape: tuple[int, ...], most: int) -> None:
    x = np.zeros(shape)
    count = 0
    for place in pieces(shape, most):
        assert x[place].flags.c_contiguous
        assert 0 < x[place].size <= most
        x[place] += 1
        count += 1
    assert (x == 1).all()
    assert count <= 2 * -(-prod(shape) // most) + prod(shape[:-1])


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody forks here")
def test_a_fork_has_helpers_of_its_own_and_the_end_waits_for_none() -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], cwd=ROOT, check=True, timeout=60
    )
