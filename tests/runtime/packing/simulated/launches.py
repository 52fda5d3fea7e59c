"""Launches in Numba's simulator, on NumPy arrays laid out as on the device."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numba import cuda

from mixpert_py.runtime.packing import Operand
from mixpert_py.runtime.packing.launch import PACKAGE, PackingConfig
from mixpert_py.runtime.packing.operand import VECTOR, Form, Layout
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Splitter
from tests.runtime.families import Array
from tests.runtime.packing.cases import KERNELS, Reader, parts, task_of
from tests.runtime.packing.simulated.simulation import simulation

GARBAGE = 0xA5  # what fresh memory holds
# A cluster is one block in the simulator: the first that holds K.
HELD = tuple((threads, 1) for threads in (64, 128, 256, 512, 1216))
SMALL: dict[Reader, dict[str, Any]] = {
    "strips": {"threads": 16},
    "rows": {"threads": 32, "most_threads": 32},
    "panels": {"threads": 32, "longest": 2, "blocks": 1},
    "clusters": {"shapes": HELD},
}


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """What a launch leaves of one operand, as `DevicePacked` has it; flat."""

    layout: Layout
    splitter: Splitter
    slices: Array
    scales: Array
    flags: Array
    outliers: Array

    @classmethod
    def fresh(cls, place: Layout, splitter: Splitter) -> "Buffers":
        blocks = place.batch * place.blocks * place.rows
        return cls(
            place,
            splitter,
            np.full(place.batch * place.steps * place.count * place.rows8 * 64, GARBAGE, np.uint8),
            np.full(blocks, -1, np.int32),
            np.full(place.batch * place.rows, GARBAGE, np.uint8),
            np.full(blocks, GARBAGE, np.uint8),
        )

    @property
    def arrays(self) -> tuple[Array, ...]:
        words = self.slices.view(np.uint32)
        return words, self.scales, self.flags, self.outliers


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
    kernel: Reader,
    a: Array,
    b: Array | None,
    scheme: Scheme,
    tuning: dict[str, Any] | None = None,
) -> list[Buffers]:
    """A kernel on A by rows and B by columns, or on A alone."""
    xs = [operand(a, False)] + ([] if b is None else [operand(b, True)])
    found: list[Buffers] = []
    sizes = SMALL[kernel] if tuning is None else tuning
    for task, its in parts(kernel, task_of(xs, scheme), xs):
        found += _launch(KERNELS[kernel](task, **sizes), its)
    return found


def _launch(how: PackingConfig, xs: list[Operand]) -> list[Buffers]:
    sides = zip(how.layouts, how.task.splitters, strict=True)
    found = [Buffers.fresh(*side) for side in sides]
    between = [_between(how, i) for i in range(len(xs))]
    given: list[tuple[Any, ...]] = [
        (flat(x.owner), *one.arrays[: how.pointers], *theirs, *words)
        for x, one, theirs, words in zip(xs, found, between, how.words, strict=True)
    ]
    if len(xs) == 1:
        # The simulator copies arrays there and back: nothing may be passed twice.
        numbers = len(given[0]) - len(how.words[0])
        given.append((*[np.zeros(1)] * numbers, *how.words[0]))
    module, factory = how.kernel
    function, _ = getattr(import_module(f"{PACKAGE}.{module}"), factory)(*how.constants)
    with simulation():
        launch = cuda.jit(function)[how.grid, how.threads, 0, how.shared]
        for phase in how.phases or (None,):
            last = () if phase is None else (phase,)
            launch(0, 0, *given[0], *given[1], *how.lengths, *last)
    return found


def _between(how: PackingConfig, i: int) -> tuple[Any, ...]:
    """What blocks of a panel leave each other, and their counters; nothing of other kernels."""
    if not how.between[i]:
        return ()
    side = how.constants[0]
    bits = "uint32" if side.memory == "float32" else "uint64"
    ends = *how.between[i], *(how.between[i + 1][:1] if i + 1 < len(how.between) else (how.bytes,))
    kinds = bits, "int32", "float32", "float32", "int32"
    return tuple(
        np.full(size, GARBAGE, np.uint8).view(kind)
        for size, kind in zip(np.diff(ends), kinds, strict=True)
    )
