"""Launches: what the driver finds where it is told to look."""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from mixpert_py.runtime.kernels.kernel import Kernel, Signature


class Driver:
    """Reads arguments as the real one does: through an array of pointers to them."""

    def __init__(self, sizes: list[int], meanwhile: Callable[[], None] = lambda: None) -> None:
        self.sizes, self.meanwhile = sizes, meanwhile
        self.read: list[list[bytes]] = []
        self.shapes: list[tuple[int, ...]] = []

    def launchKernel(self, handle: int, *given: int) -> None:  # noqa: N802, the driver's name
        *shape, where, extra = given
        self.meanwhile()
        pointers = (ctypes.c_void_p * len(self.sizes)).from_address(where)
        self.read.append(
            [ctypes.string_at(p, size) for p, size in zip(pointers, self.sizes, strict=True)]
        )
        self.shapes.append((handle, *shape))
        assert extra == 0


def kernel(driver: Any) -> Kernel:
    return Kernel("k", 77, None, driver)


def test_words_are_arguments_of_their_own() -> None:
    driver = Driver([8] * 3)
    kernel(driver).launch_words(5, 64, (1 << 62, -1, 3), 1024, 9)
    assert [struct.unpack("q", one)[0] for one in driver.read[0]] == [1 << 62, -1, 3]
    assert driver.shapes == [(77, 5, 1, 1, 64, 1, 1, 1024, 9)]


def test_a_structure_is_one_argument() -> None:
    driver = Driver([24])
    signature = Signature.of("P2id")
    for value in (1.5, 2.5):
        kernel(driver).launch(1, 32, signature, (123, 4, -5, value), 0, 0)
    assert [struct.unpack("P2id", one) for (one,) in driver.read] == [
        (123, 4, -5, 1.5),
        (123, 4, -5, 2.5),
    ]
    assert len(signature.free) == 1  # the second launch took what the first had left


def test_a_launch_during_another_has_arguments_of_its_own() -> None:
    driver = Driver([8] * 2)
    inner = Driver([8] * 2)
    driver.meanwhile = lambda: kernel(inner).launch_words(1, 1, (3, 4), 0, 0)
    kernel(driver).launch_words(1, 1, (1, 2), 0, 0)
    for one, wanted in ((driver, [1, 2]), (inner, [3, 4])):
        assert [struct.unpack("q", word)[0] for word in one.read[0]] == wanted
