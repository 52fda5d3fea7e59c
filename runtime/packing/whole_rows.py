"""A launch that splits operands by whole rows, with nothing in memory but what it packs."""

from itertools import accumulate
from typing import Any, NamedTuple

from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.packing.layout import DevicePacked, Layout, up
from mixpert_py.runtime.packing.operand import Operand
from mixpert_py.runtime.splitter import Splitter


class WholeRows(NamedTuple):
    """The launch for one operand or two, but for addresses.

    sides: of each operand its splitter, layout, where it begins in an allocation of `bytes`, and
    the integers that follow its addresses. lengths: the integers that follow both operands. shared:
    bytes of shared memory. alloc: CuPy's.
    """

    kernel: Kernel
    grid: int
    threads: int
    shared: int
    sides: tuple[tuple[Splitter, Layout, int, tuple[int, ...]], ...]
    lengths: tuple[int, ...]
    bytes: int
    alloc: Any

    def pack(
        self, operands: tuple[Operand, ...], stream: int, memory: Any = None, gate: int = 0
    ) -> tuple[DevicePacked, ...]:
        """On a stream of the device that this was prepared for, which is the current one.

        memory: of at least `bytes`; None for new one. gate: see `Kernel.launch_words`. Rows that
        are flagged hold anything where slices are digits, zeros where they are floats; the
        significand of their unit is zero. Does not wait for the device.
        """
        memory = memory or self.alloc(self.bytes)
        packed = []
        words: tuple[int, ...] = ()
        for x, (splitter, place, begin, its) in zip(operands, self.sides, strict=True):
            start = memory.ptr + begin
            scales, flags = start + place.scales, start + place.flags
            packed.append(DevicePacked(x, splitter, place, start, scales, flags, 0, 0, memory))
            words += (x.address, start, scales, flags, *its)
        if len(packed) == 1:
            words += words
        words += self.lengths
        self.kernel.launch_words(self.grid, self.threads, words, self.shared, stream, gate)
        return tuple(packed)


def whole_rows(
    kernel: Kernel,
    splitters: tuple[Splitter, ...],
    layouts: tuple[Layout, ...],
    words: tuple[tuple[int, ...], ...],
    lengths: tuple[int, ...],
    *,
    grid: int,
    threads: int,
    shared: int,
) -> WholeRows:
    """On the current device. words: of each operand, those that follow its addresses."""
    import cupy

    starts = tuple(accumulate((up(place.bytes) for place in layouts), initial=0))
    sides = tuple(zip(splitters, layouts, starts[:-1], words, strict=True))
    return WholeRows(kernel, grid, threads, shared, sides, lengths, starts[-1], cupy.cuda.alloc)
