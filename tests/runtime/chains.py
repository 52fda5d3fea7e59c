"""Chains of fused multiply-adds in float32, exact."""

import numpy as np

from tests.runtime.families import Array


def fma(x: Array, y: Array, z: Array) -> Array:
    """x · y + z, rounded once, of float32 arrays that broadcast.

    The product is exact in float64. Its sum with z is rounded to odd there: to the neighbour of the
    exact sum whose last bit is set, which float32 then rounds as it would the sum itself.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product, other = np.broadcast_arrays(x.astype(np.float64) * y, z.astype(np.float64))
        total = np.asarray(product + other)
        part = total - product
        lost = (product - (total - part)) + (other - part)
        is_even = total.view(np.uint64) & 1 == 0
        inexact = np.isfinite(total) & (lost != 0) & is_even
        odd = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
        return np.where(inexact, odd, total).astype(np.float32)


def chained(a: Array, b: Array) -> Array:
    """A·B, each element one chain along K, in order, from +0; stacks broadcast."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    value = np.zeros((*stack, a.shape[-2], b.shape[-1]), np.float32)
    for at in range(a.shape[-1]):
        value = fma(a[..., at, np.newaxis], b[..., at, np.newaxis, :], value)
    return value
