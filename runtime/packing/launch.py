"""A launch that packs one or two operands: its content, its configuration, and the launch.

A `PackingTask` says which operands are packed and how they are split. A `PackingConfig` records
all of the launch but addresses: `rows` and `blocks` make one for a task. `prepare` compiles the
kernel that it names, for a `PackingLaunch`. That keeps all that does not change with addresses,
since packing a small product takes less time than to find it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType
from typing import Any, Literal, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.arrays import DeviceMemory
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel, words_of
from mixpert_py.runtime.kernels.ptx import Order
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing.operand import (
    VECTOR,
    DevicePacked,
    Form,
    Layout,
    Operand,
    layout,
    up,
)
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Splitter

PACKAGE = "mixpert_py.runtime.packing"
Which = Literal["both", "left", "right"]
# The words of what a launch needs besides its operands, of each operand and at the end, and an
# owner of memory that has to live until it is enqueued.
Extra = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], Any]
Extras = Callable[[int, Stream, ModuleType], Extra]


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
    """The launch of a task, but for addresses and for what its kernel is compiled to.

    kernel: the module and the factory, in this package; constants: the factory's arguments. words:
    the integers that follow each operand's addresses; of addresses the kernel takes the first
    `pointers` of slices, scales, flags and outliers. lengths: the integers that follow both
    operands. shared: bytes of shared memory; most_shared: the bytes that launches of the kernel may
    ask for, where that is more. starts: where each operand begins in the allocation, and bytes: its
    size, where there is more in it than packed operands. extras: a function that gives what else
    the launch needs, from the start of the allocation, a stream and CuPy's module `cuda`.
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
    starts: tuple[int, ...] = ()
    bytes: int = 0
    extras: Extras | None = None


class Part(NamedTuple):
    """An operand of a launch. offsets: where slices, scales, flags and outliers begin in the
    allocation; None for a missing part.
    """

    splitter: Splitter
    layout: Layout
    offsets: tuple[int | None, ...]
    words: tuple[int, ...]


class PackingLaunch(NamedTuple):
    """A launch on the device that it was prepared for. cuda: CuPy's module of that name."""

    kernel: Kernel
    grid: int
    threads: int
    shared: int
    pointers: int
    parts: tuple[Part, ...]
    lengths: tuple[int, ...]
    extras: Extras | None
    bytes: int
    cuda: ModuleType

    def pack(
        self,
        operands: tuple[Operand, ...],
        stream: Stream,
        memory: DeviceMemory | None = None,
        gate: int = 0,
    ) -> tuple[DevicePacked, ...]:
        """Enqueues on a stream of the device that this was prepared for, which is the current one.

        memory: of at least `bytes`; None for new one. gate: see `Kernel.launch_words`. Flagged rows
        of one block have units of zero; their slices hold anything where the kernel is one for
        whole rows and they are digits, and else zeros. Does not wait for the device.
        """
        memory = memory or allocate(self.bytes, stream)
        start = memory.ptr
        between: tuple[tuple[int, ...], ...] = ((), ())
        last: tuple[int, ...] = ()
        if self.extras is not None:
            between, last, _owner = self.extras(start, stream, self.cuda)
        packed = []
        words: tuple[int, ...] = ()
        for x, part, more in zip(operands, self.parts, between, strict=False):
            at = [0 if offset is None else start + offset for offset in part.offsets]
            packed.append(DevicePacked(x, part.splitter, part.layout, *at, memory))
            words += (x.address, *at[: self.pointers], *more, *part.words)
        if len(packed) == 1:  # it stands for both: no block looks at the second
            words += words
        words += (*self.lengths, *last)
        kernel = self.kernel
        if kernel.gated:
            words = (*words, gate)
        kernel.launch(self.grid, self.threads, words_of(len(words)), words, self.shared, stream)
        return tuple(packed)


def prepare(config: PackingConfig, order: Order = "after", has_gate: bool = False) -> PackingLaunch:
    """The launch on the current device. order: see `ptx.ordered`; has_gate: see `ptx.gated`.

    Raises DeviceError where the kernel does not compile.
    """
    import cupy

    module, factory = config.kernel
    most = config.most_shared or config.shared
    kernel = numba_kernel(
        f"{PACKAGE}.{module}", factory, config.constants, most, order=order, has_gate=has_gate
    )
    task, layouts = config.task, config.layouts
    starts = config.starts or (0, *accumulate(up(place.bytes) for place in layouts))
    parts = tuple(
        Part(splitter, place, _offsets(place, start), words)
        for splitter, place, start, words in zip(
            task.splitters, layouts, starts, config.words, strict=False
        )
    )
    return PackingLaunch(
        *(kernel, config.grid, config.threads, config.shared, config.pointers, parts),
        *(config.lengths, config.extras, config.bytes or starts[-1], cupy.cuda),
    )


def _offsets(place: Layout, start: int) -> tuple[int | None, ...]:
    return (
        *(start, start + place.scales, start + place.flags),
        start + place.outliers if place.blocks > 1 else None,
    )


def has_vectors(x: Form, stride: int) -> bool:
    """Whether lines `stride` apart begin at multiples of 16 bytes."""
    return x.aligned and (stride | x.batch_stride) * x.itemsize % VECTOR == 0


def row_words(x: Form, stride: int, count: int) -> tuple[int, ...]:
    """The integers that the kernels of whole rows take after an operand's addresses. stride: in
    elements, from one row, or one position of K, to the next; count: strips or panels of one
    matrix.
    """
    return x.rows, x.batch_stride, stride, int(has_vectors(x, stride)), count
