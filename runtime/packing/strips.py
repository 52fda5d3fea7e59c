"""The general packing kernel's launches: every splitter, any block of K, any strides."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.packing.layout import (
    HOPPER,
    MOST_THREADS,
    REDUCTIONS,
    DevicePacked,
    Layout,
    covers,
    launch,
    layout,
    up,
)
from mixpert_py.runtime.packing.operand import Form, Operand
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.splitter import Digits, Splitter

KERNELS = "mixpert_py.runtime.packing.strip_kernels"
POINTERS = 6  # of each operand
NOWHERE = (0,) * POINTERS


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A launch, but for addresses. words: the integers that follow each operand's addresses."""

    sides: tuple[Side, Side]
    layouts: tuple[Layout, ...]
    grid: int
    threads: int
    shared: int
    words: tuple[tuple[int, ...], tuple[int, ...]]


class Strips(NamedTuple):
    """The launch that splits one operand or two, but for addresses; all that does not change with
    them is here, since packing a small product takes less than to find it out.

    sides: of each operand its splitter, layout, and where its parts begin in an allocation of
    `bytes`, in the order of DevicePacked; None for those that it has not. alloc: CuPy's.
    """

    kernel: Kernel
    how: Packing
    sides: tuple[tuple[Splitter, Layout, tuple[int | None, ...]], ...]
    bytes: int
    alloc: Any

    def pack(
        self, operands: tuple[Operand, ...], stream: int, memory: Any = None, gate: int = 0
    ) -> tuple[DevicePacked, ...]:
        """As `WholeRows.pack`."""
        memory = memory or self.alloc(self.bytes)
        start = memory.ptr
        packed, addresses = [], []
        for x, (splitter, place, offsets) in zip(operands, self.sides, strict=True):
            parts = [0 if offset is None else start + offset for offset in offsets]
            slices, scales, flags, outliers, norms = parts
            packed.append(
                DevicePacked(x, splitter, place, slices, scales, flags, outliers, norms, memory)
            )
            addresses.append((x.address, *parts))
        how = self.how
        first, second = how.words
        other = addresses[1] if len(addresses) > 1 else NOWHERE
        words = (*addresses[0], *first, *other, *second)
        self.kernel.launch_words(how.grid, how.threads, words, how.shared, stream, gate)
        return tuple(packed)


def prepared_strips(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    measure: bool,
    device: int,
    *,
    has_gate: bool = False,
) -> Strips:
    """For operands of these forms, on the current device, whose number this is.

    block: stretch of K per scale. result: the type of the product. has_gate: see `ptx.gated`.
    Raises ShapeError where an operand is empty, DeviceError where the kernel does not compile.
    """
    import cupy

    # What a block may have, if it asks.
    shared = int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])
    how = packing(splitters, forms, block, result, rule, measure, shared)
    kernel = numba_kernel(KERNELS, "pack_kernel", how.sides, shared - REDUCTIONS, has_gate=has_gate)
    starts = [0, *accumulate(up(place.bytes) for place in how.layouts)]
    sides = zip(splitters, how.layouts, starts, strict=False)
    parts = tuple((s, place, _offsets(place, at, measure)) for s, place, at in sides)
    return Strips(kernel, how, parts, starts[-1], cupy.cuda.alloc)


def _offsets(place: Layout, start: int, measure: bool) -> tuple[int | None, ...]:
    offsets = (
        *(0, place.scales, place.flags),
        *(place.outliers if place.blocks > 1 else None, place.norms if measure else None),
    )
    return tuple(None if offset is None else start + offset for offset in offsets)


def packing(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    measure: bool,
    shared: int = HOPPER,
    threads: int = 0,
) -> Packing:
    """For one operand or two. shared: bytes of shared memory that the device lets a block have;
    threads: to a block, 0 for what suits them.

    Raises ShapeError where an operand is empty.
    """
    for x in forms:
        if x.batch == 0 or x.rows == 0 or x.k == 0:
            raise ShapeError(f"nothing to pack in {x.batch} × {x.rows} rows of {x.k}")
    places = tuple(
        layout(splitter, x.batch, x.rows, x.k, block, measure)
        for splitter, x in zip(splitters, forms, strict=True)
    )
    groups = tuple(s.group if isinstance(s, Digits) else 1 for s in splitters)
    itemsizes = tuple(x.itemsize for x in forms)
    mappings = tuple(x.mapping(places[0].block) for x in forms)
    covered = covers(places, groups, itemsizes, mappings, shared)
    sides = [
        side(splitter, x.memory, result, rule, measure)
        for splitter, x in zip(splitters, forms, strict=True)
    ]
    how = launch(places[0], covered, max(itemsizes), _most(sides), threads, shared)
    strips = [one.strips * x.batch for one, x in zip(covered, forms, strict=True)]
    words = [
        (x.rows, x.batch_stride, x.row_stride, x.k_stride, one.mapping, one.height_log, one.strips)
        for x, one in zip(forms, covered, strict=True)
    ]
    other = words[1] if len(words) > 1 else (0, 0, 0, 0, 0, 0, 1)
    place = places[0]
    lengths = place.k, place.block, place.padded_block, place.blocks, place.spans, place.steps
    common = *lengths, how.share_log, how.cached, how.threads_log
    return Packing(
        (sides[0], sides[-1]),
        places,
        sum(strips),
        1 << how.threads_log,
        how.shared,
        ((*words[0], strips[0]), (*other, *common)),
    )


def _most(sides: list[Side]) -> int:
    """Threads of a block. Each has 128 registers of a block of 512, and not all kernels can do with
    that. Tiles want small blocks, that wait for one another at every stretch of K.
    """
    if any(one.group > 1 for one in sides):
        return MOST_THREADS // 4
    lean = sides[0] == sides[-1] and sides[0].wide == "float32" and not sides[0].measure
    return MOST_THREADS if lean else MOST_THREADS // 2
