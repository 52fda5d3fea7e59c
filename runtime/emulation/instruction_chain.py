"""Floating-point slices multiplied as a chip multiplies them: one matrix instruction at a time."""

import numpy as np

from mixpert_py.runtime.emulation.packed import Array, Packed, times_power_of_two
from mixpert_py.runtime.model.numerics import Accumulation, accumulate
from mixpert_py.runtime.scheme import Scheme

DEPTH = 32  # bytes of K that an instruction multiplies, whatever the element
ITEMSIZES = {"float16": 2, "bfloat16": 2, "tf32": 4}


def execute_like(
    how: Accumulation,
    scheme: Scheme,
    k: int,
    left: Packed,
    right: Packed,
    dtype: np.dtype[np.floating],
) -> Array:
    """C (m, n) as `engine.execute` makes it, but by instructions of a chip that accumulates so.

    The order is that of the GPU kernels. A step is two instructions deep, or one where the scheme
    is promoted that often; within it, instruction after instruction, the terms of an accumulator as
    listed. Then accumulators are combined, and enter the FP32 total.
    """
    chunk = scheme.lengths(k)[0]
    depth = DEPTH // ITEMSIZES[scheme.element.name]
    step = min(2 * depth, max(depth, scheme.promotion))
    total = np.zeros((left.slices.shape[1], right.slices.shape[1]), np.float32)
    for a, b in zip(left.slices, right.slices, strict=True):
        for start in range(0, chunk, step):
            stretch = range(start, min(start + step, chunk), depth)
            total += _combined(how, scheme, a, b, stretch)
    value = total.astype(dtype, copy=False)
    return times_power_of_two(value, left.exponents[:, :1], right.exponents[:, 0])


def _combined(how: Accumulation, scheme: Scheme, a: Array, b: Array, stretch: range) -> Array:
    """Σ accumulator · 2^weight over some instructions' depths of K, the smallest weight first."""
    partial, before = np.zeros((len(a), len(b)), np.float32), 0
    for weight, runs in scheme.accumulators():
        terms = [(run.left + i, run.right - i) for run in runs for i in range(run.length)]
        total = np.zeros_like(partial)
        for start in stretch:
            for one, other in terms:
                depth = slice(start, start + stretch.step)
                # B's slices lie in reverse order.
                rows, columns = a[:, one, depth], b[:, b.shape[1] - 1 - other, depth]
                total = accumulate(_held(rows, scheme), _held(columns, scheme).T, total, how)
        partial = partial * np.float32(2.0 ** (before - weight)) + total
        before = weight
    return partial


def _held(x: Array, scheme: Scheme) -> Array:
    """In the element's type, where NumPy has it: its subnormal numbers are told by that."""
    return x.astype(np.float16) if scheme.element.name == "float16" else x
