"""Integers and booleans of every type and range, and costs that let `exact` make any product."""

import numpy as np

from mixpert_py.runtime.arrays import Array

TYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
PAIRS = [(a, b) for a in TYPES for b in TYPES if np.result_type(a, b).kind in "biu"]
# Values of names in `worth` by which floating point is the fastest at every size.
EVERY_SIZE = {
    **dict.fromkeys(("INTEGER_LOOP", "INTEGER_LOOP_APART", "EINSUM_BYTE", "BOOLEAN_RESULT"), 1.0),
    **dict.fromkeys(("MIN_INTEGERS", "MIN_BOOLEANS", "MIN_EDGE", "MIN_EDGE_OF_STACK"), 1),
    "READ_IN_VAIN": 0,
}


def entries(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], kind: str) -> Array:
    """small: −3 … 3; full: any; ends: the type's extremes; else numbers of so many bits."""
    if dtype == "?":
        return rng.random(shape) < (0.5 if kind == "full" else 0.05)
    limits = np.iinfo(dtype)
    if kind == "ends":
        ends = np.array([limits.min, limits.max, 0, limits.max - 1], dtype)
        return rng.choice(ends, shape)
    most = limits.max if kind == "full" else 3 if kind == "small" else (1 << int(kind)) - 1
    low, high = max(limits.min, -most - 1), min(limits.max, most)
    return rng.integers(low, high, shape, dtype, endpoint=True)
