"""Integer slices: digits in units shared by a block of an operand."""

import math

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.reference.packed import (
    Packed,
    crowded,
    lossy,
    padded,
    panels,
    times_power_of_two,
)
from mixpert_py.runtime.splitter import FIT, Digits, OutlierRule

SAMPLE = 16  # entries of a block that usually show that its two highest digits do not hold it


def split(
    x: Array,
    splitter: Digits,
    chunk: int,
    block: int,
    *,
    reverse: bool = False,
    rule: OutlierRule = "loss",
) -> Packed:
    """Digits of x (rows, k), float32 or float64, any strides, straight from its own mantissas.

    With e the block exponent, |x| < 2^e, raised by one where rounding needs the room, and where all
    digits are kept, |x − Σ slices| ≤ 2^(e − shift − 1) elementwise. In fitted units, for float32,
    it is ≤ 1.25 · (g / 256) · 2^(e − shift): x is scaled by two roundings in its own precision; and
    a block that two digits hold, integers up to ±32 639 say, loses nothing. Subnormals are kept.
    Rows with NaN or Inf, and outliers by `rule`, are split as zeros.
    """
    rows, k = x.shape
    blocks = -(-k // block)
    chunks = blocks * (block // chunk)
    slices = np.empty((chunks, rows, splitter.count, chunk), np.float32)
    exponents = np.empty((rows, blocks), np.int32)
    significands = np.empty((rows, blocks), np.float32)
    outlier = np.zeros((rows, blocks), bool)
    nonfinite = np.zeros(rows, bool)
    for panel in panels(rows, k, splitter.group):
        flagged = outlier[panel]
        scaled = padded(x, panel, blocks * block)
        tiles = scaled.reshape(len(scaled), blocks, block)
        largest, nonfinite[panel] = _largest(tiles, splitter.group)
        exponent, significand = _units(tiles, largest, splitter)
        exponents[panel], significands[panel] = exponent, significand
        times_power_of_two(tiles, (splitter.shift - exponent)[:, :, None])
        size = _squares(scaled, chunk, blocks)
        rounded, residual = _rounded(tiles, significand, splitter)
        if rule == "loss":
            flagged[:] = lossy(size, _squares(residual, chunk, blocks), exponent, splitter)
        integers = rounded.astype("<i4")
        pieces = _lay_out(slices[:, panel], integers, splitter, blocks, reverse)
        if rule == "loss" and splitter.lower_limit < math.inf:
            lower = pieces[1:] * np.square(significand, dtype=np.float64)
            flagged |= crowded(size, lower, exponent, splitter, k)
        if flagged.any():
            slices[:, panel][np.repeat(flagged.T, block // chunk, axis=0)] = 0
    return Packed(slices, exponents - 7, significands, outlier, nonfinite)


def _lay_out(slices: Array, integers: Array, splitter: Digits, blocks: int, reverse: bool) -> Array:
    """Writes the digits into (chunks, rows, count, chunk); their squares (count, rows, blocks)."""
    chunks, rows, count, chunk = slices.shape
    squares = np.empty((count, rows, blocks))
    digits = _balanced if splitter.width == 8 else _sevens
    for p, digit in enumerate(digits(integers, splitter)):
        place = slices[:, :, count - 1 - p if reverse else p]
        place[...] = digit.reshape(rows, chunks, chunk).transpose(1, 0, 2)
        squares[p] = _per_block(np.einsum("crl,crl->rc", place, place), blocks)
    return squares


def _largest(tiles: Array, group: int) -> tuple[Array, Array]:
    """Largest |x| per row and block, shared by a group of rows; and which rows are not finite.

    Rows that are not finite become zero in `tiles`.
    """
    largest = np.maximum(tiles.max(axis=2), -tiles.min(axis=2))
    nonfinite = ~np.isfinite(largest).all(axis=1)
    if nonfinite.any():
        tiles[nonfinite] = 0
        largest[nonfinite] = 0
    if group > 1:
        shared = np.maximum.reduceat(largest, np.arange(0, len(largest), group), axis=0)
        largest = np.repeat(shared, group, axis=0)[: len(largest)]
    return largest, nonfinite


def _units(tiles: Array, largest: Array, splitter: Digits) -> tuple[Array, Array]:
    """Exponents e and significands g / 256, float32: digits count (g / 256) · 2^(e − shift).

    e is the smallest with largest < 2^e. Fitted, g = floor(largest · 2^-e · 257.25) + 1, computed
    in the operand's precision: 129 … 258. Not fitted, or where two digits then hold the block,
    g = 256, and e is raised by one where the digits do not hold RN(largest · 2^(shift − e)).

    A block of zeros takes the largest exponent of its row, so that it never widens the range.
    """
    fraction, exponent = np.frexp(largest)
    significand = np.ones(largest.shape, np.float32)
    zero = largest == 0
    wide = fraction.astype(np.float64)
    raised = exponent + (np.rint(np.ldexp(wide, splitter.shift)) > splitter.largest)
    if splitter.fitted:
        bare = zero | _held(tiles, raised, splitter)
        fit = np.floor(fraction * fraction.dtype.type(FIT)) + 1
        significand[~bare] = fit[~bare] / 256
        raised = np.where(bare, raised, exponent)
    exponent = raised
    if zero.any():
        highest = np.where(zero, np.iinfo(np.int32).min, exponent).max(axis=1, keepdims=True)
        exponent = np.where(zero, np.where(zero.all(axis=1, keepdims=True), 0, highest), exponent)
    return exponent.astype(np.int32), significand


def _held(tiles: Array, exponent: Array, splitter: Digits) -> Array:
    """Blocks of which all entries are multiples of 2^(exponent − splitter.held): (rows, blocks).

    A few entries of each are looked at first, the rest where they do not tell.
    """
    lowest = exponent - splitter.held
    held = _all_multiples(tiles[:, :, :SAMPLE], lowest, splitter.group)
    if held.any() and tiles.shape[2] > SAMPLE:
        if splitter.group > 1:
            return _all_multiples(tiles, lowest, splitter.group)
        held[held] = _all_multiples(tiles[held], lowest[held])
    return held


def _all_multiples(x: Array, exponent: Array, group: int = 1) -> Array:
    """Whether all of x (…, k) are multiples of 2^exponent (…), or of a group of its rows.

    What underflows is none; no entry reaches 2^(exponent + 16), so none overflows.
    """
    scaled = times_power_of_two(x.copy(), -exponent[..., None])
    found: Array = ((scaled == np.rint(scaled)) & ((scaled != 0) | (x == 0))).all(axis=-1)
    if group > 1:
        shared = np.logical_and.reduceat(found, np.arange(0, len(found), group), axis=0)
        found = np.repeat(shared, group, axis=0)[: len(found)]
    return found


def _rounded(tiles: Array, significand: Array, splitter: Digits) -> tuple[Array, Array]:
    """q = RN(x · RN(256 / g)) of x = `tiles`, and x − q · g / 256; `tiles` may be overwritten.

    Both products and the quotient are rounded in the operand's precision. What they leave is exact,
    in float64 where fitted: q · g has 33 bits, and is so near to x that the difference has no more
    than x's own.
    """
    if not splitter.fitted or (significand == 1).all():
        rounded = np.rint(tiles)
        return rounded, np.subtract(tiles, rounded, out=tiles)
    scale = significand[:, :, None]
    rounded = tiles * (1 / scale.astype(tiles.dtype))
    np.rint(rounded, out=rounded)
    worth = rounded.astype(np.float64)
    worth *= scale
    return rounded, np.subtract(tiles, worth, out=worth)


def _balanced(integers: Array, splitter: Digits) -> list[Array]:
    """Base-256 digits in [−128, 127], the highest first; `integers` is overwritten.

    Adding 128 to every digit turns them into the bytes of an unsigned integer; an exclusive or
    with 128 takes it off again.
    """
    bias = np.uint32(0x80808080 & (256**splitter.count - 1))
    unsigned = integers.view("<u4")
    unsigned += bias
    unsigned ^= bias
    places = unsigned.view(np.int8).reshape(*integers.shape, 4)
    return [places[..., splitter.count - 1 - p] for p in range(splitter.count)]


def _sevens(integers: Array, splitter: Digits) -> list[Array]:
    """Signed 7-bit digits of the magnitude, the highest first."""
    sign, magnitude = np.sign(integers), np.abs(integers)
    last = splitter.digits - 1
    return [sign * (magnitude >> 7 * (last - p) & 127) for p in range(splitter.count)]


def _squares(panel: Array, chunk: int, blocks: int) -> Array:
    """Sum of squares per row and block; single precision adds up no more than one chunk."""
    parts = panel.reshape(len(panel), -1, chunk)
    return _per_block(np.einsum("rcl,rcl->rc", parts, parts), blocks)


def _per_block(sums: Array, blocks: int) -> Array:
    total: Array = sums.reshape(len(sums), blocks, -1).sum(axis=2, dtype=np.float64)
    return total
