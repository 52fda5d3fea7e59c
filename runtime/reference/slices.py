"""Operands split into slices: digits in units that a block shares, or floating-point numbers.

Rows, columns and tiles whose entries differ too much in size for one unit are outliers: they leave
the slices, and `reference` multiplies them in the result's own precision.
"""

import math
from dataclasses import dataclass

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.splitter import FIT, Digits, Element, FloatSlices

SAMPLE = 16  # entries of a block that usually show that its two highest digits do not hold it
PANEL_ELEMENTS = 1 << 16  # of an operand, split at a time: they stay in a core's cache
SAFE_EXPONENT = 60  # factors up to 2^60 keep every intermediate of a float32 sum normal


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A (m, k) by rows, or B (k, n) by columns; `rows` below means either.

    slices: (chunks, rows, count, chunk) float32, residues as integers: a row's slices of one chunk
    of K side by side, the highest first, or last where packed in reverse. K is padded with zeros.
    exponents: (rows, blocks) int32, significands: (rows, blocks) float32, multiples of 2^-8 in
    [1/2, 1.01): slices over block t carry significands[:, t] · 2^exponents[:, t].
    outlier: (rows, blocks) bool, and nonfinite: (rows,) bool, left out of the slices.
    """

    slices: Array
    exponents: Array
    significands: Array
    outlier: Array
    nonfinite: Array


def panels(rows: int, k: int, group: int = 1) -> list[slice]:
    """Rows in panels of about PANEL_ELEMENTS, each a multiple of `group` rows."""
    height = max(1, PANEL_ELEMENTS // max(k, 1) // group) * group
    return [slice(start, min(start + height, rows)) for start in range(0, rows, height)]


def padded(x: Array, rows: slice, k: int) -> Array:
    """A contiguous copy of some rows of x in native byte order, K padded with zeros to k."""
    panel = np.empty((rows.stop - rows.start, k), x.dtype.newbyteorder("="))
    panel[:, : x.shape[1]] = x[rows]
    panel[:, x.shape[1] :] = 0
    return panel


def times_power_of_two(x: Array, *exponents: Array) -> Array:
    """x · 2^Σ exponents in place, rounded at most once whatever the single factors; returns x.

    exponents: int32, each broadcastable to x. Where no intermediate value can leave the normal
    range the factors are multiplied one by one: exact, and much faster than ldexp.
    """
    if all(np.abs(exponent).max(initial=0) <= SAFE_EXPONENT for exponent in exponents):
        for exponent in exponents:
            if exponent.any():
                x *= np.ldexp(x.dtype.type(1), exponent)
        return x
    total = exponents[0]
    for exponent in exponents[1:]:
        total = total + exponent
    return np.ldexp(x, total, out=x)


def into_digits(
    x: Array, splitter: Digits, chunk: int, block: int, *, reverse: bool = False
) -> Packed:
    """Digits of x (rows, k), float32 or float64, any strides, straight from its own mantissas.

    With e the block exponent, |x| < 2^e, raised by one where rounding needs the room, and where all
    digits are kept, |x − Σ slices| ≤ 2^(e − shift − 1) elementwise. In fitted units, for float32,
    it is ≤ 1.25 · (g / 256) · 2^(e − shift): x is scaled by two roundings in its own precision; and
    a block that two digits hold, integers up to ±32 639 say, loses nothing. Subnormals are kept.
    Rows with NaN or Inf, and outliers, are split as zeros.
    """
    rows, k = x.shape
    blocks = -(-k // block)
    slices = np.empty((blocks * (block // chunk), rows, splitter.count, chunk), np.float32)
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
        flagged[:] = lossy(size, _squares(residual, chunk, blocks), exponent, splitter)
        pieces = _lay_out(slices[:, panel], rounded.astype("<i4"), splitter, blocks, reverse)
        if splitter.lower_limit < math.inf:
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
    return _in_groups(np.maximum, largest, group), nonfinite


def _in_groups(operation: np.ufunc, x: Array, group: int) -> Array:
    """x (rows, …) with each row replaced by the operation on all rows of its group."""
    if group == 1:
        return x
    shared = operation.reduceat(x, np.arange(0, len(x), group), axis=0)
    return np.repeat(shared, group, axis=0)[: len(x)]


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
    found = ((scaled == np.rint(scaled)) & ((scaled != 0) | (x == 0))).all(axis=-1)
    return _in_groups(np.logical_and, found, group)


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
    return np.asarray(sums.reshape(len(sums), blocks, -1).sum(axis=2, dtype=np.float64))


def lossy(norm: Array, loss: Array, exponents: Array, splitter: Digits) -> Array:
    """Rows, or tiles of a group of rows, that lose more than `splitter.loss_limit` of their 2-norm.

    norm, loss: sums of squares (rows, blocks) in units of 4^exponent. Returns (rows, blocks) bool.
    """
    limit = splitter.loss_limit**2
    if splitter.group > 1:
        norm, loss = (_in_groups(np.add, part, splitter.group) for part in (norm, loss))
        return np.asarray(loss > limit * norm)
    norm, loss = _per_row(norm, exponents), _per_row(loss, exponents)
    return np.broadcast_to((loss > limit * norm)[:, None], exponents.shape)


def crowded(norm: Array, lower: Array, exponents: Array, splitter: Digits, k: int) -> Array:
    """Rows with a digit past the first whose mean square over K exceeds
    lower_limit · (‖row‖ / largest)², the largest entry taken as all the digits hold.

    norm: sums of squares (rows, blocks) in units of 4^(exponent − shift); lower: (digits, rows,
    blocks) of digits 1, 2, … in units of 4^exponent. Returns (rows, blocks) bool.

    In rows and columns that stay, ‖A_p‖ ≤ √(lower_limit · K) · 2^(−7 − 8 p) · ‖A‖: that bounds the
    terms that a scheme drops. No digit's mean square exceeds 2^14, and where digits are random it
    is a third of that: what leaves is ruled by a few entries, and the rest of it has large digits.
    """
    allowed = splitter.lower_limit * k * 4.0**-splitter.shift * _per_row(norm, exponents)
    flags = np.any([_per_row(digit, exponents) > allowed for digit in lower], axis=0)
    return np.broadcast_to(flags[:, None], exponents.shape)


def _per_row(squares: Array, exponents: Array) -> Array:
    """Sums over a row's blocks, in units of 4^exponent of the block that has the largest."""
    weight = 2 * (exponents - exponents.max(axis=1, keepdims=True))
    return np.asarray(np.ldexp(squares, weight).sum(axis=1))


