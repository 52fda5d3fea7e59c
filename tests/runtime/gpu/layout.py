"""The layout in which kernels take packed operands, written by NumPy from the reference backend."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime.reference.reference import pack
from mixpert_py.runtime.reference.slices import Packed
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits, FloatSlices
from tests.runtime.certified import kept

Array = npt.NDArray[Any]

SLACK = 32 * 1024
ITEMSIZE = {"int8": 1, "float16": 2, "bfloat16": 2, "tf32": 4}


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """slices: (steps, count, rows8, 64) uint8; scales: (blocks, rows) int32."""

    slices: Array
    scales: Array
    rows: int
    steps_per_block: int


def layouts(a: Array, b: Array, scheme: Scheme) -> tuple[Layout, Layout]:
    """Both operands of a product, outliers kept in the slices."""
    left, right = pack(a, b, kept(scheme))
    right.slices[...] = right.slices[:, :, ::-1].copy()
    k = a.shape[1]
    return lay_out(left, scheme.left, scheme, k), lay_out(right, scheme.right, scheme, k)


def lay_out(packed: Packed, splitter: Digits | FloatSlices, scheme: Scheme, k: int) -> Layout:
    chunks, rows, count, chunk = packed.slices.shape
    values = packed.slices.transpose(2, 1, 0, 3).reshape(count, rows, chunks * chunk)
    block = scheme.lengths(k)[1]
    blocks = packed.exponents.shape[1]
    per_step = 64 // ITEMSIZE[scheme.element.name]
    half = per_step // 2
    padded = half if blocks > 1 and block <= half else -(-block // per_step) * per_step
    steps = -(-blocks * padded // per_step)
    spread = np.zeros((count, -(-rows // 8) * 8, steps * per_step), np.float32)
    for t in range(blocks):
        here = values[:, :, t * block : (t + 1) * block]
        spread[:, :rows, t * padded : t * padded + here.shape[2]] = here
    raw = _bytes(spread, scheme.element.name)  # (count, rows8, steps * 64)
    steps_first = raw.reshape(count, raw.shape[1], steps, 4, 16).transpose(2, 0, 1, 3, 4)
    swizzled = np.empty_like(steps_first)
    for r in range(raw.shape[1]):
        for c in range(4):
            swizzled[:, :, r, c ^ (r >> 1 & 3)] = steps_first[:, :, r, c]
    g = np.rint(packed.significands * 256).astype(np.int32)
    scales = (packed.exponents - 8 << 9 | g).T
    return Layout(
        np.ascontiguousarray(swizzled).reshape(steps, count, raw.shape[1], 64),
        np.ascontiguousarray(scales.astype(np.int32)),
        rows,
        padded // per_step,
    )


def _bytes(values: Array, element: str) -> Array:
    if element == "int8":
        return values.astype(np.int8).view(np.uint8)
    if element == "float16":
        return values.astype(np.float16).view(np.uint8)
    if element == "bfloat16":
        return np.ascontiguousarray(values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.view(np.uint8)
