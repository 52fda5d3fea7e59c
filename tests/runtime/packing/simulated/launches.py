"""Launches in Numba's simulator, on NumPy arrays laid out as on the device."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from mixpert_py.runtime.packing import Operand
from mixpert_py.runtime.packing.blocks import strip_config
from mixpert_py.runtime.packing.launch import PackingConfig, PackingTask, Which
from mixpert_py.runtime.packing.operand import VECTOR, Form, Layout
from mixpert_py.runtime.packing.strip_kernels import strip_kernel
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule, Splitter
from tests.runtime.families import Array
from tests.runtime.packing.simulated.simulation import simulation

GARBAGE = 0xA5  # what fresh memory holds


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """What a launch leaves of one operand; flat, but for slices."""

    layout: Layout
    splitter: Splitter
    operand: Operand
    slices: Array
    scales: Array
    flags: Array
    outliers: Array
    norms: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        words = self.slices.view(np.uint32)
        return words, self.scales, self.flags, self.outliers, self.norms


def flat(x: Array) -> Array:
    """Memory that starts at x's first element; what lies before it is at the end, as x[-1]."""
    root: Any = x
    while isinstance(root.base, np.ndarray):
        root = root.base
    storage = root.reshape(-1, order="A") if root.flags.forc else root.ravel()
    offset = x.__array_interface__["data"][0] - storage.__array_interface__["data"][0]
    return np.roll(storage, -offset // x.itemsize)


def operand(x: Array, columns: bool) -> Operand:
    """As `packing.by_rows` and `by_columns` make of CuPy arrays."""
    row, k = (-1, -2) if columns else (-2, -1)
    strides = [stride // x.itemsize for stride in x.strides]
    batch, batch_stride = (x.shape[0], strides[0]) if x.ndim == 3 else (1, 0)
    if batch_stride == 0:
        batch = 1
    address = x.__array_interface__["data"][0]
    shape = batch, x.shape[row], x.shape[k]
    form = Form(x.dtype.name, *shape, batch_stride, strides[row], strides[k], address % VECTOR == 0)
    return Operand(address, form, 0, x)


def pack(
    a: Array,
    b: Array | None,
    scheme: Scheme,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    threads: int = 32,
) -> tuple[Buffers, ...]:
    """The packing kernel on A by rows and B by columns, or on A alone."""
    scheme = scheme.with_block(block)
    xs = [operand(a, False)] + ([] if b is None else [operand(b, True)])
    how = strip_config(task_of(xs, scheme, rule, measure), threads=threads)
    buffers = buffers_of(how, xs)
    parts = [(flat(x.owner), *one.arrays) for x, one in zip(xs, buffers, strict=True)]
    others = parts[1] if b is not None else (np.zeros(1),) * len(parts[0])
    function, _ = strip_kernel(*how.constants)
    arguments = *parts[0], *how.words[0], *others, *how.words[-1], *how.lengths
    with simulation():
        cuda.jit(function)[how.grid, how.threads, 0, how.shared](*arguments)
    return tuple(buffers)


def task_of(
    xs: list[Operand], scheme: Scheme, rule: OutlierRule, measure: bool = False
) -> PackingTask:
    """For A and B, or A alone."""
    result = "float64" if any(x.memory == "float64" for x in xs) else "float32"
    which: Which = "both" if len(xs) == 2 else "left"
    return PackingTask(scheme, which, tuple(x.form for x in xs), result, rule, measure)


def buffers_of(how: PackingConfig, xs: list[Operand]) -> list[Buffers]:
    """Fresh memory for what a launch leaves of each operand."""
    parts = zip(how.layouts, how.task.splitters, xs, strict=True)
    return [_buffers(*part) for part in parts]


def _buffers(place: Layout, splitter: Splitter, x: Operand) -> Buffers:
    shape = (place.batch, place.steps, place.count, place.rows8, 64)
    blocks = place.batch * place.blocks * place.rows
    return Buffers(
        place,
        splitter,
        x,
        np.full(shape, GARBAGE, np.uint8).reshape(-1),
        np.full(blocks, -1, np.int32),
        np.full(place.batch * place.rows, GARBAGE, np.uint8),
        np.full(blocks, GARBAGE, np.uint8),
        np.full(place.batch * (2 + place.count) * place.rows, np.nan),
    )
