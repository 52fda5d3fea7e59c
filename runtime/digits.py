"""Integer slices: digits under a power of two shared by a block of an operand."""

import numpy as np

from mixpert_py.runtime.outliers import OutlierRule, lossy, uneven
from mixpert_py.runtime.packed import Array, Measured, Packed, padded, panels, times_power_of_two
from mixpert_py.runtime.splitter import Digits

UNSEEN = 2.0**-120  # squared, in units of the last digit; what squares and scaling may lose is less


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

    |x − Σ slices| ≤ 2^(e − shift − 1) elementwise where all digits are kept, e the block exponent:
    |x| < 2^e, raised by one where rounding needs the room. Subnormals are kept. Rows with NaN or
    Inf, and outliers by `rule`, are split as zeros.
    """
    rows, k = x.shape
    blocks = -(-k // block)
    chunks = blocks * (block // chunk)
    slices = np.empty((chunks, rows, splitter.count, chunk), np.float32)
    exponents = np.empty((rows, blocks), np.int32)
    outlier = np.zeros((rows, blocks), bool)
    nonfinite = np.zeros(rows, bool)
    squares = np.empty((2 + splitter.count, rows, blocks))  # of x, its residual, and each slice
    for panel in panels(rows, k, splitter.group):
        scaled = padded(x, panel, blocks * block)
        tiles = scaled.reshape(len(scaled), blocks, block)
        largest, nonfinite[panel] = _largest(tiles, splitter.group)
        if rule == "ratio":
            outlier[panel] = uneven(tiles, k, splitter.group)
        exponents[panel] = exponent = _exponents(largest, splitter)
        times_power_of_two(tiles, (splitter.shift - exponent)[:, :, None])
        norm = _squares(scaled, chunk, blocks)
        rounded = np.rint(scaled)
        residual = np.subtract(scaled, rounded, out=scaled)
        loss = _squares(residual, chunk, blocks)
        if rule == "loss":
            outlier[panel] = lossy(norm, loss, exponent, splitter)
        if outlier[panel].any():
            for piece in (rounded, residual):
                piece.reshape(tiles.shape)[outlier[panel]] = 0
            norm[outlier[panel]] = loss[outlier[panel]] = 0
        integers = rounded.astype("<i4")
        if splitter.digits > splitter.count:
            residual += _low_digits(integers, splitter)
            loss = _squares(residual, chunk, blocks)
        if splitter.group > 1:  # rows far below their tile's exponent underflow, unseen
            norm += (largest > 0) * UNSEEN
            loss += (largest > 0) * UNSEEN
        squares[0, panel], squares[1, panel] = norm, loss
        squares[2:, panel] = _lay_out(slices[:, panel], integers, splitter, blocks, reverse)
    return Packed(
        slices,
        exponents - 7,
        _measured(squares, exponents, splitter),
        outlier,
        nonfinite,
    )


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


def _exponents(largest: Array, splitter: Digits) -> Array:
    """The smallest e with largest < 2^e whose digits hold RN(largest · 2^(shift − e)).

    A block of zeros takes the largest exponent of its row, so that it never widens the range.
    """
    fraction, exponent = np.frexp(largest)
    too_large = np.rint(np.ldexp(fraction.astype(np.float64), splitter.shift)) > splitter.largest
    exponent = exponent + too_large
    zero = largest == 0
    if zero.any():
        highest = np.where(zero, np.iinfo(np.int32).min, exponent).max(axis=1, keepdims=True)
        exponent = np.where(zero, np.where(zero.all(axis=1, keepdims=True), 0, highest), exponent)
    return exponent.astype(np.int32)


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


def _low_digits(integers: Array, splitter: Digits) -> Array:
    """What the digits past `count` are worth, in units of the last."""
    mask = 128 ** (splitter.digits - splitter.count) - 1
    low: Array = np.sign(integers) * (np.abs(integers) & mask)
    return low


def _squares(panel: Array, chunk: int, blocks: int) -> Array:
    """Sum of squares per row and block; single precision adds up no more than one chunk."""
    parts = panel.reshape(len(panel), -1, chunk)
    return _per_block(np.einsum("rcl,rcl->rc", parts, parts), blocks)


def _per_block(sums: Array, blocks: int) -> Array:
    total: Array = sums.reshape(len(sums), blocks, -1).sum(axis=2, dtype=np.float64)
    return total


def _measured(squares: Array, exponents: Array, splitter: Digits) -> Measured:
    """Norms from sums of squares: of x and residual in units 2^(e − shift), of digits 2^(e − 7)."""
    highest = exponents.max(axis=1)
    weighted = np.ldexp(squares, 2 * (exponents - highest[:, None])).sum(axis=2)
    roots = np.sqrt(weighted)
    unit = highest - splitter.shift
    digit = highest - 7 - splitter.width * np.arange(splitter.count)[:, None]
    return Measured(np.ldexp(roots[0], unit), np.ldexp(roots[2:], digit), np.ldexp(roots[1], unit))
