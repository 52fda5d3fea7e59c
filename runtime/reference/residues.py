"""Residues of operands, and the remainder theorem, in NumPy: what `schemes.residues` means."""

from dataclasses import dataclass

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.reference import engine
from mixpert_py.runtime.reference.slices import Packed, padded, panels, times_power_of_two
from mixpert_py.runtime.scheme import EXACT_CHUNK, Scheme
from mixpert_py.runtime.schemes.crt import CLIP, NONE, UNFIT, Rows
from mixpert_py.runtime.schemes.integers import SMALL as SMALL_INTEGERS
from mixpert_py.runtime.schemes.integers import Bounds, Integers
from mixpert_py.runtime.schemes.residues import INT32, Theorem, fewest_moduli, theorem
from mixpert_py.runtime.splitter import Residues

ESTIMATE = 15  # bits of a row's largest entry by which its norm is bounded
SMALL = 2.0**45  # integers whose quotients by a modulus FP64 finds to within 1/512


@dataclass(frozen=True, slots=True, eq=False)
class PackedPair:
    """Both packed operands, and the moduli of their slices: the scheme's, or those for integers."""

    left: Packed
    right: Packed
    moduli: tuple[int, ...]


def pack(a: Array, b: Array, scheme: Scheme) -> PackedPair:
    """Residues of A by rows, and of B by columns; of integers as they are, modulo the fewest."""
    assert isinstance(scheme.left, Residues)
    k = a.shape[1]
    moduli = _moduli_of_integers(a, b)
    is_exact = isinstance(scheme.left, Integers)
    if moduli is not None and (is_exact or len(moduli) <= scheme.left.count):
        chunk = min(k, EXACT_CHUNK) if moduli == INT32 else scheme.lengths(k)[0]
        return PackedPair(split(a, moduli, chunk), split(b.T, moduli, chunk), moduli)
    chunk, limit = scheme.lengths(k)[0], scheme.left.limit(k)
    left, right = (split(x, scheme.moduli, chunk, limit) for x in (a, b.T))
    return PackedPair(left, right, scheme.moduli)


def _moduli_of_integers(a: Array, b: Array) -> tuple[int, ...] | None:
    """The moduli by which A·B is exact; None unless both operands hold integers that are not too
    large.

    Rows of A and columns of B with NaN or Inf do not count: they are left out.
    """
    bounds = []
    for x, axis in ((a, 1), (b, 0)):
        finite = np.isfinite(x).all(axis=axis, keepdims=True)
        x = x if finite.all() else np.where(finite, x, 0)
        if not (x[:1] == np.rint(x[:1])).all() or not (x == np.rint(x)).all():
            return None
        bounds.append((float(x.min(initial=0)), float(x.max(initial=0))))
    return fewest_moduli(bounds[0], bounds[1], a.shape[1])


