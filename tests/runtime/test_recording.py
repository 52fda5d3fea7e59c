"""Recorded launches: made anew at the addresses that each call gives."""

import ctypes
import os
import struct
import threading
from typing import Any

import pytest

from mixpert_py.runtime.kernels.kernel import ArgumentLayout, Kernel
from mixpert_py.runtime.kernels.recording import (
    LEFT,
    RESULT,
    RIGHT,
    UNIT,
    Recording,
    Replay,
    allocate,
    clear,
)


class Driver:
    """Notes what the real one would find: handle, stream and arguments, or what becomes zero."""

    def __init__(self, sizes: dict[int, list[int]]) -> None:
        self.sizes = sizes
        self.found: list[tuple[Any, ...]] = []
        self.status = 0

    def cuLaunchKernelEx(self, config: int, handle: int, where: int, extra: None) -> int:  # noqa: N802
        *shape, stream, _, attributes = struct.unpack("7I4xQQI4x", ctypes.string_at(config, 56))
        sizes = self.sizes[handle]
        pointers = (ctypes.c_void_p * len(sizes)).from_address(where)
        values = [ctypes.string_at(p, size) for p, size in zip(pointers, sizes, strict=True)]
        self.found.append((handle, stream, tuple(shape), attributes, b"".join(values)))
        return self.status

    def cuStreamQuery(self, stream: int) -> int:  # noqa: N802
        return 600  # not ready

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802
        return 0

    def cuMemsetD8Async(self, target: Any, byte: Any, size: Any, stream: Any) -> int:  # noqa: N802
        self.found.append(("clear", stream.value or 0, target.value, byte.value, size.value))
        return 0


STRUCTURE = ArgumentLayout.of("Pi4xdPi4x")
SIZES = {1: [8, 8, 8], 2: [STRUCTURE.size]}


def recorded() -> Recording:
    """A launch of words, memory that becomes zero, and a launch of a structure."""
    tape = Recording()
    memory = allocate(1000, tape)
    other = allocate(8, tape)
    clear(other.ptr, 8, tape)
    Kernel("words", 1, None, None, early=True).launch_words(
        5, 64, (LEFT + 12, memory.ptr, -7), 1024, tape
    )
    values = (RIGHT - 8, 3, 2.5, RESULT + 8, 9)  # a stack that is stored last matrix first
    Kernel("structure", 2, None, None).launch(7, 32, STRUCTURE, values, 0, tape)
    return tape


def test_launches_are_made_at_the_addresses_of_each_call() -> None:
    driver = Driver(SIZES)
    tape = recorded()
    assert tape.bytes == 1024 + UNIT
    replay = Replay(tape, driver)
    for a, b, c, memory, stream in ((1 << 44, 2 << 44, 3 << 44, 4 << 44, 0), (16, 32, 48, 64, 7)):
        driver.found.clear()
        replay.enqueue((a, b, c, memory), stream)
        values = struct.pack("Pi4xdPi4x", b - 8, 3, 2.5, c + 8, 9)
        assert driver.found == [
            ("clear", stream, memory + 1024, 0, 8),
            (1, stream, (5, 1, 1, 64, 1, 1, 1024), 1, struct.pack("3q", a + 12, memory, -7)),
            (2, stream, (7, 1, 1, 32, 1, 1, 0), 0, values),
        ]


def test_a_launch_may_interrupt_another() -> None:
    """Each has arguments of its own."""
    driver = Driver(SIZES)
    launch = driver.cuLaunchKernelEx
    kernel = Kernel("words", 1, None, driver, early=True)

    def interrupted(*given: Any) -> int:
        driver.cuLaunchKernelEx = launch  # type: ignore[method-assign]
        kernel.launch_words(1, 1, (3, 4, 0), 0, 0)
        return launch(*given)

    driver.cuLaunchKernelEx = interrupted  # type: ignore[method-assign]
    kernel.launch_words(5, 64, (1 << 62, -1, 7), 1024, 9)
    assert driver.found == [
        (1, 0, (1, 1, 1, 1, 1, 1, 0), 1, struct.pack("3q", 3, 4, 0)),
        (1, 9, (5, 1, 1, 64, 1, 1, 1024), 1, struct.pack("3q", 1 << 62, -1, 7)),
    ]


def test_threads_have_arguments_of_their_own() -> None:
    """One that is between two launches of a call does not see another's addresses."""
    driver = Driver(SIZES)
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
    replay.enqueue((9 << 10, 10 << 10, 11 << 10, 12 << 10), 0)  # leaves arguments for one
    driver.found.clear()
    addresses = (1 << 10, 2 << 10, 3 << 10, 4 << 10), 0
    slow = threading.Thread(target=replay.enqueue, args=addresses, name="slow")
    slow.start()
    assert inside.wait(10)
    replay.enqueue((5 << 10, 6 << 10, 7 << 10, 8 << 10), 0)
    go_on.set()
    slow.join()
    for handle, wanted in (
        (1, [(1 << 10) + 12, (5 << 10) + 12]),
        (2, [(2 << 10) - 8, (6 << 10) - 8]),
    ):
        starts = [struct.unpack_from("q", one[4])[0] for one in driver.found if one[0] == handle]
        assert sorted(starts) == wanted


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
