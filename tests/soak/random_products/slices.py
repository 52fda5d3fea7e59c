"""The values of packed operands in float64, whichever backend packed them."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.bench.arrays import Array, wide
from mixpert_py.runtime.kernels.abi import LEAVES
from mixpert_py.runtime.packed import Packed
from mixpert_py.runtime.splitter import Digits, FloatSlices, Splitter


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """One operand, A by rows or B by columns, by value.

    values: (count, rows, k). least: (count, rows), what a floating-point element counts for at
    least where terms are cut to the largest's last places; see `tensor_cores`. whole: (rows,)
    bool, nothing left the slices. norm, residual: (rows,) and norms: (count, rows), as packing
    measured them.
    """

    values: Array
    least: Array
    whole: Array
    norm: Array
    residual: Array
    norms: Array


def of_residues(xp: ModuleType, x: Array, packed: Packed) -> Slices:
    """From x (rows, k) of NumPy, and the reference backend's residues of it: one slice, x as
    rounded. xp: whose arrays they are to be.
    """
    whole = ~packed.nonfinite
    x, units = np.where(whole[:, None], x, 0.0).astype(np.float64), packed.exponents
    values = np.ldexp(np.rint(np.ldexp(x, -units)), units)[None]
    found = packed.measured
    least = np.zeros(values.shape[:2])
    measured = found.norm, found.residual, found.slices
    return Slices(*map(xp.asarray, (values, least, whole, *measured)))


def of_reference(
    packed: Packed, splitter: Digits | FloatSlices, k: int, block: int, reverse: bool
) -> Slices:
    """From the reference backend's layout."""
    chunks, rows, count, chunk = packed.slices.shape
    digits = packed.slices.transpose(2, 1, 0, 3).reshape(count, rows, chunks * chunk)
    digits = digits[::-1] if reverse else digits
    units = np.ldexp(packed.significands.astype(np.float64), packed.exponents)
    whole = ~(packed.outlier.any(axis=1) | packed.nonfinite)
    found = packed.measured
    values = _valued(np, digits.astype(np.float64), units, splitter, k, block, block)
    least = np.zeros((count, rows))  # sums there are FP32's own
    return Slices(values, least, whole, found.norm, found.residual, found.slices)


def of_device(xp: ModuleType, packed: Any, k: int) -> Slices:
    """From the device's layout (`packing.DevicePacked`, one matrix, measured); xp: CuPy."""
    place = packed.layout
    raw = _unswizzled(xp, packed.view("slices")[0, :, :, : place.rows])
    elements = _elements(xp, raw, packed.splitter)  # (steps, count, rows, S)
    digits = elements.transpose(1, 2, 0, 3).reshape(place.count, place.rows, -1)
    scales = packed.view("scales")[0].T
    units = xp.ldexp((scales & 511).astype(np.float64), scales >> 9)
    block, padded = place.block, place.padded_block
    norms = packed.view("norms")[0]
    values = _valued(xp, digits, units, packed.splitter, k, block, padded)
    least = xp.zeros((place.count, place.rows))
    if isinstance(packed.splitter, FloatSlices):
        least = xp.asarray(packed.splitter.normals)[:, None] * units[:, 0]
    whole = packed.view("flags")[0] & LEAVES == 0
    return Slices(values, least, whole, norms[0], norms[1], norms[2:])


def _unswizzled(xp: ModuleType, raw: Array) -> Array:
    """(steps, count, rows, 64) bytes, every row's four chunks of 16 in their order along K."""
    steps, count, rows, _ = raw.shape
    row = xp.arange(rows)[:, None]
    place = xp.arange(4)[None, :] ^ ((row >> 1) & 3)
    return raw.reshape(steps, count, rows, 4, 16)[:, :, row, place].reshape(raw.shape)


def _elements(xp: ModuleType, raw: Array, splitter: Splitter) -> Array:
    """The last axis as numbers in float64."""
    raw = xp.ascontiguousarray(raw)
    if not isinstance(splitter, FloatSlices):
        return raw.view(np.int8).astype(np.float64)
    if splitter.element.name == "float16":
        return raw.view(np.float16).astype(np.float64)
    if splitter.element.name == "bfloat16":
        return wide((raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32))
    return wide(raw.view(np.float32))


def _valued(
    xp: ModuleType,
    digits: Array,
    units: Array,
    splitter: Digits | FloatSlices,
    k: int,
    block: int,
    padded: int,
) -> Array:
    """Digits (count, rows, padded K) times the unit of their block (rows, blocks), and weights."""
    along = xp.arange(k)
    block_of = along // max(block, 1)
    values = digits[:, :, block_of * padded + along % max(block, 1)] * units[:, block_of]
    width = splitter.width if isinstance(splitter, Digits) else splitter.step
    # Not 2.0 ** …: on the device a power of two may be a place off.
    weights = xp.asarray(np.ldexp(1.0, -width * np.arange(splitter.count)))
    return values * weights[:, None, None]
