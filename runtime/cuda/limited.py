"""A product on the current GPU within a limit of what it may take besides operands and result."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Made, result_shape
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import product
from mixpert_py.runtime.cuda.parts import PANEL, two
from mixpert_py.runtime.cuda.workspace import besides
from mixpert_py.runtime.trace import Reason


def make(
    a: Any,
    b: Any,
    name: str,
    block: int | None = None,
    *,
    limit: int | None,
    out: Any = None,
    **asked: Any,
) -> Made | Reason:
    """As `product.make`, of packed operands and whole arrays together no more than `limit` bytes.

    Products of complex arrays, and by float64, take whole arrays: these are halved until they leave
    room; `product.make` goes on from there. What a guarantee and a certificate look at is not
    counted.
    """
    if limit is None:
        return product.make(a, b, name, block, out=out, **asked)
    taken = besides(name, a, b, out, asked.get("left"), asked.get("right"))
    halves = list(_halves(a, b))
    room = limit if name == "float64" or not halves else limit // 2
    if taken == 0 or taken <= room:
        return product.make(a, b, name, block, out=out, limit=limit - taken, **asked)
    asked = {key: value for key, value in asked.items() if value and key != "addend"}
    if not halves or asked.keys() & {"guarantee", "certificate"}:
        return Reason.WORKSPACE
    if out is None:
        xp = cuda_backend.cuda_kernels().xp
        out = xp.empty(result_shape(a, b), np.result_type(a.dtype, b.dtype))
    outliers = 0.0
    for rows, columns, place in halves:
        part = out[place]
        made = make(rows, columns, name, block, limit=limit, out=part, traced="traced" in asked)
        if isinstance(made, Reason):
            return made
        outliers = max(outliers, made.outliers())  # at once: there is no room for both
    return Made(out, name, lambda: outliers)


def _halves(a: Any, b: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Halves of the rows of A, or the columns of B, and their place in the result; or nothing,
    where the product is small as it is.
    """
    m, n = a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1
    if max(m, n) <= PANEL:
        return
    for part in two(max(m, n), PANEL):
        if m < n:
            yield a, b[..., part], (..., part)
        else:
            yield a[..., part, :], b, (..., part, slice(None)) if b.ndim > 1 else (..., part)
