"""An operand: a device array that packing reads, as a kernel is compiled for it, and as packed."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.arrays import DeviceArray, DeviceMemory
from mixpert_py.runtime.kernels.abi import ELEMENTS, STEP
from mixpert_py.runtime.splitter import Digits, FloatSlices, Splitter

VECTOR = 16  # bytes of the widest load
MEMORY = {"f": ("float32", 4), "d": ("float64", 8)}


class Form(NamedTuple):
    """An operand, but for where it lies. Strides are in elements.

    batch is 1 where all products share the operand.
    """

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
        """See `Cover`; block: the segment of K after which a thread starts again."""
        if self.k_stride != 1:
            return int(abs(self.row_stride) < abs(self.k_stride))
        starts = self.row_stride | self.batch_stride | (block if block < self.k else 0)
        return 2 if self.aligned and starts * self.itemsize % VECTOR == 0 else 0


class Operand(NamedTuple):
    """A device array as rows along K: A as it is, B by its columns. owner keeps the memory."""

    address: int
    form: Form
    device: int
    owner: DeviceArray

    @property
    def memory(self) -> str:
        return self.form.memory

    @property
    def batch(self) -> int:
        return self.form.batch

    @property
    def rows(self) -> int:
        return self.form.rows

    @property
    def k(self) -> int:
        return self.form.k


def by_rows(a: DeviceArray) -> Operand:
    """A, (m, k) or (batch, m, k) float32 or float64, any strides. Raises ShapeError, TypeError."""
    memory = a.data
    address = memory.ptr
    form = _form(a.dtype.char, a.shape, a.strides, address % VECTOR == 0, -2, -1)
    return Operand(address, form, memory.device_id, a)


def by_columns(b: DeviceArray) -> Operand:
    """B, (k, n) or (batch, k, n), likewise: its rows are the columns."""
    memory = b.data
    address = memory.ptr
    form = _form(b.dtype.char, b.shape, b.strides, address % VECTOR == 0, -1, -2)
    return Operand(address, form, memory.device_id, b)


@lru_cache(4096)
def _form(
    char: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    aligned: bool,
    row_axis: int,
    k_axis: int,
) -> Form:
    try:
        memory, size = MEMORY[char]
    except KeyError:
        raise TypeError(f"cannot split dtype {char!r}: wanted float32 or float64") from None
    if not 2 <= len(shape) <= 3:
        raise ShapeError(f"cannot pack an array of shape {shape}: wanted two or three dimensions")
    rows, k = shape[row_axis], shape[k_axis]
    batch, batch_stride = 1, 0
    # Axes of one element, and those of an empty stack, have any strides: of A and its transpose,
    # reshaped, CuPy makes them differ.
    if len(shape) == 3 and shape[0] != 1 and (strides[0] != 0 or shape[0] == 0):
        batch, batch_stride = shape[0], strides[0] // size
    row_stride, k_stride = strides[row_axis] // size, strides[k_axis] // size if k != 1 else 1
    return Form(memory, batch, rows, k, batch_stride, row_stride, k_stride, aligned)


class Side(NamedTuple):
    """One operand: its splitter and its type in memory. Plain values only.

    loss: how much of its 2-norm a row may lose, squared; lower: see `reference.slices`, times
    4^-shift, infinite where it does not apply. size: bytes of an element. wide: the type that
    slices are computed in.
    """

    kind: str
    element: str
    size: int
    slices: int
    memory: str
    wide: str
    group: int = 1
    # Of digits.
    width: int = 0
    shift: int = 0
    threshold: float = 0.0
    fitted: bool = False
    held: int = 0
    loss: float = 0.0
    lower: float = math.inf
    # Of floats.
    bits: int = 0
    smallest: float = 0.0
    truncate: bool = False
    step: int = 0
    scaled: bool = False
    range: float = math.inf
    highest: int = 15
    span: int = -1  # none
    whole: tuple[int, int] | None = None

    @property
    def fineness(self) -> bool:
        """Whether a row's finest entry, or lowest bit, decides about it beside its largest."""
        return self.fitted or self.span >= 0

    @property
    def room(self) -> int:
        """Rows where twice the exponent, and log2 K, come to more are large; −1: none is.

        Slices are below 2^e (1 + 2^-7): sums of K products of a row and a column that are not large
        are below 2^127 (1 + 2^-6), of float32 numbers. Of these, floats round nothing up to 2^128.
        """
        if self.kind == "floats" and (self.memory == "float32" or not self.scaled):
            return -1
        return 127 if self.memory == "float32" else 1023

    @property
    def sums(self) -> int:
        """The number of sums that decide whether a row leaves: one of its loss, the others of its
        digits' squares.
        """
        if self.kind == "floats":
            return 0
        return self.slices if self.crowded else 1

    @property
    def crowded(self) -> bool:
        """Whether digits past the first may crowd a row out."""
        return self.lower < math.inf

    @property
    def single(self) -> bool:
        """Whether nothing is in double precision."""
        return self.wide == self.memory == "float32"


