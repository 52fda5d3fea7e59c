"""The accumulation of this GPU's matrix instructions, found by sums that tell its features apart.

Each feature has sums of a few products that come out differently for each of its values, and
little else changes: after [F] and [K] of `runtime.model.numerics`. What the chip returns is
compared with what the model says of each value. Other sums show whether the rest is as in all
known chips.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.model.numerics import (
    SMALLEST,
    SMALLEST_HALF,
    Accumulation,
    AnyAccumulation,
    IntegerAccumulation,
    accumulate,
)
from mixpert_py.runtime.probes.gpu import Found, Gpu

THREADS = 128

# C + A·B of many matrices: A (count, m, k), B (count, k, n), C (count, m, n); the types of
# `accumulate`.
Multiply = Callable[[Array, Array, Array], Array]

TYPES = {"float16": np.float16, "bfloat16": np.float32, "tf32": np.float32, "int8": np.int8}

How = TypeVar("How", Accumulation, IntegerAccumulation)

# Exponents that every element has products of, with powers of two as factors: nothing that small
# is left beside anything that large.
LARGE = 30
SMALL = -28


class Shape(NamedTuple):
    """The shape of one matrix instruction: rows, columns and depth, and the type of A and B."""

    m: int
    n: int
    k: int
    element: str

    @property
    def smallest(self) -> int:
        """Exponent of the element's smallest normal number."""
        return SMALLEST_HALF if self.element == "float16" else SMALLEST


class Sum(NamedTuple):
    """An addend, and factors of the products at some positions of K; elsewhere they are zero."""

    addend: float
    factors: dict[int, tuple[float, float]]


class Instruction(NamedTuple):
    """A matrix instruction: its shape, and its PTX text before the operands.

    scales: behind those of wgmma, which a warpgroup executes; empty for mma.sync.
    """

    name: str
    shape: Shape
    text: str
    scales: str = ""

    @property
    def constants(self) -> dict[str, int | str]:
        """The preprocessor definitions of its kernel."""
        return {
            "INTEGER": int(self.shape.element == "int8"),
            "WARPGROUP": int(bool(self.scales)),
            "INSTRUCTION": f'"{self.text}"',
            "SCALES": f'"{self.scales}"',
        }


def _warp(depth: int, element: str, types: str) -> Instruction:
    text = f"mma.sync.aligned.m16n8k{depth}.row.col.{types}"
    return Instruction(f"mma.sync m16n8k{depth} {element}", Shape(16, 8, depth, element), text)


def _warpgroup(depth: int, element: str, types: str, scales: str) -> Instruction:
    text = f"wgmma.mma_async.sync.aligned.m64n8k{depth}.{types}"
    name = f"wgmma m64n8k{depth} {element}"
    return Instruction(name, Shape(64, 8, depth, element), text, scales)


INSTRUCTIONS = (
    _warp(16, "float16", "f32.f16.f16.f32"),
    _warp(16, "bfloat16", "f32.bf16.bf16.f32"),
    _warp(8, "tf32", "f32.tf32.tf32.f32"),
    _warp(32, "int8", "s32.s8.s8.s32"),
    _warpgroup(16, "float16", "f32.f16.f16", ", p, 1, 1, 0"),
    _warpgroup(16, "bfloat16", "f32.bf16.bf16", ", p, 1, 1, 0"),
    _warpgroup(8, "tf32", "f32.tf32.tf32", ", p, 1, 1"),
    _warpgroup(32, "int8", "s32.s8.s8", ", p"),
)


def numerics(gpu: Gpu) -> Found:
    """Probe every matrix instruction of the device with crafted sums.

    The table is that of mma.sync; where wgmma differs, the text says so.
    """
    tables: dict[str, Any] = {}
    lines = []
    for instruction in INSTRUCTIONS:
        if instruction.scales and gpu.device.capability != HOPPER:
            continue
        try:
            how = determine(partial(multiply_on_gpu, gpu, instruction), instruction.shape)
        except DeviceError as error:
            lines.append(f"{instruction.name}: {error}")
        else:
            tables.setdefault(instruction.shape.element, msgspec.to_builtins(how))
            lines.append(f"{instruction.name}: {described(how)}")
    return Found("\n".join(lines), {"accumulation": tables})


