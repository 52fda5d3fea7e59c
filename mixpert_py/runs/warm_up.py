"""Products made before a program's clock runs, so that no call site pays for what its first needs.

On a GPU that is CUDA's own beginning, the kernels of every scheme, shape and dtype, and memory that
CuPy's pool keeps for the next that asks: to ask the driver takes longer than many a product.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

Product = tuple[str, int, int, int, str]
"""Scheme, m, k, n, dtype."""

EDGE = 384
FIRST: tuple[Product, ...] = tuple(
    (scheme, EDGE, EDGE, EDGE, "float32") for scheme in ("native", "int8x6")
)


def host() -> None:
    """Start the BLAS threads and touch its code."""
    for dtype in (np.float64, np.float32):
        square = np.ones((EDGE, EDGE), dtype)
        np.matmul(square, square)


def on_gpu(products: Iterable[Product], moved: bool) -> None:
    """Make each product on the GPU, if there is one. moved: of NumPy arrays, else of CuPy's."""
    from mixpert_py.runtime.cuda import device

    if not device.may_be_here() or isinstance(device.find(), device.Absent):
        return
    import cupy

    for product in products:
        _make(*product, moved=moved)
    cupy.cuda.get_current_stream().synchronize()


@cache
def _make(scheme: str, m: int, k: int, n: int, dtype: str, *, moved: bool) -> None:
    """Once a process. What fails here fails, or falls back, in the program as well."""
    import cupy

    from mixpert_py.runtime.call import PRECISION
    from mixpert_py.runtime.dispatch import matmul

    xp: Any = np if moved else cupy
    draw = xp.random.default_rng(0)
    with suppress(Exception):
        real = PRECISION.get(dtype, dtype)
        a, b = (
            draw.standard_normal(shape, dtype=real).astype(dtype, copy=False)
            for shape in ((m, k), (k, n))
        )
        matmul(a, b, scheme=scheme, backend="cuda")
