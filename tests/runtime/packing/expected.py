"""What packing has to leave, from the reference backend: bit for bit."""

from typing import Any

import numpy as np

from mixpert_py.runtime.reference.slices import Packed, into_digits, into_floats
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits, Splitter
from tests.runtime.families import Array
from tests.runtime.gpu.layout import lay_out


def reference(x: Array, splitter: Splitter, scheme: Scheme) -> Packed:
    """x (rows, k) split; B's columns are the rows of x. The slices are not in reverse order."""
    chunk, block, _ = scheme.lengths(x.shape[1])
    with np.errstate(all="ignore"):
        if isinstance(splitter, Digits):
            return into_digits(x, splitter, chunk, block)
        return into_floats(x, splitter, chunk, block)


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
    laid = lay_out(wanted, splitter, scheme, place.k)
    shape = (place.batch, place.steps, place.count, place.rows8, 64)
    slices = found.slices.reshape(shape)[batch][:, :, : place.rows]
    scales = found.scales.reshape(place.batch, place.blocks, place.rows)[batch]
    stays = np.ones(place.rows, bool)
    if whole_rows:
        gone = wanted.nonfinite | wanted.outlier.any(axis=1)
        assert not (scales[0, gone] & 511).any()  # in units of zero
        stays = ~gone if isinstance(splitter, Digits) else stays
    np.testing.assert_array_equal(
        slices[:, :, stays], laid.slices[: place.steps, :, : place.rows][:, :, stays]
    )
    assert not laid.slices[place.steps :].any()
    kept = wanted.slices.transpose(1, 0, 2, 3).reshape(place.rows, place.blocks, -1).any(axis=2)
    np.testing.assert_array_equal(scales[kept.T], laid.scales[kept.T])
    flags = flags_of(wanted, splitter, place.k, dtype)
    np.testing.assert_array_equal(found.flags.reshape(place.batch, -1)[batch], flags)
    if place.blocks > 1:
        outliers = found.outliers.reshape(place.batch, place.blocks, -1)[batch]
        np.testing.assert_array_equal(outliers, wanted.outlier.T)
    return wanted
