"""What a row's elements become, digits or floats: the device functions that the kernels put in."""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs

from typing import Any

from mixpert_py.runtime.packing.intrinsics import device
from mixpert_py.runtime.packing.layout import ITEM
from mixpert_py.runtime.packing.row_digits import facts, plain_octet, row_octet, row_units
from mixpert_py.runtime.packing.row_floats import float_octet, float_units, words_of
from mixpert_py.runtime.packing.side import Side


def units_of(side: Side) -> Any:
    """The device function that says what to multiply a row by, and whether it is plain."""
    return float_units(side) if side.kind == "floats" else row_units(side)


def plain(side: Side) -> Any:
    """The device function that cuts eight elements of a plain row."""
    return float_octet(side) if side.kind == "floats" else plain_octet(side)


def hard(side: Side) -> Any:
    """The device function that cuts values[0 … 7] of any other row, and adds to what it loses."""
    FLOATS = side.kind == "floats"
    # 2^(shift − e) may be too large to be one factor. A second of 0 clears what is no number.
    TWICE = FLOATS or side.memory == side.wide
    MEMORY = facts(side).memory
    octet = plain(side) if FLOATS else row_octet(side)

    def cut(
        values, one, two, ratio, worth, norms, squares, words, slices, index, slice_words,
    ):  # fmt: skip
        if TWICE and two != 1:
            for j in range(ITEM):
                values[j] = MEMORY(values[j] * two) if two > 0 else MEMORY(0)
        if FLOATS:
            octet(values, 0, 1, one, ratio, words, squares, slices, index, slice_words)
        else:
            octet(
                values, 0, 1, one, ratio, worth, norms, squares, words, slices, index, slice_words
            )

    return device(cut)


def words_made(side: Side) -> int:
    """Of eight elements, before they are stored."""
    return words_of(side) if side.kind == "floats" else ITEM
