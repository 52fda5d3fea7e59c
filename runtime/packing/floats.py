"""Elements into floating-point slices, where the GEMM wants them: scales, flags, rounding."""

# The bodies of kernels are Numba's to type, and what it offers is made at run time.
# mypy: allow-untyped-calls, allow-untyped-defs, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

import math
from typing import Any

import numpy as np

from mixpert_py.runtime.kernels.abi import (
    LARGE,
    LEAVES,
    NONFINITE,
    OUTLIER,
    SIGNIFICAND_BITS,
    WHOLE,
    WHOLE_LOG,
)
from mixpert_py.runtime.kernels.intrinsics import (
    bits32,
    cut_halves,
    device,
    first_half,
    nearest_halves,
    second_half,
    store_four,
)
from mixpert_py.runtime.packing.digits import FORMATS, factors_of, is_large
from mixpert_py.runtime.packing.operand import Side


def to_element(side: Any) -> Any:
    """The function that rounds x, in the element's range, to its significand: see
    `reference.slices`.
    """
    it = FORMATS[side.wide]
    WIDE, bits_of, float_of = it.number, it.bits_of, it.float_of
    TRUNCATE, SMALLEST = side.truncate, WIDE(side.smallest)
    EXPONENT = it.infinite
    LAST_PLACE = WIDE(2.0 ** (1 - side.bits))
    MAGIC = WIDE(1.5 * 2.0**it.fraction)

    def rounded(x):
        power = float_of(bits_of(x) & EXPONENT)
        unit = max(power * LAST_PLACE, SMALLEST)
        magic = unit * MAGIC
        piece = (x + magic) - magic
        if TRUNCATE and abs(piece) > abs(x):
            piece -= unit if x > 0 else -unit
        return piece

    return rounded


def element_bits(side: Any) -> Any:
    """The bits of an element, which a float holds, in the lowest of a word, or for TF32 in all."""
    HALF, SIZE = side.element == "float16", side.size
    REBIAS = np.float32(2.0**-112)  # from the exponents of float32 to those of float16

    def word(piece):
        single = np.float32(piece)
        if HALF:
            # Dividing by 2^112 turns float16's subnormals into float32's, bit below bit.
            size = bits32(abs(single) * REBIAS) >> np.uint32(13)
            return np.uint32(size | ((bits32(single) >> np.uint32(16)) & np.uint32(0x8000)))
        if SIZE == 2:
            return np.uint32(bits32(single) >> np.uint32(16))
        return bits32(single)

    return word


def words_in_slices(side: Side) -> int:
    """Words that eight elements take in all slices."""
    return side.slices * 2 * side.size


def finest_of(side: Side) -> Any:
    """The device function for how fine a row is whose smallest entry but zero has these bits: the
    more the smaller it is, and 0 if there is none, or none that is finite. Floats of 64 bits go by
    their upper half.
    """
    SINGLE, NONE = side.memory == "float32", FORMATS[side.memory].magnitude
    INFINITE = 0x7F800000 if SINGLE else 0x7FF00000

    def fineness(least):
        if least == NONE:
            return np.int32(0)
        upper = np.int64(least) if SINGLE else np.int64(least >> np.uint64(32))
        return np.int32(max(INFINITE - upper, 0))

    return device(fineness)


