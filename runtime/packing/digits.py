"""Elements into integer digits, where the GEMM wants them: units, rounding, sums of squares."""

# The bodies of kernels are Numba's to type, and what it offers is made at run time.
# mypy: allow-untyped-calls, allow-untyped-defs, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

import math
from typing import Any, NamedTuple

import numpy as np
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import (
    FIRST_DIGIT,
    LARGE,
    NONFINITE,
    SIGNIFICAND_BITS,
    WHOLE,
    WHOLE_LOG,
)
from mixpert_py.runtime.kernels.intrinsics import (
    bits32,
    bits64,
    bytes_of,
    device,
    float32_of,
    float64_of,
    fused,
    nearest32,
    nearest64,
    nearest_integer32,
    nearest_integer64,
    power_of_two,
    product32,
    product64,
    store_two,
    trailing_zeros,
)
from mixpert_py.runtime.packing.operand import Side
from mixpert_py.runtime.splitter import FIT

# Of bytes 0 and 1, or 2 and 3, of two words: by byte. Then the halves of two such: side by side.
LOW_PAIRS, HIGH_PAIRS = 0x5140, 0x7362
LOW_HALVES, HIGH_HALVES = 0x5410, 0x7632


def digit_store(count: int, put: Any) -> Any:
    """The device function that stores the bytes of eight words, the highest first: each is one
    digit, and goes to its slice.

    put: the device function that stores eight digits of slice p, and does more with `state`.
    """
    COUNT = count

    def store(words, slices, index, slice_words, state):
        if COUNT > 2:
            a = high_pairs(words, 0)
            b = high_pairs(words, 2)
            c = high_pairs(words, 4)
            d = high_pairs(words, 6)
            if COUNT > 3:
                put(slices, index, high_half(a, b), high_half(c, d), state, 0)
                index += slice_words
            put(slices, index, low_half(a, b), low_half(c, d), state, COUNT - 3)
            index += slice_words
        a = low_pairs(words, 0)
        b = low_pairs(words, 2)
        c = low_pairs(words, 4)
        d = low_pairs(words, 6)
        if COUNT > 1:
            put(slices, index, high_half(a, b), high_half(c, d), state, COUNT - 2)
            index += slice_words
        put(slices, index, low_half(a, b), low_half(c, d), state, COUNT - 1)

    return device(store)


@device
def low_pairs(words, j):
    return np.uint32(bytes_of(words[j], words[j + 1], LOW_PAIRS))


@device
def high_pairs(words, j):
    return np.uint32(bytes_of(words[j], words[j + 1], HIGH_PAIRS))


@device
def low_half(a, b):
    return np.uint32(bytes_of(a, b, LOW_HALVES))


@device
def high_half(a, b):
    return np.uint32(bytes_of(a, b, HIGH_HALVES))


@device
def squared(word, j):
    """The square of byte j, signed."""
    digit = np.int32(np.int32(word << np.uint32(24 - 8 * j)) >> 24)
    return np.int32(digit * digit)


@device
def squared_sum(first, second):
    """The sum of the squares of the eight signed bytes of two words."""
    squares = np.int32(0)
    for j in range(4):
        squares += squared(first, j) + squared(second, j)
    return np.int32(squares)


FINEST = 1100  # a fineness is this less the exponent of the lowest bit that is set
TOO_FINE = 1 << 13  # more than any


class NumberFormat(NamedTuple):
    """A floating-point type as kernels take it apart. number, bits: NumPy's types of it and of its
    bits; in_shared, bits_in_shared: Numba's. fraction: bits stored of the significand; bias: of the
    exponent field. bits_of, float_of: the device functions from number to bits and back.
    """

    number: Any
    bits: Any
    in_shared: Any
    bits_in_shared: Any
    fraction: int
    bias: int
    bits_of: Any
    float_of: Any

    @property
    def infinite(self) -> Any:
        """The bits of infinity."""
        return self.bits((2 * self.bias + 1) << self.fraction)

    @property
    def magnitude(self) -> Any:
        """The bits of a number but its sign."""
        return self.bits((1 << (8 * self.bits().itemsize - 1)) - 1)


FORMATS = {
    "float32": NumberFormat(
        *(np.float32, np.uint32, types.float32, types.uint32, 23, 127, bits32, float32_of)
    ),
    "float64": NumberFormat(
        *(np.float64, np.uint64, types.float64, types.uint64, 52, 1023, bits64, float64_of)
    ),
}


@device
def place_of(position, size, swizzle, count, slice_words):
    """Words from a row's first, in the highest slice, to where eight elements of K belong."""
    byte = np.int32(position * size)
    step = np.int64(np.int32(byte >> 6))
    chunk = np.int32(((byte >> 4) & 3) ^ swizzle)
    return step * (count * slice_words) + np.int32(chunk * 4 + ((byte >> 2) & 2))


