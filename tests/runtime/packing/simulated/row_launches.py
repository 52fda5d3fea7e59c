"""Launches of the row kernels in Numba's simulator, on NumPy arrays laid out as on the device."""

from typing import Any

import numpy as np
from numba import cuda

from mixpert_py.runtime.outliers import OutlierRule
from mixpert_py.runtime.packing.row_kernels import row_kernel, tile_kernel
from mixpert_py.runtime.packing.rows import RowPacking, Tuning, row_packing, suits
from mixpert_py.runtime.scheme import Scheme
from tests.runtime.families import Array
from tests.runtime.packing.simulated.launches import GARBAGE, Buffers, flat, operand, simulation
from tests.runtime.packing.simulated.launches import _buffers as buffers_of

SMALL = Tuning(32, 32, 0, 1, 32, 4, 3)


def pack(
    a: Array, b: Array | None, scheme: Scheme, rule: OutlierRule = "loss", tuning: Tuning = SMALL
) -> tuple[Buffers, ...]:
    """The row kernels on A by rows and B by columns, or on A alone."""
    xs = [operand(a, False)] + ([] if b is None else [operand(b, True)])
    splitters = (scheme.left, scheme.right)[: len(xs)]
    result = "float64" if any(x.memory == "float64" for x in xs) else "float32"
    forms = tuple(x.form for x in xs)
    assert suits(splitters, forms, scheme.lengths(xs[0].k)[1], False, rule)
    how = row_packing(splitters, forms, result, rule, tuning)
    found = tuple(
        buffers_of(place, splitter, x)
        for place, splitter, x in zip(how.layouts, splitters, xs, strict=True)
    )
    parts = [
        (flat(x.owner), *one.arrays[:3], *_between(how, i))
        for i, (x, one) in enumerate(zip(xs, found, strict=True))
    ]
    grids = [
        cover.strips * max(cover.looks, 1) * x.batch
        for cover, x in zip(how.covers, xs, strict=True)
    ]
    lengths = xs[0].k, how.layouts[0].steps
    rows = [(*part[:-1], *words) for part, words in zip(parts, how.row_words, strict=True)]
    tiled = [i for i, cover in enumerate(how.covers) if not cover.along]
    last = len(xs) - 1
    # The simulator copies arrays there and back: nothing may be passed twice.
    nothing = np.zeros(1)
    none = (nothing,) * 7 + how.row_words[0]
    with simulation():
        function, _ = row_kernel(how.sides[0], how.sides[last], *how.constants)
        first, second = grids[0], grids[1] if last else 0
        others = rows[1] if last else none
        cuda.jit(function)[first + second, how.constants[0]](*rows[0], first, *others, *lengths)
        if tiled:
            sides = how.sides[tiled[0]], how.sides[tiled[-1]]
            function, _ = tile_kernel(*sides, tuning.tile_threads, tuning.across)
            tiles = [(*parts[i], *how.tile_words[i]) for i in tiled]
            grids = [how.covers[i].strips * how.covers[i].pieces * xs[i].batch for i in tiled]
            others = tiles[1] if len(tiled) > 1 else (nothing,) * 8 + how.tile_words[0]
            arguments = *tiles[0], grids[0], *others, *lengths
            cuda.jit(function)[sum(grids), tuning.tile_threads](*arguments)
    return found


def _between(how: RowPacking, i: int) -> tuple[Any, ...]:
    sizes = np.diff(how.offsets[i])
    kinds = "uint32" if how.sides[i].memory == "float32" else "uint64", "int32", "int32", "float32"
    return tuple(
        np.full(size, GARBAGE, np.uint8).view(kind) for size, kind in zip(sizes, kinds, strict=True)
    )
