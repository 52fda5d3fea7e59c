"""Products of integers and booleans with the bits of NumPy's own, by products of floating point.

NumPy multiplies integers in plain loops, modulo 2^w for a result of w bits, and so does PyTorch on
a CPU. A product of floating point has the same bits where no partial sum needs more bits than its
significand has:

- where max|a| · max|b| · K ≤ 2^24, one float32 product does; up to 2^53, one float64 product;
- otherwise operands are split into digits, a = Σ aᵢ · 2^(i·d) with |aᵢ| ≤ 2^(d−1), and K into
  panels, so that each sum of aᵢ · bⱼ stays within 2^53. The products of digits are added modulo
  2^w; those whose weight is 2^w or more vanish, and are not made.

A product of booleans is the truth of a count: sums of ones and zeros in float32 are never 0 where
one of them is not.
"""

import math
import sys
from functools import lru_cache
from itertools import product as pairs
from typing import Any, Final, NamedTuple

import numpy as np

from mixpert_py.runtime import signatures, worth
from mixpert_py.runtime.arrays import Array, Scratch, Tensor
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import NUMPYS, is_apart, is_transpose
from mixpert_py.runtime.request import Product, Request, result_shape

PANEL: Final = 1 << 21  # elements of an operand, or of a result, that are multiplied at a time
CACHED: Final = 1 << 18  # bytes that a processor's cache holds between two passes
MOST_DIGITS: Final = 3
SAMPLED: Final = 16  # sums of a product of booleans, or rows and columns, that are looked at
MIN_TO_SAMPLE: Final = 1 << 16  # elements of operands that are read only if a sample looks well
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# Up to these all integers are.
EXACT: "Final[dict[np.dtype[Any], int]]" = {FLOAT32: 1 << 24, FLOAT64: 1 << 53}


class DigitSplit(NamedTuple):
    """How an operand is split: into `number` digits of `width` bits, none above `largest`."""

    number: int
    width: int
    largest: int


class ExactSplit(NamedTuple):
    """How a product is made. dtype: of the products. panel: the longest sum that is exact."""

    dtype: "np.dtype[Any]"
    left: DigitSplit
    right: DigitSplit
    terms: tuple[tuple[int, int], ...]
    panel: int


def as_arrays(*tensors: Tensor) -> list[Array] | None:
    """Two tensors of PyTorch's in the host's memory, of one type of integers whose products it
    makes, as NumPy arrays of the same memory; None for anything else.
    """
    types = {x.dtype for x in tensors}
    if len(types) > 1 or not types <= signatures.of_integers:
        return None
    torch: Any = sys.modules["torch"]
    is_plain = {*map(type, tensors)} <= {torch.Tensor, torch.nn.Parameter}
    # A mode of the program sees what is computed.
    if not is_plain or torch._C._len_torch_dispatch_stack():
        return None
    try:  # not by `numpy()`, after which memory of the program's could not be resized
        found: list[Array] = [np.from_dlpack(x) for x in tensors if x.get_device() < 0]  # type: ignore[arg-type]
    except (BufferError, RuntimeError):  # sparse, nested, or in a transform
        return None
    return found if len(found) == len(tensors) else None


def multiply_tensors(request: Request) -> Product | Reason:
    """As `multiply`, of the arrays of two tensors; the product is a tensor."""
    torch: Any = sys.modules["torch"]
    a, b = request.a, request.b
    result = torch.from_numpy(a[:0]).new_empty(result_shape(a, b))
    out = np.from_dlpack(result)
    if not out.flags.writeable:  # as older NumPy has it
        return Reason.OUT
    product = multiply(request._replace(out=out), threads=torch.get_num_threads())
    return product.with_value(result) if isinstance(product, Product) else product


def multiply(request: Request, threads: int = 0) -> Product | Reason:
    """A·B modulo 2^w, as NumPy computes it, or why NumPy is to compute it.

    a, b: of integers or booleans, two dimensions or more, with an integer or boolean result; stacks
    broadcast as in np.matmul. threads: of PyTorch, if it is to compute it instead. The additional
    memory is that of the digits and partial sums of one panel, 16 MiB each: 64 MiB where one
    product is enough, 160 MiB at most.
    """
    a, b, out = request.a, request.b, request.out
    dtype = np.result_type(a, b)
    shape = result_shape(a, b)
    is_einsum = not threads and request.native not in NUMPYS
    way = _way(a, b, math.prod(shape), dtype, is_einsum=is_einsum, threads=threads)
    if way is None:
        return Reason.TOO_SMALL
    try:
        value = out if out is not None and is_apart(out, a, b) else np.empty(shape, dtype)
        signed = value if dtype.kind == "b" else value.view(f"i{dtype.itemsize}")
        a, b = (x[(np.newaxis,) * (len(shape) - x.ndim)] for x in (a, b))
        _fill(signed, _signed(a), _signed(b), way, adds=False)
    except MemoryError:
        return Reason.MEMORY
    return Product(value, "exact")


def _signed(x: Array) -> Array:
    """An array of integers modulo 2^64 as NumPy's signed ones."""
    return x.view(np.int64) if x.dtype == np.uint64 else x


