"""Splitting operands on the device, in one launch, into the layout that the GEMM kernels take."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import Struct
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.kernels.compile import Kernel, numba_kernel
from mixpert_py.runtime.outliers import OutlierRule
from mixpert_py.runtime.packing_layout import (
    HOPPER,
    MOST_THREADS,
    REDUCTIONS,
    STEP,
    Layout,
    covers,
    launch,
    layout,
)
from mixpert_py.runtime.packing_side import Side, side
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits, Splitter

LARGE = 1 << 23  # elements from which a kernel for rows alone outweighs a second launch
VECTOR = 16  # bytes of the widest load
KERNELS = "mixpert_py.runtime.packing_kernels"
POINTERS = 6  # of each operand


MEMORY = {"f": ("float32", 4), "d": ("float64", 8)}


class Form(NamedTuple):
    """An operand, but for where it lies."""

    memory: str
    batch: int
    rows: int
    k: int
    batch_stride: int
    row_stride: int
    k_stride: int
    aligned: bool

    @property
    def itemsize(self) -> int:
        return 4 if self.memory == "float32" else 8

    def mapping(self, block: int) -> int:
        """See `Cover`; block: the stretch of K after which a thread starts again."""
        if self.k_stride != 1:
            return int(abs(self.row_stride) < abs(self.k_stride))
        starts = self.row_stride | self.batch_stride | (block if block < self.k else 0)
        return 2 if self.aligned and starts * self.itemsize % VECTOR == 0 else 0


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A device array as rows along K: A as it is, B by its columns. Strides are in elements.

    batch is 1 where all products share the operand. owner keeps the memory.
    """

    address: int
    memory: str
    batch: int
    rows: int
    k: int
    batch_stride: int
    row_stride: int
    k_stride: int
    owner: Any

    @property
    def itemsize(self) -> int:
        return 4 if self.memory == "float32" else 8

    @property
    def form(self) -> Form:
        strides = self.batch_stride, self.row_stride, self.k_stride
        aligned = self.address % VECTOR == 0
        return Form(self.memory, self.batch, self.rows, self.k, *strides, aligned)


def by_rows(a: Any) -> Operand:
    """A, (m, k) or (batch, m, k) float32 or float64, any strides. Raises ShapeError, TypeError."""
    return _operand(a, -2, -1)


def by_columns(b: Any) -> Operand:
    """B, (k, n) or (batch, k, n), likewise: its rows are the columns."""
    return _operand(b, -1, -2)


@dataclass(frozen=True, slots=True, eq=False)
class DevicePacked:
    """A packed operand, A by rows or B by columns: `rows` below means either.

    All in one allocation; addresses are the device's. S = 64 / size elements are a step.

    slices: (batch, steps, count, rows8, 64) bytes, the highest slice first. Of each row's four
    chunks of 16 bytes, chunk c is at c ^ ((row >> 1) & 3): the 64-byte swizzle of wgmma. Block t of
    K starts at t · padded_block; what is past a block's end, or past K, is zero; rows past `rows`
    hold anything. 32 KiB past the end may be read.
    scales: int32 (batch, blocks, rows), E << 9 | g: a unit of slice 0 is g · 2^E.
    flags: uint8 (batch, rows), bit 0 the row holds NaN or Inf, bit 1 outliers; what is flagged is
    zero in the slices. outliers: uint8 (batch, blocks, rows), 1 where that block is one; address 0
    if there is one block, which bit 1 tells of.
    norms: float64 (batch, 2 + count, rows): of the row, what splitting lost, and each slice by
    value; address 0 unless measured.
    """

    operand: Operand
    splitter: Splitter
    layout: Layout
    slices: int
    scales: int
    flags: int
    outliers: int
    norms: int
    owner: Any

    @property
    def batch(self) -> int:
        return self.layout.batch

    @property
    def rows(self) -> int:
        return self.layout.rows

    @property
    def rows8(self) -> int:
        return self.layout.rows8

    @property
    def steps(self) -> int:
        return self.layout.steps

    @property
    def blocks(self) -> int:
        return self.layout.blocks

    @property
    def steps_per_block(self) -> int:
        return self.layout.steps_per_block

    @property
    def slices_stride(self) -> int:
        return self.layout.slices_stride

    @property
    def scales_stride(self) -> int:
        return self.layout.scales_stride

    def view(self, name: str) -> Any:
        """A CuPy array of "slices", "scales", "flags", "outliers" or "norms", without a copy.

        Raises ValueError for what is not there.
        """
        import cupy

        place = self.layout
        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "slices": ((place.batch, place.steps, place.count, place.rows8, STEP), "uint8"),
            "scales": ((place.batch, place.blocks, place.rows), "int32"),
            "flags": ((place.batch, place.rows), "uint8"),
            "outliers": ((place.batch, place.blocks, place.rows), "uint8"),
            "norms": ((place.batch, 2 + place.count, place.rows), "float64"),
        }
        address = getattr(self, name)
        if not address:
            raise ValueError(f"packed without {name}")
        shape, dtype = shapes[name]
        return cupy.ndarray(shape, dtype, self.owner + (address - self.owner.ptr))


