"""Floating-point slices multiplied as a chip multiplies them: one matrix instruction at a time."""

import numpy as np

from mixpert_py.runtime.model.numerics import Accumulation, accumulate, depth_and_step
from mixpert_py.runtime.packed import Array, Packed, times_power_of_two
from mixpert_py.runtime.scheme import Scheme, TermRun


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
    listed. Then accumulators are combined, and enter the FP32 total. Where one is deferred, the
    other enters the total after a chunk of K, and the deferred one in the end, as on Hopper; the
    portable kernels promote both after every step.
    """
    chunk = scheme.lengths(k)[0]
    depth, step = depth_and_step(scheme)
    sums = scheme.accumulators()
    shape = left.slices.shape[1], right.slices.shape[1]
    if 0 in shape:
        return np.zeros(shape, dtype)
    total, late = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for a, b in zip(left.slices, right.slices, strict=True):

        def added(sum: Array, runs: tuple[TermRun, ...], positions: range) -> Array:
            return _added(how, scheme, runs, a, b, positions, sum)  # noqa: B023 (called here only)

        if scheme.deferred:
            whole = range(0, chunk, depth)
            late = added(late, sums[0][1], whole)
            total += added(np.zeros_like(total), sums[1][1], whole)
            continue
        for start in range(0, chunk, step):
            positions = range(start, min(start + step, chunk), depth)
            partial, before = np.zeros_like(total), 0
            for weight, runs in sums:
                partial *= np.float32(2.0 ** (before - weight))
                partial += added(np.zeros_like(total), runs, positions)
                before = weight
            total += partial
    if scheme.deferred:
        total += late * np.float32(2.0 ** sums[0][0])
    value = total.astype(dtype, copy=False)
    return times_power_of_two(value, left.exponents[:, :1] + right.exponents[:, 0])


def _added(
    how: Accumulation,
    scheme: Scheme,
    runs: tuple[TermRun, ...],
    a: Array,
    b: Array,
    positions: range,
    sum: Array,
) -> Array:
    """What an accumulator holds after its terms over some instructions' depths of K."""
    terms = [(run.left + i, run.right - i) for run in runs for i in range(run.length)]
    for start in positions:
        depth = slice(start, start + positions.step)
        for one, other in terms:
            # B's slices lie in reverse order.
            rows, columns = a[:, one, depth], b[:, b.shape[1] - 1 - other, depth]
            sum = accumulate(_held(rows, scheme), _held(columns, scheme).T, sum, how)
    return sum


def _held(x: Array, scheme: Scheme) -> Array:
    """In the element's type, where NumPy has it: its subnormal numbers are told by that."""
    return x.astype(np.float16) if scheme.element.name == "float16" else x
