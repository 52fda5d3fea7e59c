"""A product on the current GPU within a limit of what it may take besides operands and result."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Made, result_shape
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import product
from mixpert_py.runtime.cuda.parts import PANEL, two
from mixpert_py.runtime.cuda.workspace import besides
from mixpert_py.runtime.tracing.trace import Reason

Half = tuple[Any, Any, Any]  # of A, of B, and their place in the result


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
    if out is not None and not cuda_backend.overlaps(cuda_backend.cuda_kernels().xp, out, a, b):
        return _in_halves(halves, out, name, block, limit, "traced" in asked)
    return _apart(halves, a, b, out, name, block, limit, "traced" in asked)


def _apart(
    halves: list[Half],
    a: Any,
    b: Any,
    out: Any,
    name: str,
    block: int | None,
    limit: int,
    traced: bool,
) -> Made | Reason:
    """The product by halves, of which the second needs the operands as they were, too."""
    xp = cuda_backend.cuda_kernels().xp
    limit -= 0 if out is None else out.nbytes
    if limit < 0:
        return Reason.WORKSPACE
    shape, dtype = result_shape(a, b), np.result_type(a.dtype, b.dtype)
    value = product.attempt(a, name, lambda: xp.empty(shape, dtype))
    if isinstance(value, Reason):
        return value
    made = _in_halves(halves, value, name, block, limit, traced)
    if isinstance(made, Reason) or out is None:
        return made
    out[...] = value
    if cuda_backend.is_capturing(xp, xp.cuda.get_current_stream().ptr):
        cuda_backend.keep_for_graph(out, value)
    return made.into(out)


def _in_halves(
    halves: list[Half],
    out: Any,
    name: str,
    block: int | None,
    limit: int,
    traced: bool,
) -> Made | Reason:
    """Products of `_halves` into their places in `out`, which is none of the operands."""
    outliers = 0.0
    for rows, columns, place in halves:
        part = out[place]
        made = make(rows, columns, name, block, limit=limit, out=part, traced=traced)
        if isinstance(made, Reason):
            return made
        outliers = max(outliers, made.outliers())  # at once, and what was packed goes:
        del made  # there is no room for both
    return Made(out, name, lambda: outliers)


def _halves(a: Any, b: Any) -> Iterator[Half]:
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
