"""What `tile_kernels` make of elements: units, digits, and reading them 4 rows × 8 of K at a time.

None of it uses `cuda.…`, as in `intrinsics`.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

import math
from typing import Any

import numpy as np

from mixpert_py.runtime.packing.digit_items import high_half, high_pairs, low_half, low_pairs
from mixpert_py.runtime.packing.intrinsics import (
    bits32,
    device,
    float32_of,
    fused,
    load_four,
    nearest32,
    store_two,
)
from mixpert_py.runtime.packing.layout import ITEM
from mixpert_py.runtime.packing.side import Side

QUAD = 4  # rows of a thread
HELD = QUAD * ITEM


@device
def fetch_along(values, x, place, stride, full, count, length):
    """Reads 4 rows, `stride` apart, × 8 neighbours along K from x[place] on, into
    values[4 · position + row]. full: that all are there, and 16-byte aligned; else zeros past
    `count` rows and past `length` of K.
    """
    if full:
        for i in range(QUAD):
            for j in range(0, ITEM, 4):
                a, b, c, d = load_four(x, place + j)
                values[QUAD * j + i] = a
                values[QUAD * j + QUAD + i] = b
                values[QUAD * j + 2 * QUAD + i] = c
                values[QUAD * j + 3 * QUAD + i] = d
            place += stride
    else:
        for i in range(QUAD):
            for j in range(ITEM):
                values[QUAD * j + i] = 0.0
                if i < count and j < length:
                    values[QUAD * j + i] = x[place + j]
            place += stride


@device
def fetch_across(values, x, place, stride, full, count, length):
    """The same of 4 neighbouring rows × 8 places along K, `stride` apart."""
    if full:
        for j in range(ITEM):
            a, b, c, d = load_four(x, place)
            values[QUAD * j] = a
            values[QUAD * j + 1] = b
            values[QUAD * j + 2] = c
            values[QUAD * j + 3] = d
            place += stride
    else:
        for j in range(ITEM):
            for i in range(QUAD):
                values[QUAD * j + i] = 0.0
                if i < count and j < length:
                    values[QUAD * j + i] = x[place + i]
            place += stride


def tile_units(side: Side) -> Any:
    """The device function for a tile's exponent e, and 2^(shift − e) as two factors."""
    SHIFT = side.shift
    # From the threshold on, rounding needs the room, and adding this carries into the exponent.
    CARRY = np.uint32((1 << 23) - math.ceil((2 * side.threshold - 1) * (1 << 23)))
    # From this on, one factor does, and largest magnitudes are normal.
    LEAST = np.float32(math.ldexp(1.0, SHIFT - 128))
    ABOVE = 64  # bits that smaller ones are brought up by

    def units(largest):
        if largest >= LEAST:
            exponent = np.int32(np.uint32(bits32(largest) + CARRY) >> np.uint32(23)) - 126
            return np.int32(exponent), power(SHIFT - exponent), np.float32(1)
        if largest > np.float32(0):
            normal = np.float32(largest * np.float32(2.0**ABOVE))
            exponent = np.int32(np.uint32(bits32(normal) + CARRY) >> np.uint32(23)) - 126 - ABOVE
            return np.int32(exponent), power(127), power(SHIFT - exponent - 127)
        return np.int32(0), power(SHIFT), np.float32(1)

    return device(units)


@device
def power(exponent):
    """2^exponent as float32, −126 ≤ exponent ≤ 127."""
    return float32_of(np.uint32(np.int32(exponent + 127) << 23))


def tile_octet(side: Side) -> Any:
    """The device function that cuts eight elements of a row into digits and stores them.

    It adds to sums of squares, of the row and of what it loses, in units of 4^(e − shift).
    """
    COUNT, LOSSY = side.slices, side.rule == "loss"
    DROPPED = np.uint32(7 * side.dropped)
    # Below 2^23, adding 2^23 rounds a float32 to an integer, and its last 24 bits are that integer;
    # what is above them never comes down to a byte that is stored.
    CORNER = np.float32(2.0**23)
    FAST = side.shift < 23
    EACH = np.uint32(0x80808080)
    BIAS = np.uint32(0x80808080 & (256**COUNT - 1))
    # A digit p places above the last moves from bit 7 p to bit 8 p, with all that is above it.
    ABOVE = [np.uint32((1 << 32) - (1 << 7 * p)) for p in range(4)]
    FIRST, SECOND, THIRD = ABOVE[1:]

    def octet(values, at, one, norms, words, slices, index, slice_words):
        norm = norms[0]
        loss = norms[1]
        for j in range(ITEM):
            x = np.float32(values[at + QUAD * j] * one)
            size = abs(x)
            if FAST:
                rounded = np.float32(size + CORNER)
                q = np.float32(rounded - CORNER)
                n = np.uint32(bits32(rounded))
            else:
                q = nearest32(size)
                n = np.uint32(np.int32(q))
            if LOSSY:
                left = np.float32(size - q)
                norm = fused(x, x, norm)
                loss = fused(left, left, loss)
            n = np.uint32(n >> DROPPED)
            word = n
            if COUNT > 1:
                word = np.uint32(word + (n & FIRST))
            if COUNT > 2:
                word = np.uint32(word + np.uint32((n & SECOND) << np.uint32(1)))
            if COUNT > 3:
                word = np.uint32(word + np.uint32((n & THIRD) << np.uint32(2)))
            # Adding 128 to every digit, none borrows; an exclusive or takes it off again.
            sign = np.uint32(np.int32(np.int32(bits32(x)) >> np.int32(31)) | np.int32(1))
            words[j] = np.uint32(np.uint32(word * sign) + BIAS)
        norms[0] = norm
        norms[1] = loss
        if COUNT > 2:
            a = high_pairs(words, 0)
            b = high_pairs(words, 2)
            c = high_pairs(words, 4)
            d = high_pairs(words, 6)
            if COUNT > 3:
                put(slices, index, high_half(a, b), high_half(c, d))
                index += slice_words
            put(slices, index, low_half(a, b), low_half(c, d))
            index += slice_words
        a = low_pairs(words, 0)
        b = low_pairs(words, 2)
        c = low_pairs(words, 4)
        d = low_pairs(words, 6)
        if COUNT > 1:
            put(slices, index, high_half(a, b), high_half(c, d))
            index += slice_words
        put(slices, index, low_half(a, b), low_half(c, d))

    def put(slices, index, first, second):
        store_two(slices, index, np.uint32(first ^ EACH), np.uint32(second ^ EACH))

    put = device(put)
    return device(octet)
