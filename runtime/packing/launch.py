"""A task of packing one or two operands, and the launches that carry it out.

A `PackingTask` says which operands are packed and how they are split. A `PackingConfig` records all
of the launches but addresses: `readers` makes one for a task. `prepare` compiles the kernel that it
names.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.arrays import DeviceMemory
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing.operand import (
    DevicePacked,
    Form,
    Layout,
    Operand,
    Side,
    layout,
    side,
    up,
)
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Splitter

PACKAGE = "mixpert_py.runtime.packing"
Which = Literal["both", "left", "right"]


class PackingTask(NamedTuple):
    """The operands of a product that are packed, by their forms: A by rows, B by columns, or both.

    result: the type of the product. device: the number of the GPU.
    """

    scheme: Scheme
    which: Which
    forms: tuple[Form, ...]
    result: str
    device: int = 0

    @property
    def k(self) -> int:
        return self.forms[0].k

    @property
    def block(self) -> int:
        """The segment of K that shares a scale."""
        return self.scheme.lengths(self.k)[1]

    @property
    def splitters(self) -> tuple[Splitter, ...]:
        """The splitter of each operand."""
        if self.which == "both":
            return self.scheme.left, self.scheme.right
        return (self.scheme.left if self.which == "left" else self.scheme.right,)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layout of each packed operand. Raises ShapeError where an operand is empty."""
        for x in self.forms:
            if x.batch == 0 or x.rows == 0 or x.k == 0:
                raise ShapeError(f"nothing to pack in {x.batch} × {x.rows} rows of {x.k}")
        return tuple(
            layout(splitter, x.batch, x.rows, x.k, self.block)
            for splitter, x in zip(self.splitters, self.forms, strict=True)
        )

    @property
    def sides(self) -> tuple[Side, ...]:
        """The description of each operand that a kernel is compiled for."""
        return tuple(
            side(splitter, x.memory, self.result)
            for splitter, x in zip(self.splitters, self.forms, strict=True)
        )

    def each(self) -> tuple["PackingTask", ...]:
        """A task for each operand."""
        if self.which != "both":
            return (self,)
        left, right = self.forms
        return (
            self._replace(which="left", forms=(left,)),
            self._replace(which="right", forms=(right,)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PackingConfig:
    """The launches of a task, but for addresses and for what their kernel is compiled to.

    kernel: the module and the factory, in this package; constants: the factory's arguments. words:
    the integers that follow each operand's addresses; of addresses the kernel takes the first
    `pointers` of slices, scales, flags and outliers, then those of its `between` in the allocation,
    in bytes from its start. lengths: the integers that follow both operands. shared: bytes of
    shared memory; most_shared: the bytes that launches of the kernel may ask for, where that is
    more. starts: the start of each operand in the allocation; bytes: its size. phases: the last
    integer of each launch, one after another; empty: one launch without it.
    """

    task: PackingTask
    layouts: tuple[Layout, ...]
    kernel: tuple[str, str]
    constants: tuple[Any, ...]
    words: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    grid: int
    threads: int
    shared: int = 0
    most_shared: int = 0
    pointers: int = 3
    between: tuple[tuple[int, ...], ...] = ((), ())
    more_bytes: int = 0
    phases: tuple[int, ...] = ()

    @property
    def starts(self) -> tuple[int, ...]:
        """The start of each packed operand in the allocation, and the end of the last."""
        return tuple(accumulate((up(place.bytes) for place in self.layouts), initial=0))

    @property
    def bytes(self) -> int:
        """The size of the allocation."""
        return self.starts[-1] + self.more_bytes


class PackingLaunch(NamedTuple):
    """The launches of a task on the device that they were prepared for. beside: whether the first
    one may run beside the launch before it.
    """

    config: PackingConfig
    kernel: Kernel
    beside: bool
    bytes: int

    def pack(
        self,
        operands: tuple[Operand, ...],
        stream: Stream,
        memory: DeviceMemory | None = None,
        gate: int = 0,
    ) -> tuple[DevicePacked, ...]:
        """Enqueues on a stream of the device that this was prepared for, which is the current one.

        memory: of at least `bytes`; None for new one. gate: see `intrinsics.launched`. Flagged rows
        of one block have units of zero; their slices hold anything where the kernel is one for
        whole rows and they are digits, and else zeros. Does not wait for the device.
        """
        how = self.config
        memory = memory or allocate(self.bytes, stream)
        packed = []
        words: tuple[int, ...] = ()
        for x, splitter, place, offset, between, own in zip(
            *(operands, how.task.splitters, how.layouts, how.starts, how.between, how.words),
            strict=False,
        ):
            start = memory.ptr + offset
            outliers = start + place.outliers if place.blocks > 1 else 0
            at = start, start + place.scales, start + place.flags, outliers
            packed.append(DevicePacked(x, splitter, place, *at, memory))
            words += (x.address, *at[: how.pointers], *(memory.ptr + it for it in between), *own)
        if len(packed) == 1:  # it stands for both: no block looks at the second
            words += words
        words += how.lengths
        beside = int(self.beside)
        for phase in how.phases or (None,):
            last = () if phase is None else (phase,)
            values = (gate, beside, *words, *last)
            self.kernel.launch_words(how.grid, how.threads, values, how.shared, stream)
            beside = 0
        return tuple(packed)


def prepare(config: PackingConfig, beside: bool = False) -> PackingLaunch:
    """The launches on the current device. Raises DeviceError where the kernel does not compile."""
    module, factory = config.kernel
    most = config.most_shared or config.shared
    kernel = numba_kernel(f"{PACKAGE}.{module}", factory, config.constants, most)
    return PackingLaunch(config, kernel, beside, config.bytes)
