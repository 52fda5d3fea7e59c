"""Launches: what the driver finds where it is told to look."""

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from mixpert_py.runtime.kernels.kernel import CONFIG, CONFIG_BYTES, ArgumentLayout, Kernel


class Config(NamedTuple):
    """As cuda.h has it."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    attributes: list[tuple[int, int]]


class Driver:
    """Reads as the real one does: a structure, and arguments through an array of pointers."""

    def __init__(self, sizes: list[int], meanwhile: Callable[[], None] = lambda: None) -> None:
        self.sizes, self.meanwhile = sizes, meanwhile
        self.read: list[list[bytes]] = []
        self.configs: list[Config] = []

    def cuLaunchKernelEx(self, config: int, handle: int, where: int, extra: None) -> int:  # noqa: N802
        self.meanwhile()
        pointers = (ctypes.c_void_p * len(self.sizes)).from_address(where)
        self.read.append(
            [ctypes.string_at(p, size) for p, size in zip(pointers, self.sizes, strict=True)]
        )
        *shape, stream, first, count = struct.unpack("7I4xQQI4x", ctypes.string_at(config, 56))
        attributes = [
            struct.unpack("I4xI", ctypes.string_at(first + 72 * i, 12)) for i in range(count)
        ]
        grid, block = tuple(shape[:3]), tuple(shape[3:6])
        self.configs.append(Config(grid, block, shape[6], stream, attributes))
        assert handle == 77
        assert extra is None
        return 0


def kernel(driver: Any, early: bool = False) -> Kernel:
    return Kernel("k", 77, None, driver, early)


def test_words_are_arguments_of_their_own() -> None:
    driver = Driver([8] * 3)
    kernel(driver).launch_words(5, 64, (1 << 62, -1, 3), 1024, 9)
    assert [struct.unpack("q", one)[0] for one in driver.read[0]] == [1 << 62, -1, 3]
    assert driver.configs == [Config((5, 1, 1), (64, 1, 1), 1024, 9, [])]


def test_a_kernel_that_waits_by_itself_may_be_started_early() -> None:
    driver = Driver([8])
    kernel(driver, early=True).launch_words(1, 32, (0,), 0, 0)
    serialization = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert driver.configs[0].attributes == [(serialization, 1)]


def test_a_structure_is_one_argument() -> None:
    driver = Driver([24])
    signature = ArgumentLayout.of("P2id")
    for value in (1.5, 2.5):
        kernel(driver).launch(1, 32, signature, (123, 4, -5, value), 0, 0)
    assert [struct.unpack("P2id", one) for (one,) in driver.read] == [
        (123, 4, -5, 1.5),
        (123, 4, -5, 2.5),
    ]
    assert signature.size == 24
    assert len(signature.free) == 1  # the second launch took what the first had left


def test_a_launch_during_another_has_arguments_of_its_own() -> None:
    driver = Driver([8] * 2)
    inner = Driver([8] * 2)
    driver.meanwhile = lambda: kernel(inner).launch_words(1, 1, (3, 4), 0, 0)
    kernel(driver).launch_words(1, 1, (1, 2), 0, 0)
    for one, wanted in ((driver, [1, 2]), (inner, [3, 4])):
        assert [struct.unpack("q", word)[0] for word in one.read[0]] == wanted


def test_the_shape_of_a_launch_lies_as_cuda_has_it() -> None:
    assert struct.calcsize(CONFIG) == CONFIG_BYTES
