"""One launch that packs one operand, or two: how it is planned, prepared for a device, and made.

A plan says all but addresses: `rows`, `clusters`, `panels`, `strips` and `tiles` make one each for
operands of given forms. `prepare` compiles the kernel that it names. What does not change with
addresses is kept in the launch, since packing a small product takes less than to find it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError
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
from mixpert_py.runtime.splitter import OutlierRule, Splitter

PACKAGE = "mixpert_py.runtime.packing"
# The words of what a launch needs besides its operands, of each operand and at the end, and an
# owner of memory that has to live until it is enqueued.
Extra = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], Any]
Extras = Callable[[int, Stream, Any], Extra]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A launch, but for addresses and for what it is compiled to.

    kernel: the module and the factory, in this package, and its constants. words: the integers
    that follow each operand's addresses; of addresses the kernel takes the first `pointers` of
    slices, scales, flags, outliers and norms. lengths: the integers that follow both operands.
    shared: bytes of shared memory; most_shared: that launches of the kernel may ask for, where that
    is more. bytes: of an allocation for all operands. extras: of the start of the allocation, a
    stream and CuPy's module `cuda`, what the launch needs besides.
    """

    kernel: tuple[str, str]
    constants: tuple[Any, ...]
    splitters: tuple[Splitter, ...]
    layouts: tuple[Layout, ...]
    words: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    grid: int
    threads: int
    shared: int = 0
    most_shared: int = 0
    pointers: int = 3
    measure: bool = False
    starts: tuple[int, ...] = ()
    bytes: int = 0
    extras: Extras | None = None


class Part(NamedTuple):
    """One operand of a launch. offsets: where slices, scales, flags, outliers and norms begin in
    the allocation; None for what there is none of.
    """

    splitter: Splitter
    layout: Layout
    offsets: tuple[int | None, ...]
    words: tuple[int, ...]


class Launch(NamedTuple):
    """The launch of a plan, on the device that it was prepared for. cuda: CuPy's module."""

    kernel: Kernel
    grid: int
    threads: int
    shared: int
    pointers: int
    parts: tuple[Part, ...]
    lengths: tuple[int, ...]
    extras: Extras | None
    bytes: int
    cuda: Any

    def pack(
        self, operands: tuple[Operand, ...], stream: Stream, memory: Any = None, gate: int = 0
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
            slices, scales, flags, outliers, norms = at
            place = part.splitter, part.layout, slices, scales, flags, outliers, norms, memory
            packed.append(DevicePacked(x, *place))
            words += (x.address, *at[: self.pointers], *more, *part.words)
        if len(packed) == 1:  # it stands for both: no block looks at the second
            words += words
        words += (*self.lengths, *last)
        kernel = self.kernel
        if kernel.gated:
            words = (*words, gate)
        kernel.launch(self.grid, self.threads, words_of(len(words)), words, self.shared, stream)
        return tuple(packed)


def prepare(plan: Plan, order: Order = "after", has_gate: bool = False) -> Launch:
    """The launch on the current device. order: see `ptx.ordered`; has_gate: see `ptx.gated`.

    Raises DeviceError where the kernel does not compile.
    """
    import cupy

    module, factory = plan.kernel
    most = plan.most_shared or plan.shared
    kernel = numba_kernel(
        f"{PACKAGE}.{module}", factory, plan.constants, most, order=order, has_gate=has_gate
    )
    starts = plan.starts or (0, *accumulate(up(place.bytes) for place in plan.layouts))
    parts = tuple(
        Part(splitter, place, _offsets(place, start, plan.measure), words)
        for splitter, place, start, words in zip(
            plan.splitters, plan.layouts, starts, plan.words, strict=False
        )
    )
    return Launch(
        *(kernel, plan.grid, plan.threads, plan.shared, plan.pointers, parts, plan.lengths),
        *(plan.extras, plan.bytes or starts[-1], cupy.cuda),
    )


def _offsets(place: Layout, start: int, measure: bool) -> tuple[int | None, ...]:
    return (
        *(start, start + place.scales, start + place.flags),
        start + place.outliers if place.blocks > 1 else None,
        start + place.norms if measure else None,
    )


def places(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    block: int = 0,
    measure: bool = False,
) -> tuple[tuple[Layout, ...], tuple[Side, ...]]:
    """Layouts and descriptions of operands. block: the segment of K per scale, 0 for all of it.

    Raises ShapeError where an operand is empty.
    """
    for x in forms:
        if x.batch == 0 or x.rows == 0 or x.k == 0:
            raise ShapeError(f"nothing to pack in {x.batch} × {x.rows} rows of {x.k}")
    pairs = list(zip(splitters, forms, strict=True))
    layouts = [layout(one, x.batch, x.rows, x.k, block or x.k, measure) for one, x in pairs]
    sides = [side(one, x.memory, result, rule, measure) for one, x in pairs]
    return tuple(layouts), tuple(sides)


def has_vectors(x: Form, stride: int) -> bool:
    """Whether lines `stride` apart begin at multiples of 16 bytes."""
    return x.aligned and (stride | x.batch_stride) * x.itemsize % VECTOR == 0
