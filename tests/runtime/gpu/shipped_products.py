"""Prints products of the defaults and of int8x6, by shipped kernels or `without` them."""

import sys
from hashlib import sha256

import cupy

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.compile import origins

SIZES = (("faithful", "float32", 2048), ("faithful", "float32", 1024), ("int8x6", "float32", 1024))
# Of normal and log-normal numbers, and integers; of other sizes, for what was needed is remembered.
FP64 = (("crt", "float64", 768), ("crt", "float64", 640), ("crt", "float64", 512))

if __name__ == "__main__":
    if sys.argv[1:] == ["without"]:
        shipped.archive = lambda: None
    for scheme, dtype, n in (*SIZES, *FP64):
        rng = cupy.random.default_rng(n)
        x, y = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
        if scheme != "crt":
            x[3, 5] *= 1e9
        elif n == 640:
            x = cupy.exp(x)
        elif n == 512:
            x, y = cupy.rint(20 * x), cupy.rint(20 * y)
        for a in (x, x.T):
            for b in (y, y.T):
                value = matmul(a, b, scheme=scheme, backend="cuda")
                print(scheme, dtype, n, sha256(value.get().tobytes()).hexdigest())
    used = "compiled" if sys.argv[1:] == ["without"] else "shipped"
    assert origins.keys() == {used}, origins
