"""The loop that executes any scheme on split operands: terms, promotion, epilogue.

Floating-point slices are also multiplied as a chip does, one matrix instruction at a time, bit by
bit. No vendor documents how tensor cores add up; these papers found it out:
[F] Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021.
[K] Khattak, Mikaitis, "Accurate models of NVIDIA tensor cores", 2025.
[X] Xie, Wang, Yang, Yang, "MMA-Sim: bit-accurate reference model of tensor cores", 2025.

Products are exact [F, §3.2]. A group of them, and the addend, are aligned to the largest exponent
among them; what falls below the last bit kept is lost; the rest is added as integers, and only the
sum is normalized and cut to FP32 [F, §3.3–3.4; K, §3; X, §4]. It is the next group's addend. The
sum is never −0, and subnormal numbers count. All chips of NVIDIA's do so, from Volta on.
"""

import functools
from collections.abc import Iterable, Iterator

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.kernels.abi import ELEMENTS
from mixpert_py.runtime.model.device_model import Accumulation, AnyAccumulation, IntegerAccumulation
from mixpert_py.runtime.reference.slices import Packed, times_power_of_two
from mixpert_py.runtime.request import MATMUL
from mixpert_py.runtime.scheme import Scheme, TermRun

# Of C, accumulated at a time: sums and scratch stay in a shared cache, and calls of BLAS are few
# enough for its threads to meet cheaply.
TILE_ELEMENTS = 1 << 20
Floating = np.dtype[np.floating]


def execute(scheme: Scheme, k: int, left: Packed, right: Packed, dtype: Floating) -> Array:
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


def _combined(totals: list[Array], weights: list[int], dtype: Floating) -> Array:
    """Σ total · 2^weight, the smallest weight first; the first total is overwritten."""
    partial = totals[0].astype(dtype, copy=False)
    for total, before, weight in zip(totals[1:], weights[:-1], weights[1:], strict=True):
        partial *= 2.0 ** (before - weight)
        partial += total.astype(dtype, copy=False)
    return partial


def execute_like(
    how: Accumulation, scheme: Scheme, k: int, left: Packed, right: Packed, dtype: Floating
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


# What NVIDIA's instructions return for every NaN [X, §4].
NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)[()]

SMALLEST = -126  # exponent of the smallest normal number of FP32, bfloat16 and TF32
SMALLEST_HALF = -14
# Exponent that stands for a zero's: with any other added to it, less than that of any product.
ZERO = -512
LEAST_SUM = -300  # of no product, and 2^300 is still finite

# Elements of C at a time: what is made of them stays in a core's cache.
CHUNK = 1 << 15

DEPTH = 32  # bytes of K that an instruction multiplies, whatever the element


def accumulate(a: Array, b: Array, c: Array, how: AnyAccumulation) -> Array:
    """C + A·B as one matrix instruction of that chip computes it, bit for bit.

    a: (…, m, k), b: (…, k, n), c: (…, m, n), with the same leading dimensions. float16, or float32
    that holds bfloat16 or TF32 values, and c float32; or int8, and c int32. Returns C's type.
    NaN, and where Inf − Inf and 0 · Inf enter, is 0x7FFFFFFF; a sum of 2^128 or more is Inf.
    """
    if isinstance(how, IntegerAccumulation):
        return _integers(a, b, c)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    value = np.empty((c.size // max(m * n, 1), m, n), np.float32)
    operands = a.reshape(-1, m, k), b.reshape(-1, k, n), c.reshape(-1, m, n)
    with np.errstate(all="ignore"):
        for stack, rows in _chunks(*value.shape):
            left, right, addend = operands[0][stack, rows], operands[1][stack], operands[2]
            value[stack, rows] = _floats(left, right, addend[stack, rows], how)
    return value.reshape(c.shape)


def _integers(a: Array, b: Array, c: Array) -> Array:
    # Exact: |a·b| ≤ 2^14, and no instruction has more of K than float64 has bits to spare.
    return ((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64) + c).astype(np.int32)


def _chunks(count: int, m: int, n: int) -> Iterator[tuple[slice, slice]]:
    """Matrices, and rows of them, to be worked on at a time."""
    height = min(m, max(1, CHUNK // max(n, 1)))
    depth = max(1, CHUNK // max(height * n, 1))
    for first in range(0, count, depth):
        for row in range(0, m, max(height, 1)):
            yield slice(first, first + depth), slice(row, row + height)


def _floats(a: Array, b: Array, c: Array, how: Accumulation) -> Array:
    # The stack lies last, and K first: one position of K at a time, long runs of the rest.
    left = np.ascontiguousarray(a.transpose(2, 1, 0)).astype(np.float64)[:, :, np.newaxis]
    right = np.ascontiguousarray(b.transpose(1, 2, 0)).astype(np.float64)[:, np.newaxis]
    total = np.ascontiguousarray(c.transpose(1, 2, 0)).astype(np.float64)
    smallest = SMALLEST_HALF if a.dtype == np.float16 else SMALLEST
    exponents = _exponents(left, smallest), _exponents(right, smallest)
    for start in range(0, len(left), how.group):
        group = slice(start, start + how.group)
        sums = zip(exponents[0][group], exponents[1][group], strict=True)
        highest = functools.reduce(np.maximum, (x + y for x, y in sums))
        total = _sum(total, zip(left[group], right[group], strict=True), highest, how)
    value = total.astype(np.float32)
    value[np.isnan(value)] = NAN
    return value.transpose(2, 0, 1)


def _sum(
    total: Array, pairs: Iterable[tuple[Array, Array]], highest: Array, how: Accumulation
) -> Array:
    """The addend and the products of a group, as FP32 numbers. highest: exponent of the products,
    ZERO and less where all are zero.
    """
    highest = np.maximum(highest, _exponents(total, SMALLEST))
    highest = np.maximum(highest, LEAST_SUM if how.floor is None else how.floor)
    scale = np.ldexp(1.0, how.fraction - highest)
    aligned = np.trunc(total * scale)
    for x, y in pairs:
        addend = x * y  # exact in float64, and so are all of these steps but the rounding
        addend *= scale
        aligned += np.trunc(addend, out=addend)
    return _cut(aligned / scale)


def _cut(x: Array) -> Array:
    """x cut to an FP32 number; Inf from 2^128 on [K, exceptional cases]."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 1, SMALLEST) - 23)
    x = np.trunc(x / unit) * unit + 0.0
    return np.where(np.abs(x) >= 2.0**128, np.copysign(np.inf, x), x)


def _exponents(x: Array, smallest: int) -> Array:
    """⌊log2 |x|⌋; a subnormal number's is that of the smallest normal one."""
    exponents = np.maximum(np.frexp(x)[1].astype(np.int16) - np.int16(1), np.int16(smallest))
    return np.where(x == 0, np.int16(ZERO), exponents)


def depth_and_step(scheme: Scheme) -> tuple[int, int]:
    """The segments of K that an instruction covers, and that is added up before the sum enters the
    FP32 total.
    """
    depth = DEPTH // ELEMENTS[scheme.element.name].size
    return depth, min(2 * depth, max(depth, scheme.promotion))
