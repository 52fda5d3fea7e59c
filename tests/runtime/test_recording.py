"""Recorded launches: made anew at the addresses that each call gives."""

import ctypes
import os
import struct
import threading
from typing import Any

import pytest

from mixpert_py.runtime.kernels.kernel import CONFIG_BYTES, ArgumentLayout, Kernel, words_of
from mixpert_py.runtime.kernels.recording import (
    LEFT,
    RESULT,
    RIGHT,
    UNIT,
    WORKSPACE,
    Recording,
    Replay,
    allocate,
    clear,
    parted,
    places_of,
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
    values = (RIGHT, 3, 2.5, RESULT + 8, 9)
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
        assert driver.found == [
            ("clear", stream, memory + 1024, 0, 8),
            (1, stream, (5, 1, 1, 64, 1, 1, 1024), 1, struct.pack("3q", a + 12, memory, -7)),
            (2, stream, (7, 1, 1, 32, 1, 1, 0), 0, struct.pack("Pi4xdPi4x", b, 3, 2.5, c + 8, 9)),
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
    for handle, wanted in ((1, [(1 << 10) + 12, (5 << 10) + 12]), (2, [2 << 10, 6 << 10])):
        starts = [struct.unpack_from("q", one[4])[0] for one in driver.found if one[0] == handle]
        assert sorted(starts) == wanted


def test_an_address_is_none_of_the_numbers_that_kernels_take() -> None:
    assert parted(RESULT + 5) == (RESULT, 5)
    assert parted(WORKSPACE + (1 << 50)) == (WORKSPACE, 1 << 50)
    bits = [struct.unpack("q", struct.pack("d", x))[0] for x in (1.0, -1.0, 1e-190, 1e300)]
    for value in (0, -1, -(1 << 57), (1 << 57) - 1, 1 << 62, 2.5, *bits):
        assert parted(value) == (0, 0)


@pytest.mark.parametrize("format", ["3q", "PPqqiiPPqqiiPPqqqqddiiiiiiPiiPi4x", "i4xdi4xP", "iiid"])
def test_places_are_those_of_struct(format: str) -> None:
    places = places_of(format, 0)
    packed = struct.pack(format, *range(1, len(places) + 1))
    for number, place in enumerate(places, 1):
        (one,) = struct.unpack_from("i", packed, place)
        is_double = one == 0
        assert is_double or one == number
        if is_double:
            assert struct.unpack_from("d", packed, place) == (number,)


def test_words_lie_behind_the_launchs_shape() -> None:
    assert words_of(3).places == (CONFIG_BYTES, CONFIG_BYTES + 8, CONFIG_BYTES + 16)


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
