"""Compiled kernels, launched without the checks and conversions of CuPy's own launches."""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel loaded on one device. `module` keeps the code alive."""

    name: str
    handle: int
    module: Any
    driver: Any

    def launch(
        self,
        grid: int,
        block: int,
        signature: "Signature",
        values: Iterable[float],
        shared: int,
        stream: int,
    ) -> None:
        """Enqueue on a stream. values: what lies in the arguments, by the signature's format.

        A CuPy launch converts and checks each argument, which costs more than the kernel does.
        """
        free = signature.free
        try:
            arguments = free.pop()
        except IndexError:
            arguments = Arguments.of(signature)
        arguments.fill(arguments.memory, 0, *values)
        where = arguments.where
        self.driver.launchKernel(self.handle, grid, 1, 1, block, 1, 1, shared, stream, where, 0)
        free.append(arguments)

    def launch_words(
        self, grid: int, block: int, words: tuple[int, ...], shared: int, stream: int
    ) -> None:
        """The same for a kernel that takes addresses and 64-bit integers only."""
        self.launch(grid, block, _words(len(words)), words, shared, stream)


class Arguments(NamedTuple):
    """Memory for so many arguments of a launch, which copies them, and the pointers to them.

    To make it takes longer than to launch: it is kept. Whoever takes it has it alone, be it another
    thread or what interrupts this one.
    """

    fill: Callable[..., None]
    memory: Any
    pointers: Any
    where: int

    @classmethod
    def of(cls, signature: "Signature") -> "Arguments":
        memory = ctypes.create_string_buffer(signature.format.size)
        start = ctypes.addressof(memory)
        offsets = signature.offsets
        pointers = (ctypes.c_void_p * len(offsets))(*[start + offset for offset in offsets])
        return cls(signature.format.pack_into, memory, pointers, ctypes.addressof(pointers))


class Signature(NamedTuple):
    """What a kernel takes. format: of all arguments; offsets: where in it each begins.

    free: memory for arguments that no launch is using.
    """

    format: Struct
    offsets: tuple[int, ...]
    free: list[Arguments]

    @classmethod
    def of(cls, format: str, offsets: tuple[int, ...] = (0,)) -> "Signature":
        return cls(Struct(format), offsets, [])


@cache
def _words(count: int) -> Signature:
    return Signature.of(f"{count}q", tuple(range(0, 8 * count, 8)))