@lru_cache
def side(splitter: Splitter, memory: str, result: str) -> Side:
    """memory: the operand's type, "float32" or "float64"; result: the product's."""
    if isinstance(splitter, Digits):
        return Side(
            "digits",
            "int8",
            1,
            splitter.count,
            memory,
            result,
            splitter.group,
            width=splitter.width,
            shift=splitter.shift,
            # RN(f · 2^shift) > largest, which is odd, from the half above it on.
            threshold=math.ldexp(splitter.largest + 0.5, -splitter.shift),
            fitted=splitter.fitted,
            held=splitter.held,
            loss=splitter.loss_limit**2,
            lower=splitter.lower_limit * 4.0**-splitter.shift if splitter.group == 1 else math.inf,
        )
    assert isinstance(splitter, FloatSlices)  # of residues there are no kernels
    element = splitter.element
    # In float32 a scaled row's small entries could lose bits that BF16 and TF32 can hold.
    single = memory == "float32" and element.name == "float16"
    return Side(
        "floats",
        element.name,
        ELEMENTS[element.name].size,
        splitter.count,
        memory,
        "float32" if single else "float64",
        bits=element.bits,
        smallest=element.smallest,
        truncate=splitter.rounding == "zero",
        step=splitter.step,
        scaled=splitter.scaled,
        range=splitter.range,
        highest=splitter.highest,
        span=-1 if splitter.span is None else splitter.span,
        whole=splitter.whole if memory == "float32" else None,
    )


SLACK = 32 * 1024  # a tile may read past the last row
ITEM = 8  # elements that a thread takes at a time
DEPTH = 2  # items that a thread reads before it uses them
MOST_THREADS = 512  # of a block of the general kernel; each has 128 registers
CACHE_LANES = 256  # threads whose elements lie side by side in shared memory
REDUCTIONS = 2 * 8 * MOST_THREADS  # bytes of shared memory that a block's reductions take

