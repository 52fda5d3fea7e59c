"""The general packing kernel's launches: every splitter, any block of K, any strides."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.outliers import OutlierRule
from mixpert_py.runtime.packing.device_packed import DevicePacked
from mixpert_py.runtime.packing.layout import (
    HOPPER,
    MOST_THREADS,
    REDUCTIONS,
    Layout,
    covers,
    launch,
    layout,
)
from mixpert_py.runtime.packing.operand import Form, Operand
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.splitter import Digits, Splitter

KERNELS = "mixpert_py.runtime.packing.strip_kernels"
POINTERS = 6  # of each operand


def pack_strips(
    operands: tuple[Operand, ...],
    splitters: tuple[Splitter, ...],
    block: int,
    result: str,
    *,
    rule: OutlierRule,
    measure: bool,
    stream: int,
) -> tuple[DevicePacked, ...]:
    """One operand or two, split by one launch on a stream of the current device.

    result: the type of the product. Raises ShapeError where an operand is empty.
    """
    import cupy

    forms = tuple(x.form for x in operands)
    device = cupy.cuda.runtime.getDevice()
    how, kernel = _prepared(splitters, forms, block, result, rule, measure, device)
    alloc = cupy.cuda.alloc
    packed = tuple([_allocated(x, how, i, alloc) for i, x in enumerate(operands)])
    first, second = how.words
    other = _addresses(packed[1]) if len(packed) > 1 else (0,) * POINTERS
    words = (*_addresses(packed[0]), *first, *other, *second)
    kernel.launch_words(how.grid, how.threads, words, how.shared, stream)
    return packed


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A launch, but for addresses. words: the integers that follow each operand's addresses."""

    sides: tuple[Side, Side]
    splitters: tuple[Splitter, ...]
    layouts: tuple[Layout, ...]
    grid: int
    threads: int
    shared: int
    words: tuple[tuple[int, ...], tuple[int, ...]]


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
        splitters,
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


@lru_cache(4096)
def _prepared(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    measure: bool,
    device: int,
) -> tuple[Packing, Kernel]:
    """The launch on this device, which is the current one, and its kernel."""
    import cupy

    # What a block may have, if it asks.
    shared = int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])
    how = packing(splitters, forms, block, result, rule, measure, shared)
    return how, numba_kernel(KERNELS, "pack_kernel", how.sides, shared - REDUCTIONS)


def _allocated(x: Operand, how: Packing, which: int, alloc: Callable[[int], Any]) -> DevicePacked:
    place = how.layouts[which]
    memory = alloc(place.bytes)
    start = memory.ptr
    return DevicePacked(
        x,
        how.splitters[which],
        place,
        start,
        start + place.scales,
        start + place.flags,
        start + place.outliers if place.blocks > 1 else 0,
        start + place.norms if how.sides[which].measure else 0,
        memory,
    )


def _addresses(it: DevicePacked) -> tuple[int, ...]:
    return it.operand.address, it.slices, it.scales, it.flags, it.outliers, it.norms