def row_units(side: Side) -> Any:
    """The device function for a row's scale word, the factors that make digits of it, 2^(shift − e)
    as two, 256 / g, and g / 256; its flag, as far as the largest magnitude says; and whether the
    row is safe: sure to stay, whatever its digits are.

    power: about the sum of its squares. A residual is below 1.26 units, and a digit's square at
    most 2^14: a row that is large beside those neither loses too much nor is crowded.
    """
    SHIFT = side.shift
    it = FORMATS[side.memory]
    WIDE, INFINITE, SUMS = FORMATS[side.wide].number, it.infinite, side.sums
    unit, factors = unit_of(side), factors_of(side)
    MARGIN = 1.05  # for what sums in single precision are off, and g / 256, which is at most 258
    LOSSLESS = MARGIN * 1.26**2 / side.loss if SUMS > 0 else 0.0
    UNCROWDED = MARGIN * 2.0**14 / side.lower if SUMS > 1 else 0.0
    FINITE, large, float_of = 1e38, is_large(side), it.float_of

    def units(top, fine, power, k):
        exponent = 0
        significand = WHOLE
        if 0 < top < INFINITE:
            exponent, significand = unit(np.float64(float_of(top)), FINEST - fine)
        word = np.int32(((exponent - FIRST_DIGIT) << SIGNIFICAND_BITS) | significand)
        one, two = factors(SHIFT - exponent)
        ratio = WIDE(WHOLE) / WIDE(significand)
        flag = NONFINITE if top >= INFINITE else 0
        if flag == 0 and large(exponent, k):
            flag = LARGE
        is_safe = 0
        if flag != NONFINITE and two == WIDE(1):
            is_safe = 1
            if SUMS > 0 and top > 0:
                norm = np.float64(power) * np.float64(one) * np.float64(one)
                enough = max(np.float64(k) * LOSSLESS, UNCROWDED)
                is_safe = 1 if power < np.float32(FINITE) and norm >= enough else 0
        return word, one, two, ratio, WIDE(significand) * WIDE(2.0**-WHOLE_LOG), flag, is_safe

    return device(units)


def unit_of(side: Side) -> Any:
    """The device function for the exponent e that a row, or tile, has by its largest magnitude, and
    the significand of its unit. finest: the exponent of the lowest bit that is set in it.

    Digits whose rounding needs the room have an exponent more. A fitted unit is a power of two
    where two digits hold all bits.
    """
    DIGITS, FITTED, THRESHOLD = side.kind == "digits", side.fitted, side.threshold
    HELD = side.held
    WIDE = FORMATS[side.wide].number

    def unit(largest, finest):
        significand = WHOLE
        fraction, exponent = math.frexp(largest)
        raised = exponent + 1 if DIGITS and fraction >= THRESHOLD else exponent
        if FITTED and finest < raised - HELD:
            significand = np.int64(math.floor(WIDE(fraction) * WIDE(FIT))) + 1
        else:
            exponent = raised
        return exponent, significand

    return device(unit)


def factors_of(side: Side) -> Any:
    """The device function for 2^shift as two factors, neither of which overflows."""
    WIDE, HIGHEST_POWER = FORMATS[side.wide].number, 127 if side.wide == "float32" else 1023

    def factors(shift):
        power = min(shift, HIGHEST_POWER)
        return WIDE(power_of_two(power)), WIDE(power_of_two(shift - power))

    return device(factors)


def is_large(side: Side) -> Any:
    """The device function for whether a row, or tile, of an exponent is large: see `Side.room`. k:
    entries of a row.
    """
    ROOM = side.room

    def large(exponent, k):
        if ROOM < 0:
            return False
        _, length = math.frexp(np.float64(k))  # one more than ⌊log2 k⌋
        return 2 * exponent + length > ROOM

    return device(large)


def row_coarse(side: Side) -> Any:
    """The device function for whether elements may be as coarse as two digits hold: their fineness
    is TOO_FINE where they are not, as normal numbers are with one of their last bits set beside any
    larger one. either: all bits of the elements, most: the largest.
    """
    MANTISSA, BITS = FORMATS[side.memory].fraction, FORMATS[side.memory].bits
    LAST = BITS((1 << (MANTISSA + 1 - 8 * min(side.slices, 2) + 1)) - 1)
    NORMAL = BITS(1 << MANTISSA)

    def coarse(either, most):
        return (either & LAST) == 0 or most < NORMAL

    return device(coarse)


def row_fineness(side: Side) -> Any:
    """The device function for how fine `count` elements are, `stride` apart in memory. Few rows
    need it: it reads them again, since each register would have code of its own.
    """
    finer = finer_of(side)

    def fineness(x, place, stride, count):
        fine = np.int32(0)
        for _ in range(count):
            fine = np.int32(finer(x[place], fine))
            place += stride
        return fine

    return device(fineness)


