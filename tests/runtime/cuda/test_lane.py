"""Lanes to a device that does everything as late as it may."""

from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.cuda import lane
from mixpert_py.runtime.cuda.lane import fetched, sent, two_lanes
from tests.runtime.cuda.fake.late import LateStream
from tests.runtime.cuda.fake.stream import Stream

PIECE = 1 << 9  # bytes


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
        stream.do(lambda: np.copyto(self.x, x))

    def get(self, stream: LateStream, out: Any, blocking: bool) -> None:
        assert not blocking
        assert self.x.flags.c_contiguous
        stream.do(lambda: np.copyto(out, self.x))


@pytest.fixture
def xp(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(lane, "_idle", {})
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
            Stream=LateStream,
            alloc_pinned_memory=allocate,
            runtime=SimpleNamespace(getDevice=lambda: 0, CUDARuntimeError=OSError),
        ),
    )


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


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
    with two_lanes(xp, PIECE, PIECE) as lanes:
        there = sent(xp, lanes, x, np.dtype(dtype))
        lanes[0].stream.synchronize()
        assert there.x.tobytes() == x.astype(dtype).tobytes()
        assert there.shape == x.shape


def test_no_lane_writes_to_memory_that_is_still_in_use(xp: Any) -> None:
    x = LAYOUTS["C"]
    with two_lanes(xp, PIECE, PIECE) as lanes:
        lanes[1].stream.hurries = True
        there = sent(xp, lanes, x, x.dtype)
        lanes[0].stream.synchronize()
        np.testing.assert_array_equal(there.x, x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_is_copied_in_its_order(
    xp: Any, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    copies = []
    monkeypatch.setattr(lane, "copy", lambda target, x: copies.append((target, x)))
    x = LAYOUTS[layout]
    with two_lanes(xp, PIECE, PIECE) as lanes:
        sent(xp, lanes, x, x.dtype)
    assert sum(target.size for target, _ in copies) == x.size
    for target, source in copies:
        assert target.nbytes <= PIECE
        assert target.flags.c_contiguous
        strides = [
            abs(stride)
            for stride, length in zip(source.strides, source.shape, strict=True)
            if length > 1
        ]
        assert strides == sorted(strides, reverse=True)


@pytest.mark.parametrize("shape", [(30, 70), (5, 700), (7, 20, 30), (700,), (), (0, 3)], ids=str)
def test_what_is_fetched_is_here(xp: Any, shape: tuple[int, ...]) -> None:
    x = normal(*shape) if shape else np.array(3.0)
    with two_lanes(xp, PIECE, PIECE) as lanes:
        value = fetched(lanes, LateArray(x))
        np.testing.assert_array_equal(value, x)
        assert value.shape == shape


def test_a_lane_does_not_wait_for_what_it_need_not(xp: Any) -> None:
    x = normal(8, 8)
    with two_lanes(xp, PIECE, PIECE) as (first, _):
        first.send(xp.empty(x.shape, x.dtype), x)
        first.fetch(np.empty_like(x), LateArray(x))
        first.send(xp.empty(x.shape, x.dtype), x)
        assert first.stream.done == 1  # what was sent before has left; nothing has come
        first.collect()
        first.collect()
        assert first.stream.done == 3


@pytest.mark.parametrize("number", [0, 1])
def test_the_end_waits_for_what_was_begun(xp: Any, number: int) -> None:
    x, streams = normal(8, 8), []

    def send() -> None:
        with two_lanes(xp, PIECE, PIECE) as lanes:
            streams.append(lanes[number].stream)
            lanes[number].send(xp.empty(x.shape, x.dtype), x)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send()
    assert streams[0].done == 1


def test_an_interrupt_while_one_stream_ends_leaves_none_at_work(xp: Any) -> None:
    x = normal(8, 8)

    def interrupted() -> None:
        raise KeyboardInterrupt

    def send() -> None:
        with two_lanes(xp, PIECE, PIECE) as (first, second):
            second.send(xp.empty(x.shape, x.dtype), x)
            streams.append(second.stream)
            first.stream.synchronize = interrupted

    streams: list[LateStream] = []
    with pytest.raises(KeyboardInterrupt):
        send()
    assert streams[0].done == 1


def test_streams_are_used_again_but_not_by_two(xp: Any) -> None:
    with two_lanes(xp, PIECE, PIECE) as outer, two_lanes(xp, PIECE, PIECE) as inner:
        streams = {one.stream for one in (*outer, *inner)}
        assert len(streams) == 4
    with two_lanes(xp, PIECE, PIECE) as lanes:
        assert {one.stream for one in lanes} < streams


def test_page_locked_memory_comes_in_few_sizes(xp: Any) -> None:
    for back in range(PIECE, 2 * PIECE + 1, 100):
        with two_lanes(xp, PIECE, back):
            pass
    assert set(xp.pinned) == {PIECE, 2 * PIECE}


@pytest.mark.parametrize(
    "shape", [(10,), (3, 4), (2, 3, 4), (1, 100), (100, 1), (4, 5, 6, 7)], ids=str
)
@pytest.mark.parametrize("most", [1, 5, 12, 1000])
def test_pieces_are_contiguous_and_cover_all_once(shape: tuple[int, ...], most: int) -> None:
    x = np.zeros(shape)
    count = 0
    for place in lane._pieces(shape, most):
        assert x[place].flags.c_contiguous
        assert 0 < x[place].size <= most
        x[place] += 1
        count += 1
    assert (x == 1).all()
    assert count <= 2 * -(-prod(shape) // most) + prod(shape[:-1])
