"""The accumulation of this GPU's matrix instructions."""

from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.model.numerics import Accumulation, AnyAccumulation
from mixpert_py.runtime.probes.gpu import Found, Gpu
from mixpert_py.runtime.probes.numerics_features import Array, Shape, determine

THREADS = 128


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
    """The accumulation of an instruction in words, with the fields that are unusual."""
    values: dict[str, Any] = msgspec.to_builtins(how)
    if not isinstance(how, Accumulation):
        return f"exact, {how.overflow}"
    text = f"{values.pop('group')} products at once, {values.pop('fraction')} fraction bits"
    return ", ".join((text, *(f"{field} {value}" for field, value in values.items())))
