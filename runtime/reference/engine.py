"""The loop that executes any scheme on split operands: terms, promotion, epilogue.

Floating-point slices are also multiplied as a chip does: one matrix instruction at a time.
"""

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.model.numerics import Accumulation, accumulate, depth_and_step
from mixpert_py.runtime.reference.slices import Packed, times_power_of_two
from mixpert_py.runtime.request import MATMUL
from mixpert_py.runtime.scheme import Scheme, TermRun

# Of C, accumulated at a time: sums and scratch stay in a shared cache, and calls of BLAS are few
# enough for its threads to meet cheaply.
TILE_ELEMENTS = 1 << 20


def execute(
    scheme: Scheme, k: int, left: Packed, right: Packed, dtype: np.dtype[np.floating]
) -> Array:
    """C (m, n) from packed operands, inner dimension k, in `dtype`, float32 or float64.

    The order, per element of C: terms of an accumulator as listed, chunk after chunk of K; then the
    accumulators, the smallest weight first, each scaled to the next and added; the sum times the
    significands gA · gB, whose own product is exact, then times 2^(eA + eB), is added to C, segment
    after segment. Sums of integers are exact; the rest is FP32, but for integer schemes with a
    float64 result, where it is float64.
    """
    m, n = left.slices.shape[1], right.slices.shape[1]
    value = np.zeros((m, n), dtype)
    if value.size and k:
        height = max(16, TILE_ELEMENTS // n)
        for start in range(0, m, height):
            rows = slice(start, min(start + height, m))
            _rows(value[rows], scheme, k, left, rows, right)
    return value


def slice_product(left: Array, right: Array, out: Array) -> None:
    """Slices (m, k') times slices (n, k') transposed, by FP32 BLAS, into out (m, n) float32.

    Exact for the digits of one chunk; else one FP32 chain, in BLAS's order, of exact products.
    """
    MATMUL(left, right.T, out=out)


def _rows(value: Array, scheme: Scheme, k: int, left: Packed, rows: slice, right: Packed) -> None:
    """Adds to some rows of C every segment of K: its accumulators combined, scaled and promoted."""
    chunk, block, k_segment = scheme.lengths(k)
    precision = value.dtype if scheme.exact else np.dtype(np.float32)
    wide = np.float64 if scheme.exact and k_segment > chunk else np.float32
    sums = scheme.accumulators()
    totals = [np.empty(value.shape, wide) for _ in sums]
    scratch = np.empty(value.shape, np.float32)
    for t in range(left.exponents.shape[1]):
        end = (t + 1) * block
        for start in range(t * block, end, k_segment):
            chunks = slice(start // chunk, min(start + k_segment, end) // chunk)
            a, b = left.slices[chunks, rows], right.slices[chunks]
            for total, (_, runs) in zip(totals, sums, strict=True):
                _accumulate(total, scratch, runs, a, b)
            partial = _combined(totals, [weight for weight, _ in sums], precision)
            if scheme.fitted:
                partial *= np.outer(left.significands[rows, t], right.significands[:, t])
            own, other = left.exponents[rows, t][:, None], right.exponents[:, t]
            # Floating-point sums may be so large that one factor by itself would overflow.
            exponents = (own, other) if scheme.exact else (own + other,)
            value += times_power_of_two(partial.astype(value.dtype, copy=False), *exponents)


def _accumulate(
    total: Array, scratch: Array, runs: tuple[TermRun, ...], a: Array, b: Array
) -> None:
    """The terms of one accumulator over some chunks of K, into `total`."""
    m, n = total.shape
    first = True
    for left, right in zip(a, b, strict=True):
        for run in runs:
            # B's slices lie in reverse order, so that a run of terms is one range in each operand.
            place = b.shape[2] - 1 - run.right
            here = left[:, run.left : run.left + run.length].reshape(m, -1)
            there = right[:, place : place + run.length].reshape(n, -1)
            if first and total.dtype == scratch.dtype:
                slice_product(here, there, total)
            else:
                slice_product(here, there, scratch)
                if first:
                    total[...] = scratch
                else:
                    total += scratch
            first = False


def _combined(totals: list[Array], weights: list[int], dtype: np.dtype[np.floating]) -> Array:
    """Σ total · 2^weight, the smallest weight first; the first total is overwritten."""
    partial = totals[0].astype(dtype, copy=False)
    for total, before, weight in zip(totals[1:], weights[:-1], weights[1:], strict=True):
        partial *= 2.0 ** (before - weight)
        partial += total.astype(dtype, copy=False)
    return partial


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
    """The content of an accumulator after its terms over some instructions' depths of K."""
    terms = [(run.left + i, run.right - i) for run in runs for i in range(run.length)]
    for start in positions:
        depth = slice(start, start + positions.step)
        for one, other in terms:
            # B's slices lie in reverse order.
            rows, columns = a[:, one, depth], b[:, b.shape[1] - 1 - other, depth]
            sum = accumulate(_held(rows, scheme), _held(columns, scheme).T, sum, how)
    return sum


def _held(x: Array, scheme: Scheme) -> Array:
    """Return an operand in the element's own type where NumPy has that type.

    The instruction recognizes subnormal numbers by the type of its operands.
    """
    return x.astype(np.float16) if scheme.element.name == "float16" else x