def leaves_by_span(side: Side) -> Any:
    """The device function for whether a row of k entries, its largest finite and its finest as
    `finest_of` has it, spans more powers of two than the splitter holds, or meets rows that do. All
    subnormal numbers count as the smallest of them.
    """
    SINGLE, SPAN = side.memory == "float32", side.span
    FRACTION, BIAS, LOWEST = (23, 126, -148) if SINGLE else (20, 1022, -1073)
    INFINITE = 0x7F800000 if SINGLE else 0x7FF00000
    WHOLE = side.whole is not None
    BELOW, BEYOND = side.whole or (0, 0)

    def leaves(largest, fine, k):
        if fine == 0:
            return False
        _, highest = math.frexp(largest)
        if WHOLE and (highest <= BELOW or highest > BEYOND):
            return highest > BEYOND
        field = (INFINITE - fine) >> FRACTION
        lowest = field - BIAS if field > 0 else LOWEST
        _, length = math.frexp(np.float64(k))  # one more than ⌊log2 k⌋
        return highest - lowest >= SPAN + max((length - 6) // 2, 0)

    return device(leaves)


def float_units(side: Side) -> Any:
    """The device function for a row's scale word, the power of two that it is multiplied by, as two
    factors, two numbers that only digits need, its flag, and whether the row is safe: the first
    factor is enough. The second of a row that is flagged is 0: its slices are to be zeros, whatever
    the row holds.
    """
    SCALED = side.scaled
    it = FORMATS[side.memory]
    WIDE, BITS, INFINITE, float_of = FORMATS[side.wide].number, it.bits, it.infinite, it.float_of
    LIMIT = BITS(it.number(side.range).view(BITS))  # the bits of numbers are in the numbers' order
    SCALED_TO, SPAN, leaves = side.highest, side.span, leaves_by_span(side)
    large, factors = is_large(side), factors_of(side)

    def units(top, fine, power, k):
        flag = 0
        if top >= INFINITE:
            flag = NONFINITE
        elif top > LIMIT or (SPAN >= 0 and leaves(np.float64(float_of(top)), fine, k)):
            flag = OUTLIER
        exponent = SCALED_TO
        if SCALED:
            exponent = 0
            if 0 < top < INFINITE:
                _, exponent = math.frexp(np.float64(float_of(top)))
            if flag == 0 and large(exponent, k):
                flag = LARGE
        word = np.int32(((exponent - SCALED_TO - WHOLE_LOG) << SIGNIFICAND_BITS) | WHOLE)
        one, two = factors(SCALED_TO - exponent)
        if flag & LEAVES:
            two = WIDE(0)
        return word, one, two, WIDE(0), WIDE(0), flag, 1 if two == WIDE(1) else 0

    return device(units)


def float_octet(side: Side) -> Any:
    """The device function that cuts eight elements of a row into slices and stores them.

    Single precision is enough for float16: a power of two changes no digit but of what it brings
    below 2^-126, and that is zero in every slice. The machine rounds those, two at a time.
    """
    COUNT, STEP, SCALED, SHORT = side.slices, side.step, side.scaled, side.size == 2
    WIDE = FORMATS[side.wide].number
    HALVES = side.element == "float16" and side.wide == "float32"
    WORDS = 2 * side.size
    NEXT = WIDE(2.0**STEP)
    rounded, word = device(to_element(side)), device(element_bits(side))
    halves = cut_halves if side.truncate else nearest_halves

    def octet(values, at, by, one, ratio, words, squares, slices, index, slice_words):
        for j in range(0, 8, 2):
            x = WIDE(values[at + j * by])
            y = WIDE(values[at + (j + 1) * by])
            if SCALED:
                x *= one
                y *= one
            for p in range(COUNT):
                if HALVES:
                    both = halves(x, y)
                    words[WORDS * p + j // 2] = both
                    x -= first_half(both)
                    y -= second_half(both)
                else:
                    first, second = rounded(x), rounded(y)
                    x -= first
                    y -= second
                    if SHORT:
                        both = np.uint32(word(second) << np.uint32(16))
                        words[WORDS * p + j // 2] = np.uint32(word(first) | both)
                    else:
                        words[WORDS * p + j] = word(first)
                        words[WORDS * p + j + 1] = word(second)
                if STEP:
                    x *= NEXT
                    y *= NEXT
        for p in range(COUNT):
            i = WORDS * p
            store_four(slices, index, words[i], words[i + 1], words[i + 2], words[i + 3])
            if not SHORT:
                # The other half of a pair of chunks, which the swizzle leaves together.
                store_four(
                    slices, index ^ 4, words[i + 4], words[i + 5], words[i + 6], words[i + 7]
                )
            index += slice_words

    return device(octet)