def pack(
    a: Operand,
    b: Operand,
    scheme: Scheme,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: int = 0,
) -> tuple[DevicePacked, DevicePacked]:
    """A and B split as the scheme says, on a stream (its address) of the current device.

    One launch, or up to two where K is one block and operands are large (`row_packing`): flagged
    rows then hold anything, in units of zero.

    block: stretch of K per scale, see `Scheme.with_block`. rule: what leaves integer slices, see
    `reference.multiply`. measure: 2-norms too. Does not wait for the device.
    Raises ShapeError where K differs or anything is empty, PlanError on a block length that the
    scheme, or a GPU, does not take.
    """
    import cupy

    if a.k != b.k:
        raise ShapeError(f"cannot multiply rows of {a.k} by columns of {b.k}")
    result = "float64" if "float64" in (a.memory, b.memory) else "float32"
    scheme = scheme.with_block(block)
    length = scheme.lengths(a.k)[1]
    splitters, forms = (scheme.left, scheme.right), (a.form, b.form)
    if a.k * (a.rows + b.rows) >= LARGE and _by_rows(splitters, forms, length, measure, rule):
        from mixpert_py.runtime.row_packing import pack_rows

        left, right = pack_rows((a, b), splitters, result, rule=rule, stream=stream)
        return left, right
    given = length, result, rule, measure, cupy.cuda.runtime.getDevice()
    how, kernel = _prepared(splitters, forms, *given)
    alloc = cupy.cuda.alloc
    left, right = _allocated(a, how, 0, alloc), _allocated(b, how, 1, alloc)
    first, second = how.words
    words = (*_addresses(left), *first, *_addresses(right), *second)
    launch_words(kernel, how.grid, how.threads, words, how.shared, stream)
    return left, right


def pack_one(
    x: Operand,
    scheme: Scheme,
    which: str,
    result: str,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: int = 0,
) -> DevicePacked:
    """One operand, `which` "left" or "right", to be kept; result: the type of its products."""
    import cupy

    scheme = scheme.with_block(block)
    splitter = scheme.left if which == "left" else scheme.right
    length = scheme.lengths(x.k)[1]
    if x.k * x.rows >= LARGE and _by_rows((splitter,), (x.form,), length, measure, rule):
        from mixpert_py.runtime.row_packing import pack_rows

        return pack_rows((x,), (splitter,), result, rule=rule, stream=stream)[0]
    given = length, result, rule, measure, cupy.cuda.runtime.getDevice()
    how, kernel = _prepared((splitter,), (x.form,), *given)
    packed = _allocated(x, how, 0, cupy.cuda.alloc)
    words = (*_addresses(packed), *how.words[0], *(0,) * POINTERS, *how.words[1])
    launch_words(kernel, how.grid, how.threads, words, how.shared, stream)
    return packed


@lru_cache(4096)
def _by_rows(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    measure: bool,
    rule: OutlierRule,
) -> bool:
    """Whether `row_packing` does it, which is quicker for large operands in one block of K."""
    from mixpert_py.runtime.row_packing import suits

    return suits(splitters, forms, block, measure, rule)


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

    Raises ShapeError where an operand is empty, PlanError on block lengths that a GPU cannot take.
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


def launch_words(
    kernel: Kernel, grid: int, block: int, words: tuple[int, ...], shared: int, stream: int
) -> None:
    """A launch of a kernel that takes addresses and 64-bit integers only: one buffer for all."""
    pool = _arguments(len(words))
    try:
        arguments = pool.pop()
    except IndexError:
        arguments = Arguments.of(len(words))
    arguments.fill(arguments.values, 0, *words)
    where = arguments.where
    kernel.driver.launchKernel(kernel.handle, grid, 1, 1, block, 1, 1, shared, stream, where, 0)
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


def _operand(x: Any, row_axis: int, k_axis: int) -> Operand:
    shape, strides = x.shape, x.strides
    try:
        memory, size = MEMORY[x.dtype.char]
    except KeyError:
        raise TypeError(f"cannot split {x.dtype}: wanted float32 or float64") from None
    if not 2 <= len(shape) <= 3:
        raise ShapeError(f"cannot pack an array of shape {shape}: wanted two or three dimensions")
    batch, batch_stride = 1, 0
    if len(shape) == 3 and strides[0] != 0:
        batch, batch_stride = shape[0], strides[0] // size
    return Operand(
        x.data.ptr,
        memory,
        batch,
        shape[row_axis],
        shape[k_axis],
        batch_stride,
        strides[row_axis] // size,
        strides[k_axis] // size,
        x,
    )
