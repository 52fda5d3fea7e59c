"""What packing has to leave, from the reference backend: bit for bit."""

from typing import Any

import numpy as np

from mixpert_py.runtime.packing.operand import Layout
from mixpert_py.runtime.reference.slices import Packed, into_digits, into_floats
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits, Splitter
from tests.runtime.families import Array


def reference(x: Array, splitter: Splitter, scheme: Scheme) -> Packed:
    """x (rows, k) split; B's columns are the rows of x. The slices are not in reverse order."""
    chunk, block, _ = scheme.lengths(x.shape[1])
    with np.errstate(all="ignore"):
        if isinstance(splitter, Digits):
            return into_digits(x, splitter, chunk, block)
        return into_floats(x, splitter, chunk, block)


def lay_out(packed: Packed, element: str, place: Layout) -> tuple[Array, Array]:
    """The slices (steps, count, rows8, 64) uint8 and the scale words (blocks, rows) int32 in which
    kernels take a packed operand.
    """
    chunks, rows, count, chunk = packed.slices.shape
    values = packed.slices.transpose(2, 1, 0, 3).reshape(count, rows, chunks * chunk)
    spread = np.zeros((count, place.rows8, place.steps * (64 // place.size)), np.float32)
    for t in range(place.blocks):
        here = values[:, :, t * place.block : (t + 1) * place.block]
        spread[:, :rows, t * place.padded_block :][:, :, : here.shape[2]] = here
    raw = _bytes(spread, element).reshape(count, place.rows8, place.steps, 4, 16)
    swizzled = np.empty_like(raw)
    for r in range(place.rows8):
        for c in range(4):
            swizzled[:, r, :, c ^ (r >> 1 & 3)] = raw[:, r, :, c]
    slices = swizzled.transpose(2, 0, 1, 3, 4).reshape(place.steps, count, place.rows8, 64)
    g = np.rint(packed.significands * 256).astype(np.int32)
    return slices, (packed.exponents - 8 << 9 | g).T.astype(np.int32)


def _bytes(values: Array, element: str) -> Array:
    if element == "int8":
        return values.astype(np.int8).view(np.uint8)
    if element == "float16":
        return values.astype(np.float16).view(np.uint8)
    if element == "bfloat16":
        return np.ascontiguousarray(values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.view(np.uint8)


def flags_of(
    wanted: Packed, splitter: Splitter, k: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Of rows of k numbers of a type: NaN or Inf, outliers, and what may overflow."""
    leaves = wanted.nonfinite + 2 * wanted.outlier.any(axis=1)
    large, single = np.zeros(len(leaves), bool), dtype.itemsize == 4
    if isinstance(splitter, Digits) or (splitter.scaled and not single):
        brought_to = 7 if isinstance(splitter, Digits) else splitter.highest
        highest = wanted.exponents.max(axis=1)
        large = 2 * (highest + brought_to) + k.bit_length() > (127 if single else 1023)
    return np.where(leaves > 0, leaves, 4 * large).astype(np.uint8)


def compare(
    found: Any,
    batch: int,
    x: Array,
    scheme: Scheme,
    dtype: np.dtype[Any],
    whole_rows: bool,
) -> Packed:
    """What the reference makes of x, a matrix of a stack, in the type of the product.

    found: an operand packed with these settings, its parts as NumPy arrays of any shape; dtype: of
    the operand. whole_rows: by a kernel of whole rows, which does not clear digits that leave.
    """
    place, splitter = found.layout, found.splitter
    wanted = reference(x, splitter, scheme)
    laid, units = lay_out(wanted, scheme.element.name, place)
    shape = (place.batch, place.steps, place.count, place.rows8, 64)
    slices = found.slices.reshape(shape)[batch][:, :, : place.rows]
    scales = found.scales.reshape(place.batch, place.blocks, place.rows)[batch]
    stays = np.ones(place.rows, bool)
    if whole_rows:
        gone = wanted.nonfinite | wanted.outlier.any(axis=1)
        assert not (scales[0, gone] & 511).any()  # in units of zero
        stays = ~gone if isinstance(splitter, Digits) else stays
    np.testing.assert_array_equal(slices[:, :, stays], laid[:, :, : place.rows][:, :, stays])
    kept = wanted.slices.transpose(1, 0, 2, 3).reshape(place.rows, place.blocks, -1).any(axis=2)
    np.testing.assert_array_equal(scales[kept.T], units[kept.T])
    flags = flags_of(wanted, splitter, place.k, dtype)
    np.testing.assert_array_equal(found.flags.reshape(place.batch, -1)[batch], flags)
    if place.blocks > 1:
        outliers = found.outliers.reshape(place.batch, place.blocks, -1)[batch]
        np.testing.assert_array_equal(outliers, wanted.outlier.T)
    return wanted
