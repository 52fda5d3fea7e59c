"""Compiled kernels, launched without the checks and conversions of CuPy's own launches."""

import ctypes
from collections.abc import Callable, Sequence
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
        arguments: Sequence[Any],
        *,
        shared: int = 0,
        stream: int = 0,
    ) -> None:
        """Enqueue on a stream. arguments: ctypes values (or structures), as the kernel takes them.

        A CuPy launch converts and checks each argument, which costs more than the kernel does.
        """
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        where = ctypes.addressof(pointers)
        self.driver.launchKernel(self.handle, grid, 1, 1, block, 1, 1, shared, stream, where, 0)

    def launch_words(
        self, grid: int, block: int, words: tuple[int, ...], shared: int, stream: int
    ) -> None:
        """The same for a kernel that takes addresses and 64-bit integers only: one buffer."""
        pool = _arguments(len(words))
        try:
            arguments = pool.pop()
        except IndexError:
            arguments = Arguments.of(len(words))
        arguments.fill(arguments.values, 0, *words)
        where = arguments.where
        self.driver.launchKernel(self.handle, grid, 1, 1, block, 1, 1, shared, stream, where, 0)
        pool.append(arguments)


class Arguments(NamedTuple):
    """Memory for so many arguments of a launch, which copies them, and the pointers to them.

    To make it takes longer than to launch: it is kept. Whoever takes it has it alone, be it another
    thread or what interrupts this one.
    """

    fill: Callable[..., None]
    values: Any
    pointers: Any
    where: int

    @classmethod
    def of(cls, count: int) -> "Arguments":
        values = (ctypes.c_int64 * count)()
        start = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * count)(*range(start, start + 8 * count, 8))
        return cls(Struct(f"{count}q").pack_into, values, pointers, ctypes.addressof(pointers))


@cache
def _arguments(count: int) -> list[Arguments]:
    """Those not in use."""
    return []
