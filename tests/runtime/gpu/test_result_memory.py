"""Memory of results: used again when nobody has it any more, and never before."""

import gc
import sys
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.runtime.gpu import result_memory
from tests.runtime.gpu.fake import CUDARuntimeError, FakeGpu

LEAST = 1 << 12
LIMIT = 10 * LEAST


@pytest.fixture(autouse=True)
def few_bytes(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "LEAST_BYTES", LEAST)
    monkeypatch.setattr(result_memory, "limit", lambda: LIMIT)


def made(size: int = LEAST) -> Any:
    """A product of NumPy arrays on a GPU, of so many bytes."""
    column, one = np.ones((size // 4, 1), "f"), np.ones((1, 1), "f")
    return mixpert_py.matmul(column, one, scheme="int8x6", backend="cuda")


def test_what_nobody_has_is_used_again_and_locked(gpu: FakeGpu) -> None:
    x = made()
    where = x.ctypes.data
    assert not gpu.locked  # most results are made once
    del x
    for _ in range(2):
        x = made()
        assert x.ctypes.data == where
        assert gpu.locked == {where: LEAST}
        assert result_memory.is_locked(x[4:].view(np.uint16)[::2])
        del x
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
def test_what_somebody_has_is_not(held: Any) -> None:
    x = made()
    where = x.ctypes.data
    part = held(x)
    del x
    gc.collect()
    for _ in range(3):
        other = made()
        assert other.ctypes.data != where
        other[...] = 7
    part = part.tolist() if isinstance(part, memoryview) else list(part)
    assert (np.ravel(part) == 1).all()


def test_small_and_huge_ones_come_from_numpy() -> None:
    for size in (LEAST - 4, LIMIT + 4):
        assert made(size).flags.owndata


def test_not_much_more_is_given_than_asked_for() -> None:
    held = [made(size) for size in (LEAST, LEAST * 9 // 8, 2 * LEAST)]
    places = [x.ctypes.data for x in held]
    held.clear()
    assert made(LEAST + 4).ctypes.data == places[1]
    assert made(LEAST * 3 // 2).ctypes.data not in places
    assert made(LEAST * 7 // 4).ctypes.data == places[2]


@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_too_much_goes_the_oldest_first(gpu: FakeGpu, refuses: bool) -> None:
    """Unless it cannot be unlocked: another array might lie there, and the device write to it."""
    for _ in range(2):  # the second time they are locked
        held = [made(2 * LEAST) for _ in range(5)]
        places = [x.ctypes.data for x in held]
        while held:
            held.pop(0)
    assert set(gpu.locked) == set(places)
    large = made(4 * LEAST)
    gpu.refuses = CUDARuntimeError(1) if refuses else None
    del large
    assert set(gpu.locked) == set(places if refuses else places[2:])
    assert result_memory.locked_bytes() == (LIMIT if refuses else 6 * LEAST)


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_leaves_nothing_that_is_locked_and_unmapped(gpu: FakeGpu, after: bool) -> None:
    runtime = sys.modules["cupy"].cuda.runtime
    as_it_is = runtime.hostRegister

    def interrupted(*given: int) -> None:
        if after:
            as_it_is(*given)
        raise KeyboardInterrupt

    made()
    runtime.hostRegister = interrupted
    with pytest.raises(KeyboardInterrupt):
        made()
    assert result_memory.locked_bytes() == LEAST >= sum(gpu.locked.values())
