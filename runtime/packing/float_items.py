"""Eight elements of a row into floating-point slices, stored where the GEMM wants them."""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs

from typing import Any

import numpy as np

from mixpert_py.runtime.packing.intrinsics import (
    bits32,
    bits64,
    device,
    float32_of,
    float64_of,
    power_of_two,
    store_four,
)


def float_item(side: Any) -> tuple[Any, Any]:
    """For a splitter into floats: the device functions `item` and `finish` of strip_kernels.

    Sums of squares are in units of 4^e, where the row lies below 2^e.
    """
    COUNT, STEP, SIZE = side.slices, side.step, side.size
    SCALED, MEASURE = side.scaled, side.measure
    WIDE = np.float32 if side.wide == "float32" else np.float64
    NEXT = WIDE(2.0**STEP)
    rounded, word = device(to_element(side)), device(element_bits(side))

    def item(
        values, at, alive, one, two, ratio, worth, level, parts, words, rest,
        slices, base, position, slice_words, swizzle,
    ):  # fmt: skip
        for j in range(8):
            rest[j] = WIDE(0)
        # No factor leaves float64: rows lie below 2^15, or within the range of the element.
        half = level >> 1
        down, further = power_of_two(-half), power_of_two(half - level)
        if alive:
            for j in range(8):
                x = WIDE(values[at + j])
                rest[j] = x * one * two if SCALED else x
                if MEASURE:
                    y = np.float64(rest[j]) * down * further
                    parts[0] += y * y
        byte = np.int64(position) * SIZE
        place = base + (byte >> 6) * (COUNT * slice_words)
        chunk = np.int32((byte >> 4) & 3)
        for p in range(COUNT):
            for j in range(8):
                piece = rounded(rest[j])
                rest[j] -= piece
                if MEASURE:
                    y = np.float64(piece) * down * further
                    parts[2 + p] += y * y
                    if p == COUNT - 1:
                        y = np.float64(rest[j]) * down * further
                        parts[1] += y * y
                if STEP:
                    rest[j] *= NEXT
                words[j] = word(piece)
            if SIZE == 2:
                store_four(
                    slices, place + ((chunk ^ swizzle) * 4),
                    pair(words, 0), pair(words, 2), pair(words, 4), pair(words, 6),
                )  # fmt: skip
            else:
                store_four(
                    slices, place + ((chunk ^ swizzle) * 4),
                    words[0], words[1], words[2], words[3],
                )  # fmt: skip
                store_four(
                    slices, place + (((chunk + 1) ^ swizzle) * 4),
                    words[4], words[5], words[6], words[7],
                )  # fmt: skip
            place += slice_words

    def finish(i, root, exponent):
        p = COUNT - 1 if i == 1 else max(i - 2, 0)
        exponent -= STEP * p
        half = exponent >> 1
        return root * power_of_two(half) * power_of_two(exponent - half)

    return device(item), device(finish)


def to_element(side: Any) -> Any:
    """For x, within the element's range: x rounded to its significand, see float_slices."""
    SINGLE = side.wide == "float32"
    WIDE = np.float32 if SINGLE else np.float64
    TRUNCATE, SMALLEST = side.truncate, WIDE(side.smallest)
    EXPONENT = np.uint32(0xFF << 23) if SINGLE else np.uint64(0x7FF << 52)
    LAST_PLACE = WIDE(2.0 ** (1 - side.bits))
    MAGIC = WIDE(1.5 * 2.0 ** (23 if SINGLE else 52))
    bits_of = bits32 if SINGLE else bits64
    float_of = float32_of if SINGLE else float64_of

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


@device
def pair(words, j):
    return np.uint32(words[j] | (words[j + 1] << np.uint32(16)))