def multiply_on_gpu(gpu: Gpu, instruction: Instruction, a: Array, b: Array, c: Array) -> Array:
    """C + A·B of many matrices on the GPU, each by one instruction.

    a: (count, m, k), b: (count, k, n), c: (count, m, n), NumPy arrays of the types of
    `runtime.model.numerics.accumulate`.
    """
    kernel = gpu.kernel("numerics.cu", "multiply", instruction.constants)
    element = instruction.shape.element
    left = gpu.cupy.asarray(_packed(a, element))
    right = gpu.cupy.asarray(_packed(b.transpose(0, 2, 1), element))
    addend = gpu.cupy.asarray(np.ascontiguousarray(c))
    value = gpu.cupy.empty_like(addend)
    words = [x.data.ptr for x in (left, right, addend, value)]
    gpu.run(kernel, -(-len(a) // (1 if instruction.scales else 4)), THREADS, *words, len(a))
    found: Array = value.get()
    return found


def _packed(x: Array, element: str) -> Array:
    """The operand as it lies in memory: bfloat16 is the upper half of float32."""
    x = np.ascontiguousarray(x)
    return (x.view(np.uint32) >> 16).astype(np.uint16) if element == "bfloat16" else x


def described(how: AnyAccumulation) -> str:
    """The accumulation of an instruction in words."""
    if not isinstance(how, Accumulation):
        return f"exact, {how.overflow}"
    floor = "" if how.floor is None else f", floor {how.floor}"
    return f"{how.group} products at once, {how.fraction} fraction bits{floor}"


def determine(multiply: Multiply, shape: Shape) -> AnyAccumulation:
    """Determine how an instruction accumulates from its results for some thousand sums.

    Raises DeviceError where it does nothing that the model knows.
    """
    if shape.element == "int8":
        overflow = [Sum((1 << 31) - 1, {0: (1, 1)}), Sum(-(1 << 31), {0: (-1, 1)})]
        wraps = IntegerAccumulation("wraps")
        return _matching(multiply, shape, overflow, [wraps], "overflow")
    # Which products are added together [K, §3]: for all i and j, the addend and product i cancel,
    # and product j is small. It is left if its group comes after that of i.
    sums = [
        Sum(2.0**LARGE, {i: _power(LARGE, -1), j: _power(SMALL)})
        for i, j in product(range(shape.k), repeat=2)
        if i != j
    ]
    sizes = [size for size in range(shape.k, 0, -1) if shape.k % size == 0]
    groups = (Accumulation(size, 24) for size in sizes)
    group = _matching(multiply, shape, sums, groups, "group").group
    if group < 4:
        raise DeviceError(f"it adds {group} products at once; tensor cores add 4 or more")
    # Which bit of a product is the last that is kept beside a large one [K, §3].
    sums = [_cancelling(_power(LARGE - down)) for down in range(1, LARGE - SMALL)]
    fractions = (Accumulation(group, bits) for bits in range(23, 41))
    how = _matching(multiply, shape, sums, fractions, "fraction")
    _matching(multiply, shape, _others(how, shape), [how], "rounding")
    if shape.element == "float16":  # which has no products so small
        return how
    floors = (Accumulation(group, how.fraction, floor) for floor in (None, *range(-148, -99)))
    return _matching(multiply, shape, _about_the_smallest(how.fraction), floors, "floor")


def _matching(
    multiply: Multiply, shape: Shape, sums: list[Sum], candidates: Iterable[How], what: str
) -> How:
    """The first candidate that says of all sums what the chip returns."""
    a, b, c = _operands(sums, shape)
    seen = multiply(a, b, c)[:, :1, :1]
    row, column, addend = a[:, :1], b[:, :, :1], c[:, :1, :1]
    for how in candidates:
        if same(seen, accumulate(row, column, addend, how)).all():
            return how
    raise DeviceError(f"what it does about {what!r} is none of what the model knows")


def same(x: Array, y: Array) -> Array:
    """Whether elements of 32 bits are the same bits."""
    return np.asarray(x.view(np.uint32) == y.view(np.uint32))


def _operands(sums: list[Sum], shape: Shape) -> tuple[Array, Array, Array]:
    """Matrices with a sum each, in row 0 and column 0."""
    dtype = TYPES[shape.element]
    a = np.zeros((len(sums), shape.m, shape.k), dtype)
    b = np.zeros((len(sums), shape.k, shape.n), dtype)
    c = np.zeros((len(sums), shape.m, shape.n), np.int32 if dtype is np.int8 else np.float32)
    for index, (addend, factors) in enumerate(sums):
        c[index, 0, 0] = addend
        for position, (x, y) in factors.items():
            a[index, 0, position], b[index, position, 0] = x, y
    return a, b, c


def _power(exponent: int, sign: int = 1) -> tuple[float, float]:
    """Factors of ±2^exponent, neither far from its root."""
    return sign * 2.0 ** (exponent // 2), 2.0 ** (exponent - exponent // 2)


def _sum(*factors: tuple[float, float], addend: float = 0.0) -> Sum:
    return Sum(addend, dict(enumerate(factors)))


def _cancelling(*factors: tuple[float, float], addend: float = 0.0) -> Sum:
    """The remainder of small addends after two large products have cancelled."""
    return _sum(_power(LARGE), _power(LARGE, -1), *factors, addend=addend)


def _others(how: Accumulation, shape: Shape) -> list[Sum]:
    """Sums that come out differently where a feature is not as in all known chips."""
    x, y = _power(LARGE - how.fraction - 2)
    large = 1.5 * 2.0 ** (LARGE // 2)
    parts = (1.875, 1.0), (1.875, 1.0), (0.25, 1.0), (3 * 2.0**-11, 2.0**-12)
    small = 2.0 ** (shape.smallest - 1)
    return [
        # A small addend is lost beside large products [F, §3.3].
        _cancelling(addend=2.0**SMALL),
        # 1.5 · 1.5 does not count as more than 2 when the last bit kept is chosen [K, §3].
        _sum((large, large), (-large, large), _power(LARGE - how.fraction)),
        # ¾ of the last bit kept is lost, of either sign [F, §3.4].
        *(_cancelling((sign * 3 * x, y)) for sign in (1, -1)),
        # 4 and ¾ of FP32's last bit there, from addends below 2, is cut to 4 [F, §3.3].
        *(_sum(*((sign * x, y) for x, y in parts)) for sign in (1, -1)),
        # Subnormal numbers count, as factors and as addends [F, §3.1].
        *(_sum(factors) for factors in ((small, 2.0**15), (2.0**15, small))),
        _sum(addend=2.0**-127),
        # A sum of negative zeros is 0.
        Sum(-0.0, dict.fromkeys(range(shape.k), (-1.0, 0.0))),
    ]


def _about_the_smallest(fraction: int) -> list[Sum]:
    """Sums about FP32's smallest number, in which a bit far below decides if it is kept [K, §4]."""
    sums = []
    for last, sign in product(range(-150 - fraction, -149), (1, -1)):
        up, down = _power(last, sign), _power(last, -sign)
        sums += [
            _sum(_power(-149, sign), down),
            _sum(_power(-150, sign), up),
            _sum(_power(-149, sign), up, down),
        ]
    return sums