def _way(
    a: Array, b: Array, results: int, dtype: "np.dtype[Any]", *, is_einsum: bool, threads: int
) -> ExactSplit | None:
    """The quickest way to make a product; None: the program's own is.

    results: the number of its elements. is_einsum: whether NumPy may make it as np.einsum does.
    threads: as in `multiply`.
    """
    k, matrices = a.shape[-1], max(math.prod(x.shape[:-2]) for x in (a, b))

    def seconds(way: ExactSplit) -> float:
        return worth.exact_seconds(
            k * results * len(way.terms) // max(threads, 1),
            way.left.number**2 * a.size + way.right.number**2 * b.size,  # a digit takes passes
            results * len(way.terms) * -(-k // way.panel),
            matrices * len(way.terms) * -(-k // way.panel),
            is_double=way.dtype == FLOAT64,
        )

    native = (
        worth.tensor_seconds(k * results, dtype)
        if threads
        else worth.integer_seconds(k * results, b, dtype, is_einsum=is_einsum)
    )
    if seconds(_single(FLOAT32, 1, 1, k)) >= native:
        return None  # whatever the operands' ranges are

    def quickest(ways: list[ExactSplit]) -> ExactSplit | None:
        best = min(ways, key=seconds, default=None)
        return best if best is not None and seconds(best) < native else None

    def of_integers(left: int, right: int) -> ExactSplit | None:
        """The quickest way for the largest magnitudes of the operands."""
        ways = _undivided(left, right, k)
        if not any(way.panel == k for way in ways) and seconds(_quickest_of_digits(k)) < native:
            ways += _divided(left.bit_length(), right.bit_length(), k, 8 * dtype.itemsize)
        return quickest(ways)

    if dtype.kind == "b":
        if not is_einsum:  # which reads every pair
            native = worth.boolean_seconds(results, _first_true(a, b))
        return quickest([_single(FLOAT32, 1, 1, k)])
    left, right = (_bound(x.dtype) for x in (a, b))
    if left * right * k > EXACT[FLOAT32]:
        a, b = _signed(a), _signed(b)
        some = a.size + b.size >= MIN_TO_SAMPLE and (_largest(_some(a)), _largest(_some(b)))
        if some and of_integers(*some) is None:
            return None  # larger ones take no less
        left, right = min(_largest(a), left), min(_largest(b), right)
    return of_integers(left, right)


def _some(x: Array) -> Array:
    """A few elements of an array's first matrix."""
    matrix: Array = x[(0,) * (x.ndim - 2)]
    return matrix[:: max(1, x.shape[-2] // SAMPLED), :: max(1, x.shape[-1] // SAMPLED)]


def _bound(dtype: "np.dtype[Any]") -> int:
    """The largest magnitude of a type; of unsigned integers of 64 bits, modulo 2^64."""
    if dtype.kind == "b":
        return 1
    bits = 8 * dtype.itemsize
    return 1 << (bits - 1) if dtype.kind == "i" or bits == 64 else (1 << bits) - 1


def _first_true(a: Array, b: Array) -> float:
    """Where in K the first pair of trues is, as the mean of a few sums of the first matrices; K in
    sums without one. NumPy's loop ends there.
    """
    rows, columns = a[(0,) * (a.ndim - 2)], b[(0,) * (b.ndim - 2)].T
    some = [x[:: max(1, len(x) // SAMPLED)][:SAMPLED] for x in (rows, columns[::-1])]
    found = some[0][: len(some[1])] & some[1][: len(some[0])]
    return float(np.where(found.any(1), found.argmax(1) + 1, found.shape[1]).mean())


def _largest(x: Array) -> int:
    """The largest magnitude in an array, at least 1. Every part is read from memory once."""
    if x.dtype.kind == "b":
        return 1
    if x.nbytes <= CACHED:
        return max(int(x.max()), -int(x.min()), 1)
    axis = max(range(x.ndim), key=lambda axis: abs(x.strides[axis]))
    x = x.swapaxes(0, axis)
    step = max(1, CACHED * len(x) // x.nbytes)
    parts = (x[at : at + step] for at in range(0, len(x), step))
    return max(max(int(part.max()), -int(part.min()), 1) for part in parts)


def _single(dtype: "np.dtype[Any]", left: int, right: int, panel: int) -> ExactSplit:
    """One product of undivided operands. left, right: the largest magnitude of each."""
    return ExactSplit(dtype, DigitSplit(1, 0, left), DigitSplit(1, 0, right), ((0, 0),), panel)


def _undivided(left: int, right: int, k: int) -> list[ExactSplit]:
    """The ways to make a product of operands of such magnitudes without digits."""
    panels = ((dtype, min(k, exact // (left * right))) for dtype, exact in EXACT.items())
    return [_single(dtype, left, right, panel) for dtype, panel in panels if panel]


@lru_cache(maxsize=256)
def _divided(left: int, right: int, k: int, bits: int) -> tuple[ExactSplit, ...]:
    """The ways to make a product of digits. left, right: bits of the operands' largest magnitudes;
    bits: of the result.
    """
    counts = range(1, MOST_DIGITS + 1)
    splits = [[_digits_of(1 << size, count) for count in counts] for size in (left, right)]
    ways = []
    for one, other in pairs(*splits):
        panel = min(k, EXACT[FLOAT64] // (one.largest * other.largest))
        places = pairs(range(one.number), range(other.number))
        terms = tuple((i, j) for i, j in places if i * one.width + j * other.width < bits)
        if panel:
            ways.append(ExactSplit(FLOAT64, one, other, terms, panel))
    return tuple(ways)


def _quickest_of_digits(k: int) -> ExactSplit:
    """The cheapest way that digits may need: whoever loses with it need not look at others."""
    return ExactSplit(FLOAT64, DigitSplit(1, 0, 1), DigitSplit(2, 1, 1), ((0, 0), (0, 1)), k)


def _digits_of(largest: int, count: int) -> DigitSplit:
    """The narrowest digits by which so many hold numbers up to a magnitude."""
    if count == 1:
        return DigitSplit(1, 0, largest)
    width = 1 + largest.bit_length() // count
    # What is left for the last digit may have been rounded up.
    while (largest >> (count - 1) * width) + 1 > 1 << (width - 1):
        width += 1
    return DigitSplit(count, width, 1 << (width - 1))


def _fill(out: Array, a: Array, b: Array, way: ExactSplit, *, adds: bool) -> None:
    """Write A·B into `out`, or add it. All three have as many dimensions.

    Arrays that are larger than a panel are halved along their longest axis, stacks along their
    first. Then K is cut into sums that are exact.
    """
    m, k, n = *a.shape[-2:], b.shape[-1]
    if max(a.size, b.size, out.size) <= PANEL:
        for start in range(0, k, way.panel):
            stop = start + way.panel
            _multiply_panel(out, a[..., start:stop], b[..., start:stop, :], way, adds=adds)
            adds = True
    elif out.ndim > 2:
        count = len(out)
        for part in _halves(count) if count > 1 else (0,):
            left, right = (x[part] if len(x) == count else x for x in (a, b))
            _fill(out[part], left, right, way, adds=adds)
    elif k >= max(m, n):
        for part in _halves(k):
            _fill(out, a[:, part], b[part], way, adds=adds)
            adds = True
    elif m >= n:
        for part in _halves(m):
            _fill(out[part], a[part], b, way, adds=adds)
    else:
        for part in _halves(n):
            _fill(out[:, part], a, b[:, part], way, adds=adds)


def _halves(size: int) -> tuple[slice, slice]:
    middle = (size + 1) // 2
    return slice(middle), slice(middle, size)


def _multiply_panel(out: Array, a: Array, b: Array, way: ExactSplit, *, adds: bool) -> None:
    """Write A·B into `out`, or add it, where no sum is too long for the way."""
    with Scratch() as memory:
        left = _split(a, way.left, way.dtype, memory)
        if way.left.number == way.right.number == 1 and is_transpose(a, b):
            right = [left[0].T]  # BLAS makes X·Xᵀ in half the time
        else:
            right = _split(b, way.right, way.dtype, memory)
        made = memory.empty(out.shape, way.dtype)
        for i, j in way.terms:
            np.matmul(left[i], right[j], out=made)
            _add(out, made, i * way.left.width + j * way.right.width, adds)
            adds = True


def _add(out: Array, made: Array, shift: int, adds: bool) -> None:
    """Write sums of integers times 2^shift into `out`, or add them, modulo 2^w."""
    if out.dtype.kind == "b":
        if adds:
            np.logical_or(out, made, out=out)
        else:
            np.not_equal(made, 0, out=out)
        return
    # Only what surely holds the sums: the cast of others is not defined.
    part = made.astype(np.int32 if made.dtype == FLOAT32 else np.int64)
    if shift:
        np.left_shift(part, shift, out=part)
    if adds:
        np.add(out, part, out=out, casting="unsafe")
    else:
        np.copyto(out, part, casting="unsafe")


def _split(x: Array, digits: DigitSplit, dtype: "np.dtype[Any]", memory: Scratch) -> list[Array]:
    """The digits of an array, the lowest first, each in the type of the products."""
    if digits.number == 1:
        return [_cast(x, dtype, memory)]
    half = 1 << (digits.width - 1)
    made = []
    x = x.astype(np.int64)
    for _ in range(digits.number - 1):
        low = x + half
        low &= (half << 1) - 1
        low -= half
        made.append(_cast(low, dtype, memory))
        x -= low
        x >>= digits.width
    return [*made, _cast(x, dtype, memory)]


def _cast(x: Array, dtype: "np.dtype[Any]", memory: Scratch) -> Array:
    """An array in another type, in an order of axes that BLAS takes."""
    if x.nbytes <= CACHED:
        return x.astype(dtype, "K" if x.ndim == 2 else "C")
    steps = [abs(step) for step in x.strides]
    if x.ndim == 2 or min(steps[-2:]) == min(steps):
        return memory.cast(x, dtype)
    made = memory.empty(x.shape, dtype)
    np.copyto(made, x)
    return made
