"""Memory of results: used again when nobody has it any more, and never before."""

import gc
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import result_memory

LEAST = 1 << 12
LIMIT = 10 * LEAST


class Runtime:
    """What CUDA has locked: address → bytes."""

    CUDARuntimeError = OSError

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.refuses = False

    def hostRegister(self, address: int, size: int, flags: int) -> None:  # noqa: N802
        assert flags == 1
        assert address not in self.locked
        if self.refuses:
            raise OSError
        self.locked[address] = size

    def hostUnregister(self, address: int) -> None:  # noqa: N802
        if self.refuses:
            raise OSError
        del self.locked[address]


@pytest.fixture
def xp(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(result_memory, "_idle", deque())
    monkeypatch.setattr(result_memory, "_locked", [])
    monkeypatch.setattr(result_memory, "LEAST_BYTES", LEAST)
    monkeypatch.setattr(result_memory, "limit", lambda: LIMIT)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=Runtime()))


def empty(xp: Any, size: int = LEAST) -> Any:
    return result_memory.empty(xp, (size,), np.dtype(np.uint8))


def test_what_nobody_has_is_used_again_and_locked(xp: Any) -> None:
    x = empty(xp)
    where = x.ctypes.data
    assert not result_memory.is_locked(x)
    assert not xp.cuda.runtime.locked  # most results are made once
    del x
    x = empty(xp)
    assert x.ctypes.data == where
    assert result_memory.is_locked(x)
    assert result_memory.is_locked(x[4:].view(np.uint16)[::2])
    assert xp.cuda.runtime.locked == {where: LEAST}
    del x
    assert result_memory.is_locked(empty(xp))
    assert result_memory.locked_bytes() == LEAST


@pytest.mark.parametrize(
    "held",
    [
        lambda x: x,
        lambda x: x[7:],
        lambda x: x.reshape(2, -1).T[3:],
        lambda x: memoryview(x),
        lambda x: np.asarray(memoryview(x))[5:],
        lambda x: iter(x),
    ],
)
def test_what_somebody_has_is_not(xp: Any, held: Any) -> None:
    x = empty(xp)
    x[...] = 5
    where = x.ctypes.data
    part = held(x)
    del x
    gc.collect()
    for _ in range(3):
        other = empty(xp)
        assert other.ctypes.data != where
        other[...] = 7
    assert all(value == 5 for value in np.ravel(list(part)))


def test_small_and_huge_ones_come_from_numpy(xp: Any) -> None:
    for size in (LEAST - 1, LIMIT + 1):
        assert empty(xp, size).flags.owndata


def test_not_much_more_is_given_than_asked_for(xp: Any) -> None:
    sizes = [LEAST, LEAST * 9 // 8, 2 * LEAST]
    held = [empty(xp, size) for size in sizes]
    places = [x.ctypes.data for x in held]
    held.clear()
    assert empty(xp, LEAST + 1).ctypes.data == places[1]
    assert empty(xp, LEAST * 3 // 2).ctypes.data not in places
    assert empty(xp, LEAST * 7 // 4).ctypes.data == places[2]


def test_what_is_too_much_goes_the_oldest_first(xp: Any) -> None:
    for _ in range(2):  # the second time they are locked
        held = [empty(xp, 2 * LEAST) for _ in range(5)]
        places = [x.ctypes.data for x in held]
        while held:
            held.pop(0)
    assert set(xp.cuda.runtime.locked) == set(places)
    large = empty(xp, 4 * LEAST)
    del large
    assert set(xp.cuda.runtime.locked) == set(places[2:])
    assert result_memory.locked_bytes() == 6 * LEAST


def test_memory_that_cannot_be_unlocked_stays(xp: Any) -> None:
    """Another array might lie there, and the device write to the pages that were there before."""
    for _ in range(2):
        held = [empty(xp, 2 * LEAST) for _ in range(5)]
        places = [x.ctypes.data for x in held]
        held.clear()
    xp.cuda.runtime.refuses = True
    large = empty(xp, 4 * LEAST)
    del large
    assert set(xp.cuda.runtime.locked) == set(places)
    assert result_memory.locked_bytes() == LIMIT


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_leaves_nothing_that_is_locked_and_unmapped(xp: Any, after: bool) -> None:
    as_it_is = xp.cuda.runtime.hostRegister

    def interrupted(*given: int) -> None:
        if after:
            as_it_is(*given)
        raise KeyboardInterrupt

    empty(xp)
    xp.cuda.runtime.hostRegister = interrupted
    with pytest.raises(KeyboardInterrupt):
        empty(xp)
    assert result_memory.locked_bytes() == LEAST >= sum(xp.cuda.runtime.locked.values())