def into_floats(
    x: Array, splitter: FloatSlices, chunk: int, block: int, *, reverse: bool = False
) -> Packed:
    """Slices of x (rows, k), float32 or float64, any strides, straight from its own mantissas.

    Each slice is exact to half (rounding to nearest) or one unit of its last place, subnormals
    included: 2^-25 for FP16. Rows with NaN or Inf are split as zeros; so are rows beyond the
    element's range, or whose entries span more than the splitter allows, which are outliers.
    """
    rows, k = x.shape
    chunks = block // chunk
    slices = np.empty((chunks, rows, splitter.count, chunk), np.float32)
    exponents = np.zeros((rows, 1), np.int32)
    outlier = np.zeros((rows, 1), bool)
    nonfinite = np.zeros(rows, bool)
    for panel in panels(rows, k):
        rest = padded(x, panel, block).astype(np.float64)
        largest = np.abs(rest).max(axis=1)
        nonfinite[panel] = ~np.isfinite(largest)
        outlier[panel, 0] = np.isfinite(largest) & (largest > splitter.range)
        if splitter.span is not None:
            outlier[panel, 0] |= np.isfinite(largest) & leaves_by_span(x[panel], splitter)
        left_out = nonfinite[panel] | outlier[panel, 0]
        rest[left_out] = largest[left_out] = 0
        highest = np.frexp(largest)[1].astype(np.int32)
        if splitter.scaled:
            exponents[panel, 0] = highest - splitter.highest
            times_power_of_two(rest, splitter.highest - highest[:, None])
        for p in range(splitter.count):
            piece = _to_element(rest, splitter)
            rest -= piece
            place = slices[:, panel, splitter.count - 1 - p if reverse else p]
            place[...] = piece.reshape(len(piece), chunks, chunk).transpose(1, 0, 2)
            if p < splitter.count - 1:
                rest *= 2.0**splitter.step
    return Packed(slices, exponents, np.ones((rows, 1), np.float32), outlier, nonfinite)


def leaves_by_span(x: Array, splitter: FloatSlices) -> Array:
    """Rows of x (rows, k) whose finite entries differ by `reach(k)` powers of two, or that `whole`
    rows may not meet.

    By the exponents' fields, a subnormal number counting as the smallest of them: what differs by
    a power of two less may count as well.
    """
    tiny = np.finfo(x.dtype).smallest_subnormal
    size = np.abs(x)
    floor = np.where(size < np.finfo(x.dtype).smallest_normal, tiny, size)
    largest = np.frexp(np.where(np.isfinite(size), size, 0).max(axis=1, initial=0))[1]
    smallest = np.frexp(np.where(size > 0, floor, np.inf).min(axis=1, initial=np.inf))
    more: Array = largest - smallest[1] >= splitter.reach(x.shape[1])
    if splitter.whole is not None and x.dtype == np.float32:
        below, beyond = splitter.whole
        more = (more & (largest > below)) | (largest > beyond)
    more &= np.isfinite(smallest[0])
    return more


def _to_element(x: Array, splitter: FloatSlices) -> Array:
    """x float64, within the element's range, rounded to the element's significand.

    Adding and subtracting 1.5 · 2^52 units of the last place rounds to nearest even. The unit comes
    from x's own exponent field, and is no smaller than the element's smallest value.
    """
    power = (x.view(np.uint64) & np.uint64(0x7FF << 52)).view(np.float64)
    element: Element = splitter.element
    unit = np.maximum(power * 2.0 ** (1 - element.bits), element.smallest)
    magic = unit * (1.5 * 2.0**52)
    nearest: Array = (x + magic) - magic
    if splitter.rounding == "zero":
        over = np.abs(nearest) > np.abs(x)
        nearest[over] -= np.copysign(unit[over], x[over])
    return nearest
