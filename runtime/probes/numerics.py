"""The accumulation of this GPU's matrix instructions, and how well the model agrees with it."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.model.numerics import Accumulation, AnyAccumulation, accumulate
from mixpert_py.runtime.probes.gpu import Found, Gpu
from mixpert_py.runtime.probes.numerics_families import FLOATS, INTEGERS, Array, Family
from mixpert_py.runtime.probes.numerics_features import Multiply, Shape, determine, same

SEED = 20210210
AT_ONCE = 1 << 14  # matrices
MATRICES = 100_000  # of 16 rows, per instruction
THREADS = 128


class Difference(NamedTuple):
    """The first element that differs: its row of A, column of B, its C, and both results."""

    row: list[float]
    column: list[float]
    addend: float
    chip: float
    model: float


class Agreement(NamedTuple):
    """The agreement of results on one family of random matrices.

    zeros: the number of elements that differ only in the sign of zero.
    """

    family: str
    matrices: int
    elements: int
    differing: int
    zeros: int
    first: Difference | None


def agree(
    multiply: Multiply,
    how: AnyAccumulation,
    shape: Shape,
    count: int,
    families: dict[str, Family] | None = None,
) -> Iterator[Agreement]:
    """Compare the model with the chip on `count` random matrices, in equal parts of each family.

    NaN are compared as all others: by their bits.
    """
    if families is None:
        families = INTEGERS if shape.element == "int8" else FLOATS
    each = -(-count // len(families))
    for name, family in families.items():
        random = np.random.default_rng(SEED)
        elements = differing = zeros = 0
        first = None
        for start in range(0, each, AT_ONCE):
            a, b, c = family(random, min(AT_ONCE, each - start), shape)
            chip, model = multiply(a, b, c), accumulate(a, b, c, how)
            wrong = ~same(chip, model)
            elements += wrong.size
            differing += int(wrong.sum())
            zeros += int((wrong & (chip == 0) & (model == 0)).sum())
            if first is None and wrong.any():
                first = _difference(a, b, c, chip, model, tuple(np.argwhere(wrong)[0]))
        yield Agreement(name, each, elements, differing, zeros, first)


def _difference(
    a: Array, b: Array, c: Array, chip: Array, model: Array, at: tuple[int, int, int]
) -> Difference:
    matrix, row, column = at
    return Difference(
        a[matrix, row].tolist(),
        b[matrix, :, column].tolist(),
        c[at].item(),
        chip[at].item(),
        model[at].item(),
    )


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


class Findings(NamedTuple):
    """How an instruction accumulates, or why the model does not say so, and how well that agrees
    with its results for random matrices.
    """

    instruction: Instruction
    how: AnyAccumulation | None
    why_not: str
    agreement: list[Agreement]


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


def numerics(gpu: Gpu, matrices: int = MATRICES) -> Found:
    """Probe every matrix instruction of the device with crafted sums and random matrices.

    The table is that of mma.sync; where wgmma differs, the text says so.
    """
    hopper = gpu.device.capability == HOPPER
    found = [examine(gpu, row, matrices) for row in INSTRUCTIONS if hopper or not row.scales]
    tables: dict[str, Any] = {}
    for findings in found:
        if findings.how is not None:
            tables.setdefault(findings.instruction.shape.element, fields(findings.how))
    text = "\n".join(line for findings in found for line in lines(findings))
    return Found(text, {"accumulation": tables})


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


def examine(gpu: Gpu, instruction: Instruction, matrices: int) -> Findings:
    """Find out what one instruction does, and compare that with what it does to random matrices."""
    here, shape = partial(multiply_on_gpu, gpu, instruction), instruction.shape
    try:
        how = determine(here, shape)
    except DeviceError as error:
        return Findings(instruction, None, str(error), [])
    compared = agree(here, how, shape, matrices * 16 // shape.m)
    return Findings(instruction, how, "", list(compared))


def fields(how: AnyAccumulation) -> dict[str, Any]:
    """The fields of a device model, without those that have their default."""
    found: dict[str, Any] = msgspec.to_builtins(how)
    return found


def lines(findings: Findings) -> Iterator[str]:
    """The text about one instruction, for a person."""
    how = findings.how
    yield f"{findings.instruction.name}: {findings.why_not if how is None else described(how)}"
    for family in findings.agreement:
        yield f"  {family.family:<11}{family.matrices} matrices, {_differing(family)}"


def described(how: AnyAccumulation) -> str:
    """The accumulation of an instruction in words, with the fields that are unusual."""
    values = fields(how)
    if not isinstance(how, Accumulation):
        return f"exact, {how.overflow}"
    text = f"{values.pop('group')} products at once, {values.pop('fraction')} fraction bits"
    return ", ".join((text, *(f"{field} {value}" for field, value in values.items())))


def _differing(family: Agreement) -> str:
    if not family.differing:
        return f"all {family.elements} elements the same"
    text = f"{family.differing} of {family.elements} elements differ"
    if family.zeros:
        text += f", {family.zeros} in the sign of zero"
    return f"{text}; first: {family.first}"