def split(x: Array, moduli: tuple[int, ...], chunk: int, limit: float | None = None) -> Packed:
    """Residues of x (rows, k), float32 or float64, any strides, as slices.

    limit: of a row's sum of squares, as integers; None: x holds integers, which are taken as they
    are. Packed.slices are INT16 modulo INT32, else INT8. Rows with NaN or Inf are zeros.
    """
    rows, k = x.shape
    chunks = -(-k // chunk)
    kind = np.int16 if moduli == INT32 else np.int8
    slices = np.empty((chunks, rows, len(moduli), chunk), kind)
    exponents = np.zeros((rows, 1), np.int32)
    nonfinite = np.zeros(rows, bool)
    for panel in panels(rows, k):
        values = padded(x, panel, chunks * chunk).astype(np.float64)
        largest = np.maximum(values.max(axis=1), -values.min(axis=1))
        nonfinite[panel] = ~np.isfinite(largest)
        values[nonfinite[panel]] = largest[nonfinite[panel]] = 0
        if limit is not None:
            scale = scales(values, largest, limit)
            exponents[panel, 0] = -scale
            times_power_of_two(values, scale[:, None])
        integers = np.rint(values)
        for place, residue in enumerate(residues(integers, moduli)):
            tiles = residue.reshape(len(residue), chunks, chunk)
            slices[:, panel, place] = tiles.transpose(1, 0, 2)
    significands, outlier = np.ones((rows, 1), np.float32), np.zeros((rows, 1), bool)
    return Packed(slices, exponents, significands, outlier, nonfinite)


def scales(x: Array, largest: Array, limit: float) -> Array:
    """s for each row of x (rows, k) float64: the squares of x · 2^s, rounded, sum to no more than
    `Residues.largest`, by a limit that is `Residues.limit` of k. largest: |x|'s, for each row.
    """
    exponent = np.frexp(largest)[1].astype(np.int32)
    steps = _steps(x, exponent)
    fraction, power = np.frexp(np.einsum("rk,rk->r", steps, steps))
    highest, top = np.frexp(limit)
    difference = top - power
    found = difference >> 1
    found -= (difference % 2 == 0) & (fraction > highest)
    return np.where(largest > 0, found + ESTIMATE - exponent, 0).astype(np.int32)


def _steps(x: Array, exponent: Array) -> Array:
    """⌈|x| · 2^(15−e)⌉ of each entry."""
    steps: Array = np.ceil(times_power_of_two(np.abs(x), ESTIMATE - exponent[:, None]))
    np.maximum(steps, x != 0, out=steps)  # what underflows is rounded up, too
    return steps


def rows_of(x: Array) -> Rows:
    """The facts that `schemes.crt` needs about an operand (rows, k), of complex numbers as of twice
    as many real ones.
    """
    if is_complex(x):
        x = np.concatenate([x.real, x.imag], axis=1)
    k, found = x.shape[1], NONE
    for panel in panels(*x.shape):
        values = x[panel].astype(np.float64)
        largest = np.abs(values).max(axis=1, initial=0)
        if not np.isfinite(largest).all():
            return UNFIT
        values, largest = values[largest > 0], largest[largest > 0]
        if not len(values):
            continue
        steps = _steps(values, np.frexp(largest)[1].astype(np.int32))
        squares = np.einsum("rk,rk->r", steps, steps)
        numbers: list[float] = []
        for some in (steps, np.minimum(steps, CLIP)):
            along = np.maximum(some.sum(axis=1) - k, 0.0)
            along *= along
            for total in (np.einsum("rk,rk->r", some, some), squares):
                numbers.append(float((along / (k * total)).min()))
        found = Rows(*map(min, found, numbers))
    return found


def bounds_of(x: Array) -> Bounds | None:
    """The bounds of an operand's entries; None if they are not real integers of limited size."""
    if is_complex(x):
        return None
    smallest, largest = (float(f(x, initial=0)) for f in (np.min, np.max))
    if not max(-smallest, largest) < SMALL_INTEGERS or not (x == np.rint(x)).all():
        return None
    return Bounds(smallest, largest)


def residues(integers: Array, moduli: tuple[int, ...]) -> list[Array]:
    """The residues of float64 integers below 2^77 for each modulus: float64 in [−p/2, p/2)."""
    if moduli == INT32:
        return [integers]
    if np.abs(integers).max(initial=0) < SMALL:
        return [reduced(integers, p) for p in moduli]
    high = np.rint(integers * 2.0**-32)
    low = integers - high * 2.0**32
    return [reduced(high * float((1 << 32) % p) + low, p) for p in moduli]


def reduced(x: Array, modulus: int) -> Array:
    """x modulo p ≤ 256 in [−p/2, p/2), for float64 integers below 2^48."""
    found: Array = np.rint(x * (1 / modulus))
    found *= -float(modulus)
    found += x
    if modulus % 2 == 0:
        found[found == modulus // 2] -= modulus
    return found


def execute(pair: PackedPair, dtype: engine.Floating) -> Array:
    """C (m, n) of packed operands, in `dtype`, float32 or float64."""
    m, n = pair.left.slices.shape[1], pair.right.slices.shape[1]
    value = np.zeros((m, n), dtype)
    if not value.size:
        return value
    height = max(16, engine.TILE_ELEMENTS // n)
    for start in range(0, m, height):
        rows = slice(start, min(start + height, m))
        total = _integers(pair, rows)
        scale = pair.left.exponents[rows], pair.right.exponents[:, 0]
        with np.errstate(all="ignore"):
            value[rows] = times_power_of_two(total, *scale)
    return value


def _integers(pair: PackedPair, rows: slice) -> Array:
    """Some rows of the product of integers, rounded to float64 once."""
    sums = (_sum(pair, rows, place) for place in range(len(pair.moduli)))
    if pair.moduli == INT32:
        return next(sums)
    known = theorem(pair.moduli)
    parts: list[Array] = []
    for total, modulus, weights in zip(sums, pair.moduli, known.weights, strict=True):
        residue = reduced(total, modulus)
        if not parts:
            parts = [np.zeros_like(residue) for _ in weights]
        for part, weight in zip(parts, weights, strict=True):
            part += residue * weight
    return combined(parts, known)


def _sum(pair: PackedPair, rows: slice, place: int) -> Array:
    """A slice product over all of K, exact because FP32 BLAS sums no more than a chunk."""
    left, right = pair.left.slices, pair.right.slices
    shape = rows.stop - rows.start, right.shape[1]
    total, scratch = np.zeros(shape), np.empty(shape, np.float32)
    for a, b in zip(left[:, rows, place], right[:, :, place], strict=True):
        engine.slice_product(a.astype(np.float32), b.astype(np.float32), scratch)
        total += scratch
    return total


def combined(parts: list[Array], known: Theorem) -> Array:
    """Σ parts modulo P, within P / 2, rounded to float64 once; the parts are overwritten."""
    quotient = np.rint((parts[0] + sum(parts[1:2])) * (1 / sum(known.product)))
    for part, of_product in zip(parts, known.product, strict=True):
        part -= quotient * of_product
    # From below, what a part has of the next one's units goes there: then parts do not overlap.
    for place in range(len(parts) - 1, 0, -1):
        unit = known.units[place - 1]
        carried = np.rint(parts[place] * (1 / unit)) * unit
        parts[place] -= carried
        parts[place - 1] += carried
    return _rounded(parts)


def _rounded(parts: list[Array]) -> Array:
    """The sum of these, the largest first, rounded to nearest even.

    Smaller parts are rounded to odd, so that the last rounding acts as the only one (Boldo and
    Melquiond 2008).
    """
    total, errors = parts[-1], []
    for part in reversed(parts[:-1]):
        total, error = _two_sum(part, total)
        errors.append(error)
    if len(errors) < 2:
        return total
    rest = errors[0]
    for error in errors[1:]:
        rest = _odd(*_two_sum(error, rest))
    return np.asarray(total + rest)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b rounded to nearest, and what that lost (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _odd(total: Array, error: Array) -> Array:
    """A sum and its error as one number: rounded to odd where there is an error."""
    is_even = (error != 0) & (total.view(np.int64) & 1 == 0)
    towards = np.where((error > 0) == (total > 0), 1, -1)
    return np.asarray((total.view(np.int64) + is_even * towards).view(np.float64))