def finer_of(side: Side) -> Any:
    """The device function for how fine an element is, FINEST less the exponent of the lowest bit
    set in it, 0 for a zero; or `fine`, where that is more.
    """
    it = FORMATS[side.memory]
    BITS, BITS_OF, MANTISSA = it.bits, it.bits_of, it.fraction
    NORMAL = BITS(1 << MANTISSA)
    FRACTION = BITS((1 << MANTISSA) - 1)
    HIGHEST = 2 * it.bias + 1
    ZERO = FINEST + it.bias - 1 + MANTISSA

    def finer(value, fine):
        bits = BITS_OF(value)
        significand = BITS(bits & FRACTION)
        field = np.int32((bits >> BITS(MANTISSA)) & BITS(HIGHEST))
        if field > 0:
            significand = BITS(significand | NORMAL)
            field -= 1
        if significand != 0:
            fine = np.int32(max(fine, ZERO - field - trailing_zeros(significand)))
        return fine

    return device(finer)


def row_octet(side: Side) -> Any:
    """The device function that cuts eight elements of a row into digits and stores them.

    It adds to sums of squares: of the row and of what it loses, in units of 4^(e − shift); of
    digits past the first as integers, where they may crowd the row out.
    """
    COUNT, FITTED, CROWDED = side.slices, side.fitted, side.crowded
    WIDTH, SHIFT = side.width, side.shift
    WIDE = FORMATS[side.wide].number
    nearest = nearest32 if side.wide == "float32" else nearest64
    product = product32 if side.wide == "float32" else product64
    BIAS = 0x80808080 & (256**COUNT - 1)
    # Below 2^23, adding 2^23 rounds a float32 to an integer, and its last bits are that integer.
    CORNER = np.float32(2.0**23)
    FAST = side.wide == "float32" and COUNT <= 3

    def octet(
        values, at, by, one, ratio, worth, norms, squares, words,
        slices, index, slice_words,
    ):  # fmt: skip
        norm = norms[0]
        loss = norms[1]
        for j in range(8):
            x = WIDE(values[at + j * by]) * one
            scaled = product(x, ratio) if FITTED else x
            if FAST:
                rounded = abs(scaled) + CORNER
                q = rounded - CORNER
                sign = np.int64(bits32(scaled) >> np.uint32(31))
                size = np.int64(bits32(rounded) & np.uint32(0x7FFFFF))
                n = (size ^ -sign) + sign
            else:
                q = abs(nearest(scaled))
                n = np.int64(np.int32(nearest(scaled))) if q < WIDE(2.0**31) else 0
            if WIDTH == 8:
                words[j] = np.uint32((((n + BIAS) & 0xFFFFFFFF) ^ BIAS) & 0xFFFFFFFF)
            else:
                words[j] = np.uint32(sevens(n))
            left = fused(-q, worth, abs(x))
            norm += x * x
            loss += left * left
        norms[0] = norm
        norms[1] = loss
        store(words, slices, index, slice_words, squares)

    def sevens(n):
        size = abs(n)
        sign = -1 if n < 0 else 0
        word = 0
        for p in range(COUNT):
            digit = (size >> (SHIFT - 7 - 7 * p)) & 127
            word = (word << 8) | (((digit ^ sign) - sign) & 255)
        return word

    sevens, store = device(sevens), digit_store(COUNT, squares_put(CROWDED))
    return device(octet)


def safe_octet(side: Side) -> Any:
    """The device function that splits eight elements of a safe row into digits and stores them.

    A power of two changes no rounding: the integers are those that `row_octet` finds.
    """
    COUNT = side.slices
    WIDE = FORMATS[side.wide].number
    integer = nearest_integer32 if side.wide == "float32" else nearest_integer64
    BIAS = np.uint32(0x80808080 & (256**COUNT - 1))

    def octet(values, at, by, one, ratio, words, squares, slices, index, slice_words):
        factor = one * ratio
        for j in range(8):
            n = integer(WIDE(values[at + j * by]) * factor)
            words[j] = np.uint32(np.uint32(np.uint32(n) + BIAS) ^ BIAS)
        store(words, slices, index, slice_words, squares)

    store = digit_store(COUNT, squares_put(False))
    return device(octet)


def squares_put(crowded: bool) -> Any:
    """The device function that stores eight digits of slice p; crowded: it adds their squares to
    sums, but for the first slice's.
    """
    CROWDED = crowded

    def put(slices, index, first, second, squares, p):
        store_two(slices, index, first, second)
        if CROWDED and p > 0:
            squares[p] = np.int32(squares[p] + squared_sum(first, second))

    return device(put)
