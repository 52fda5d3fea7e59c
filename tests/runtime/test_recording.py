"""Recorded launches: made anew at the addresses that each call gives."""

import gc
import os
import struct
import threading
from typing import Any

import pytest

from mixpert_py.runtime.kernels import recording
from mixpert_py.runtime.kernels.kernel import ArgumentLayout, Kernel
from mixpert_py.runtime.kernels.recording import (
    LEFT,
    MOST,
    RESULT,
    RIGHT,
    ROW,
    UNIT,
    USES,
    Recording,
    Replay,
    allocate,
    clear,
)
from tests.runtime.driver import Driver

STRUCTURE = ArgumentLayout.of("Pi4xdPi4x")
SIZES = {1: [8, 8, 8, 8], 2: [STRUCTURE.size]}


def recorded() -> Recording:
    """A launch of words, memory that becomes zero, and a launch of a structure."""
    tape = Recording()
    memory = allocate(1000, tape)
    tape.release(allocate(5000, tape))
    other = allocate(8, tape)
    clear(other.ptr, 8, tape, 127)
    Kernel("words", 1, None, None, early=True).launch_words(
        5, 64, (LEFT + 12, memory.ptr, -7, ROW), 1024, tape
    )
    values = (RIGHT - 8, 3, 2.5, RESULT + 8, 9)  # a stack that is stored last matrix first
    Kernel("structure", 2, None, None).launch(7, 32, STRUCTURE, values, 0, tape)
    return tape


def launches(replay: Replay, driver: Driver, start: int, stream: int) -> list[Any]:
    """What a call with addresses from `start` on has enqueued, but for how a kernel may begin.
    Stream 2 is being captured.
    """
    driver.found.clear()
    launched = driver.done.count("cuGraphLaunch")
    addresses = start, 2 * start, 3 * start, 4 * start, 5 * start, 6 * start
    replay.enqueue(addresses, stream, as_graph=stream != 2)
    assert stream != 2 or driver.done.count("cuGraphLaunch") == launched
    return [(*one[:3], one[3] * (one[0] == "clear"), one[4]) for one in driver.found]


def wanted(start: int, stream: int) -> list[Any]:
    words = struct.pack("4q", start + 12, 4 * start, -7, 5 * start)
    structure = struct.pack("Pi4xdPi4x", 2 * start - 8, 3, 2.5, 3 * start + 8, 9)
    return [
        ("clear", stream, 4 * start + 1024, 127, 8),
        (1, stream, (5, 1, 1, 64, 1, 1, 1024), 0, words),
        (2, stream, (7, 1, 1, 32, 1, 1, 0), 0, structure),
    ]


STEPS = "None Create AddKernelNode_v2 AddMemsetNode InstantiateWithFlags Launch"


@pytest.mark.parametrize("refuses", STEPS.split())
def test_launches_are_made_at_the_addresses_of_each_call(
    refuses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "USES", 2)
    driver, tape = Driver(SIZES, f"cuGraph{refuses}"), recorded()
    assert tape.bytes == 1024 + 10 * UNIT
    replay = Replay(tape, driver)
    for turn in range(4):
        for start in (*range(1 << 40, (1 << 40) + MOST + 9), 1 << 41, 1 << 41, 16):
            stream = turn + start % 2
            assert launches(replay, driver, start, stream) == wanted(start, stream)
    assert driver.mode == 0
    assert 9 < driver.done.count("cuGraphCreate") <= MOST + 11  # no graph is tried again
    assert len(driver.graphs) <= 2 * MOST
    del replay
    gc.collect()
    assert not driver.graphs  # all are destroyed


def test_addresses_that_come_often_have_graphs() -> None:
    driver = Driver(SIZES)
    replay = Replay(recorded(), driver)
    for turn in range(USES + 2):
        assert turn >= USES or "cuGraphLaunch" not in driver.done
        if turn == USES:
            driver.done.clear()
        for start in range(1 << 40, (1 << 40) + 6):
            assert launches(replay, driver, start, 7) == wanted(start, 7)
    assert set(driver.done) == {"cuGraphLaunch"}


def test_a_launch_may_interrupt_another() -> None:
    driver = Driver(SIZES)
    launch = driver.cuLaunchKernelEx
    kernel = Kernel("words", 1, None, driver, early=True)

    def interrupted(*given: Any) -> int:
        driver.cuLaunchKernelEx = launch  # type: ignore[method-assign]
        kernel.launch_words(1, 1, (3, 4, 5, 0), 0, 0)
        return launch(*given)

    driver.cuLaunchKernelEx = interrupted  # type: ignore[method-assign]
    kernel.launch_words(5, 64, (1 << 62, -1, 5, 7), 1024, 9)
    assert driver.found == [
        (1, 0, (1, 1, 1, 1, 1, 1, 0), 1, struct.pack("4q", 3, 4, 5, 0)),
        (1, 9, (5, 1, 1, 64, 1, 1, 1024), 1, struct.pack("4q", 1 << 62, -1, 5, 7)),
    ]


def test_threads_have_arguments_of_their_own() -> None:
    """One that is between two launches of a call does not see another's addresses."""
    driver = Driver(SIZES, "cuGraphCreate")
    inside, go_on = threading.Event(), threading.Event()
    launch = driver.cuLaunchKernelEx

    def slowly(*given: Any) -> int:
        """Wait before the first launch, in the thread that is to be overtaken."""
        if threading.current_thread().name == "slow" and given[1] == 1:
            inside.set()
            assert go_on.wait(10)
        return launch(*given)

    driver.cuLaunchKernelEx = slowly  # type: ignore[method-assign]
    replay = Replay(recorded(), driver)
    replay.enqueue((9 << 10, 10 << 10, 11 << 10, 12 << 10, 0, 0), 0)  # leaves arguments for one
    driver.found.clear()
    addresses = (1 << 10, 2 << 10, 3 << 10, 4 << 10, 0, 0), 0
    slow = threading.Thread(target=replay.enqueue, args=addresses, name="slow")
    slow.start()
    assert inside.wait(10)
    replay.enqueue((5 << 10, 6 << 10, 7 << 10, 8 << 10, 0, 0), 0)
    go_on.set()
    slow.join()
    for handle, starts in (
        (1, [(1 << 10) + 12, (5 << 10) + 12]),
        (2, [(2 << 10) - 8, (6 << 10) - 8]),
    ):
        found = [struct.unpack_from("q", one[4])[0] for one in driver.found if one[0] == handle]
        assert sorted(found) == starts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_knows_no_devices() -> None:
    from mixpert_py.runtime.signatures import device_of

    class Arrays:
        pass

    device_of[Arrays] = lambda x: 0
    try:
        child = os.fork()
        if child == 0:
            os._exit(len(device_of))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert Arrays in device_of
    finally:
        del device_of[Arrays]
