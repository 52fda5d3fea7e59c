"""Moves to and from a device that does everything as late as it may."""

import threading
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import copiers, device_state, result_memory, staging
from mixpert_py.runtime.gpu.moves import moves
from mixpert_py.runtime.gpu.staging import pieces
from tests.runtime.gpu.fake import CUDARuntimeError, OutOfMemoryError, on_device
from tests.runtime.gpu.fake.late import LateStream
from tests.runtime.gpu.fake.stream import Stream

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
    monkeypatch.setattr(device_state, "_states", {})
    monkeypatch.setattr(staging, "SLOT_BYTES", SLOT)
    monkeypatch.setattr(copiers, "_copiers", copiers._Copiers())
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


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_is_copied_in_its_order(
    xp: Any, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    copies = []
    as_it_is = np.copyto

    def noted(target: Any, x: Any) -> None:
        copies.append((target, x))
        as_it_is(target, x)

    x = LAYOUTS[layout]
    with moves(xp) as on_their_way, monkeypatch.context() as patch:
        patch.setattr(np, "copyto", noted)
        on_their_way.send(x, x.dtype)._job.end()  # type: ignore[union-attr]
    assert sum(target.size for target, _ in copies) == x.size
    for target, source in copies:
        assert target.nbytes <= SLOT
        assert target.flags.c_contiguous
        strides = [
            abs(stride)
            for stride, length in zip(source.strides, source.shape, strict=True)
            if length > 1
        ]
        assert strides == sorted(strides, reverse=True)


@pytest.mark.parametrize("shape", [(30, 70), (5, 700), (7, 20, 30), (700,), (), (0, 3)], ids=str)
def test_what_is_fetched_is_here(xp: Any, shape: tuple[int, ...]) -> None:
    x = normal(*shape) if shape else np.array(3.0, np.float32)
    value = np.ones(shape, np.float32)
    with moves(xp) as on_their_way:
        on_their_way.fetch(value, LateArray(x)).end()
        np.testing.assert_array_equal(value, x)


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
            there.append(on_their_way.send(x, x.dtype)._array)
            there.append(on_their_way.send(normal(30, 70), x.dtype))
            on_their_way.fetch(value, LateArray(x))
            there[1]._job.end()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()
    np.testing.assert_array_equal(there[0].x, x)
    np.testing.assert_array_equal(there[1]._array.x, normal(30, 70))
    np.testing.assert_array_equal(value, x)


def test_what_nobody_waited_for_is_not_done_later(xp: Any) -> None:
    value = np.zeros((30, 70), np.float32)
    with moves(xp) as on_their_way:
        fetched = on_their_way.fetch(value, LateArray(normal(30, 70)))
    fetched.end()
    assert not value.any()


@pytest.mark.parametrize("which", range(3))
def test_an_interrupt_while_one_stream_ends_leaves_none_at_work(
    xp: Any, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    done: list[int] = []
    as_it_is = LateStream.synchronize

    def begin() -> None:
        with moves(xp) as on_their_way:
            streams = [on_their_way.stream, on_their_way._there, on_their_way._back]
            for number, one in enumerate(streams):
                one.do(partial(done.append, number))

            def synchronize(stream: LateStream) -> None:
                if stream is streams[which]:
                    raise KeyboardInterrupt
                as_it_is(stream)

            monkeypatch.setattr(LateStream, "synchronize", synchronize)

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert sorted(done) == sorted({0, 1, 2} - {which})


def test_streams_are_used_again_but_not_by_two(xp: Any) -> None:
    def streams(one: Any) -> set[Any]:
        return {one.stream, one._there, one._back}

    with moves(xp) as outer, moves(xp) as inner:
        both = streams(outer) | streams(inner)
        assert len(both) == 6
    with moves(xp) as again:
        assert streams(again) < both


def test_hands_are_used_again(xp: Any) -> None:
    for _ in range(3):
        with moves(xp) as on_their_way:
            on_their_way.send(normal(30, 70), np.dtype("f")).arrived()
            on_their_way.fetch(np.empty((30, 70), "f"), LateArray(normal(30, 70))).end()
    assert xp.pinned == [2 * SLOT]


def test_a_helper_without_memory_does_not_help(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "cores", lambda: 4)
    x, value = normal(30, 70), np.zeros((30, 70), np.float32)
    tried = threading.Event()

    def none(size: int) -> Any:
        tried.set()
        raise CUDARuntimeError(staging.NO_MEMORY)

    with moves(xp) as on_their_way:
        xp.cuda.alloc_pinned_memory = none
        fetched = on_their_way.fetch(value, LateArray(x))
        assert tried.wait(timeout=20)
        fetched.end()
    np.testing.assert_array_equal(value, x)


def test_no_memory_is_told_at_the_start(xp: Any) -> None:
    def none(size: int) -> Any:
        raise CUDARuntimeError(staging.NO_MEMORY)

    xp.cuda.alloc_pinned_memory = none
    with pytest.raises(OutOfMemoryError), moves(xp):
        pass
    assert len(device_state.state_of(0).streams) == 3


def test_a_hand_that_was_interrupted_is_at_rest(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(one: Any) -> None:
        raise KeyboardInterrupt

    x = normal(8, 8)
    target = LateArray(np.zeros_like(x))
    with monkeypatch.context() as patch:
        patch.setattr(staging.Stager, "use", interrupted)
        with pytest.raises(KeyboardInterrupt), staging.stager(xp) as one:
            one.put(target, x, iter([(...,)]))
    np.testing.assert_array_equal(target.x, x)


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