# Of operands whose rows are contiguous: rows that blocks take together, and a thread, and threads
# next to each other; from some rows to the next in shared memory, no two in one bank.
PANEL, QUAD = 32, 4
ACROSS, APART = PANEL // QUAD, PANEL + 1
HOPPER = 227 * 1024  # bytes of shared memory that a block may have


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Sizes, and offsets in bytes into the allocation: see `packing.DevicePacked`.

    Compared by identity, which costs nothing: `layout` and `of_some` give equal ones once.
    """

    batch: int
    rows: int
    rows8: int
    k: int
    block: int
    blocks: int
    padded_block: int
    steps: int
    count: int
    size: int
    scales: int
    flags: int
    outliers: int
    bytes: int

    @property
    def slices_stride(self) -> int:
        """Bytes from one product's slices to the next's; 0 where all share them."""
        return self.steps * self.count * self.rows8 * STEP if self.batch > 1 else 0

    @property
    def scales_stride(self) -> int:
        """Bytes, likewise."""
        return 4 * self.blocks * self.rows if self.batch > 1 else 0

    @property
    def steps_per_block(self) -> int:
        """0 where a block is half a step."""
        return self.padded_block * self.size // STEP

    @property
    def spans(self) -> int:
        """Blocks, and what is left of the last step after them."""
        return self.steps * (STEP // self.size) // self.padded_block


@lru_cache(4096)
def layout(splitter: Splitter, batch: int, rows: int, k: int, block: int) -> Layout:
    """The layout of batch · rows rows of length k, every `block` of which share a scale.

    A block is padded to whole steps, or to half a step if that holds it: what one instruction
    multiplies has one scale.
    """
    size = _size(splitter)
    in_step = STEP // size
    block = min(block, k)
    blocks = -(-k // block)
    if blocks > 1 and block <= in_step // 2:
        padded = in_step // 2
    else:
        padded = -(-block // in_step) * in_step
    steps = -(-blocks * padded // in_step)
    rows8 = -(-rows // 8) * 8
    count = splitter.count
    scales = up(batch * steps * count * rows8 * STEP + SLACK)
    flags = up(scales + 4 * batch * blocks * rows)
    outliers = up(flags + batch * rows)
    end = outliers + (batch * blocks * rows if blocks > 1 else 0)
    shape = batch, rows, rows8, k, block, blocks, padded, steps, count, size
    return Layout(*shape, scales, flags, outliers, end)


@lru_cache(4096)
def of_some(place: Layout, batch: int) -> Layout:
    """The layout of some matrices of a stack, which lie in the stack's allocation."""
    return replace(place, batch=batch)


def up(offset: int) -> int:
    """The next place for something that other threads read than what lies before it."""
    return -(-offset // 256) * 256


def _size(splitter: Splitter) -> int:
    """Bytes of an element of the slices."""
    return ELEMENTS[splitter.element.name if isinstance(splitter, FloatSlices) else "int8"].size


class DevicePacked(NamedTuple):
    """A packed operand, A by rows or B by columns: `rows` below means either.

    All in one allocation, which the other operand may share; addresses are the device's. S = 64 /
    size elements are a step.

    slices: (batch, steps, count, rows8, 64) bytes, the highest slice first. Of each row's four
    chunks of 16 bytes, chunk c is at c ^ ((row >> 1) & 3): the 64-byte swizzle of wgmma. Block t of
    K starts at t · padded_block; what is past a block's end, or past K, is zero; rows past `rows`
    hold anything. 32 KiB past the end may be read.
    scales: int32 scale words (batch, blocks, rows), see `abi`: a unit of slice 0 is g · 2^E.
    flags: uint8 (batch, rows), bit 0 the row holds NaN or Inf, bit 1 outliers; what is flagged is
    zero in the slices. outliers: uint8 (batch, blocks, rows), 1 where that block is one; address 0
    if there is one block, which bit 1 tells of.
    """

    operand: Operand
    splitter: Splitter
    layout: Layout
    slices: int
    scales: int
    flags: int
    outliers: int
    owner: DeviceMemory

    @property
    def batch(self) -> int:
        return self.layout.batch

    @property
    def rows(self) -> int:
        return self.layout.rows

    @property
    def steps(self) -> int:
        return self.layout.steps

    def view(self, name: str) -> Any:
        """A CuPy array of "slices", "scales", "flags" or "outliers", without a copy.

        Raises ValueError for what is not there.
        """
        import cupy

        place = self.layout
        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "slices": ((place.batch, place.steps, place.count, place.rows8, STEP), "uint8"),
            "scales": ((place.batch, place.blocks, place.rows), "int32"),
            "flags": ((place.batch, place.rows), "uint8"),
            "outliers": ((place.batch, place.blocks, place.rows), "uint8"),
        }
        address = getattr(self, name)
        if not address:
            raise ValueError(f"packed without {name}")
        shape, dtype = shapes[name]
        return cupy.ndarray(shape, dtype, self.owner + (address - self.owner.ptr))
