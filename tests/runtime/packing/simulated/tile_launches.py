"""Launches of the tile kernel in Numba's simulator, on NumPy arrays laid out as on the device."""

import numpy as np
from numba import cuda

from mixpert_py.runtime.packing.blocks import TileTuning, tile_config, tiles_suit
from mixpert_py.runtime.packing.tile_kernels import tile_kernel
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule
from tests.runtime.families import Array
from tests.runtime.packing.simulated.launches import (
    Buffers,
    buffers_of,
    flat,
    operand,
    task_of,
)
from tests.runtime.packing.simulated.simulation import simulation

SMALL = TileTuning(threads=32)


def pack(
    a: Array,
    b: Array | None,
    scheme: Scheme,
    rule: OutlierRule = "loss",
    tuning: TileTuning = SMALL,
) -> tuple[Buffers, ...]:
    """The tile kernel on A by rows and B by columns, or on A alone."""
    xs = [operand(a, False)] + ([] if b is None else [operand(b, True)])
    task = task_of(xs, scheme, rule)
    assert tiles_suit(task)
    how = tile_config(task, tuning)
    found = tuple(buffers_of(how, xs))
    parts = [(flat(x.owner), *one.arrays[:4]) for x, one in zip(xs, found, strict=True)]
    others = parts[1] if b is not None else (np.zeros(1),) * len(parts[0])
    function, _ = tile_kernel(*how.constants)
    with simulation():
        launch = cuda.jit(function)[how.grid, how.threads]
        launch(*parts[0], *how.words[0], *others, *how.words[-1], *how.lengths)
    return found
