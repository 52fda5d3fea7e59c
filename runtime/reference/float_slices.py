"""Floating-point slices: FP16, BF16 or TF32 values, each rounding what those before it left."""

import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.reference.packed import Packed, padded, panels, times_power_of_two
from mixpert_py.runtime.splitter import Element, FloatSlices


def split(
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
            piece = _rounded(rest, splitter)
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


def _rounded(x: Array, splitter: FloatSlices) -> Array:
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
