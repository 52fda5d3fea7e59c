"""Eight elements of a row into integer digits, stored where the GEMM wants them."""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs

import math
from typing import Any

import numpy as np

from mixpert_py.runtime.packing.intrinsics import (
    bytes_of,
    device,
    fused,
    nearest32,
    nearest64,
    power_of_two,
    store_two,
)

# Of bytes 0 and 1, or 2 and 3, of two words: by byte. Then the halves of two such: side by side.
LOW_PAIRS, HIGH_PAIRS = 0x5140, 0x7362
LOW_HALVES, HIGH_HALVES = 0x5410, 0x7632


def digit_item(side: Any) -> tuple[Any, Any]:
    """For a splitter into digits: the device functions `item` and `finish` of strip_kernels.

    Sums of squares, of the row and of what it loses, are in units of 4^(e − shift), e the exponent
    of the block; those of digits in units of 4^(e − 7 − width · p).
    """
    COUNT, WIDTH, SHIFT, FITTED = side.slices, side.width, side.shift, side.fitted
    DROPPED = (1 << WIDTH * side.dropped) - 1  # the digits of x past `count`
    LOSSY = side.rule == "loss"
    SUMS = LOSSY or side.measure
    SQUARED = 0 if side.measure else 1 if LOSSY and side.lower < math.inf else COUNT
    WIDE = np.float32 if side.wide == "float32" else np.float64
    nearest = nearest32 if side.wide == "float32" else nearest64
    BIAS = 0x80808080 & (256**COUNT - 1)

    def item(
        values, at, alive, one, two, ratio, worth, level, parts, words, rest,
        slices, base, position, slice_words, swizzle,
    ):  # fmt: skip
        if alive:
            norm = WIDE(0)
            loss = WIDE(0)
            ruled = WIDE(0)
            for j in range(8):
                x = WIDE(values[at + j]) * one * two
                q = nearest(x * ratio) if FITTED else nearest(x)
                n = np.int64(np.int32(q))
                if WIDTH == 8:
                    words[j] = np.uint32((((n + BIAS) & 0xFFFFFFFF) ^ BIAS) & 0xFFFFFFFF)
                else:
                    words[j] = np.uint32(sevens(n))
                if SUMS:
                    left = fused(-q, worth, x)
                    if DROPPED:
                        ruled += left * left
                        low = abs(n) & DROPPED
                        left += WIDE(low if n > 0 else -low)
                    norm += x * x
                    loss += left * left
            if SUMS:
                parts[0] += norm
                parts[1] += loss
                if DROPPED:
                    parts[2 + COUNT] += ruled
        else:
            for j in range(8):
                words[j] = np.uint32(0)
        step = np.int64(np.int32(position >> 6))
        chunk = np.int32(((position >> 4) & 3) ^ swizzle)
        index = base + step * (COUNT * slice_words) + np.int32(chunk * 4 + ((position >> 2) & 2))
        square = np.float64(worth) * np.float64(worth)
        if COUNT > 2:
            a = high_pairs(words, 0)
            b = high_pairs(words, 2)
            c = high_pairs(words, 4)
            d = high_pairs(words, 6)
            if COUNT > 3:
                put(slices, index, high_half(a, b), high_half(c, d), alive, square, parts, 0)
                index += slice_words
            put(slices, index, low_half(a, b), low_half(c, d), alive, square, parts, COUNT - 3)
            index += slice_words
        a = low_pairs(words, 0)
        b = low_pairs(words, 2)
        c = low_pairs(words, 4)
        d = low_pairs(words, 6)
        if COUNT > 1:
            put(slices, index, high_half(a, b), high_half(c, d), alive, square, parts, COUNT - 2)
            index += slice_words
        put(slices, index, low_half(a, b), low_half(c, d), alive, square, parts, COUNT - 1)

    def put(slices, index, first, second, alive, square, parts, p):
        """Stores eight digits of slice p, and adds up their squares where they are asked for."""
        store_two(slices, index, first, second)
        if p >= SQUARED and alive:
            squares = np.int32(0)
            for j in range(4):
                squares += squared(first, j) + squared(second, j)
            parts[2 + p] += np.float64(np.int32(squares)) * square

    def sevens(n):
        size = abs(n)
        sign = -1 if n < 0 else 0
        word = 0
        for p in range(COUNT):
            digit = (size >> (SHIFT - 7 - 7 * p)) & 127
            word = (word << 8) | (((digit ^ sign) - sign) & 255)
        return word

    def finish(i, root, exponent):
        exponent -= SHIFT if i < 2 else 7 + WIDTH * (i - 2)
        half = exponent >> 1
        return root * power_of_two(half) * power_of_two(exponent - half)

    sevens, put = device(sevens), device(put)
    return device(item), device(finish)


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
