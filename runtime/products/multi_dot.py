"""`multi_dot` and `matrix_power`: NumPy's chains of products, each under the scheme in force."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Unpack

import numpy as np
from numpy import ndarray

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.context import innermost
from mixpert_py.runtime.products.rearranged import (
    MATRIX_POWER,
    MULTI_DOT,
    dtype_reason,
    is_replaced,
    not_rearranged,
)
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import (
    DOT,
    MATMUL,
    Call,
    Native,
    Own,
    Settings,
    dot_shape,
    matmul_shape,
)
from mixpert_py.runtime.worth import are_small

# The product of matrices i … j from those of i … k and k + 1 … j.
Step = tuple[int, int, int]


@trimmed
def multi_dot(
    arrays: object,
    *,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    native: Native = MULTI_DOT,
    **named: object,
) -> Any:
    """np.linalg.multi_dot(arrays, out=out), in the order of products that NumPy takes.

    arrays: anything `native` takes. Lists and tuples of NumPy matrices of types that take schemes,
    the first and last perhaps vectors, are multiplied in pairs, each counted as a call of the site.
    Other arguments, result and errors as in `matmul`.
    """
    if (
        scheme is None
        and backend is None
        and site in innermost.get().context.passing  # not `passes`: each pair is a call
        and (type(arrays) is list or type(arrays) is tuple)
        and are_small(arrays)
    ):
        return native(arrays, **named)
    if is_replaced(native) or not named.keys() <= {"out"}:
        return native(arrays, **named)
    settings = Settings(scheme, backend, site)
    matrices = _matrices(arrays)
    if isinstance(matrices, tuple):
        operand, reason = matrices
        call = not_rearranged(lambda *_: native(arrays, **named), operand, operand, reason)
        return carry_out(call, settings)[0]
    sizes = _sizes(matrices)
    first, last = matrices[0].ndim, matrices[-1].ndim
    if len(matrices) > 2:  # NumPy leaves the vectors of a pair as they are
        matrices[0] = matrices[0][np.newaxis] if first == 1 else matrices[0]
        matrices[-1] = matrices[-1][:, np.newaxis] if last == 1 else matrices[-1]
    products = {(i, i): matrix for i, matrix in enumerate(matrices)}
    for i, k, j in steps(sizes):
        left, right = products.pop((i, k)), products.pop((k + 1, j))
        step = settings._replace(more_follow=bool(products))
        # The last product, which is two-dimensional, goes to `out`.
        destination = None if products else named.get("out")
        products[i, j] = carry_out(Call(DOT, left, right, (), destination, dot_shape), step)[0]
    result = products[0, len(matrices) - 1]
    if len(matrices) == 2 or first == last == 2:
        return result
    return result[0, 0] if first == last == 1 else result.ravel()


@trimmed
def matrix_power(
    a: object,
    n: object,
    *,
    native: Native = MATRIX_POWER,
    site: str | None = None,
    **own: Unpack[Own],
) -> Any:
    """np.linalg.matrix_power(a, n), by the products that NumPy makes.

    a, n: anything `native` takes. If a is a NumPy array (…, m, m) of a type that takes schemes, and
    n is at least 2, each product counts as a call of the site. Other arguments, result and errors
    as in `matmul`.
    """
    is_passing = not own and site in innermost.get().context.passing
    if native is not MATRIX_POWER or (is_passing and are_small((a, a))):
        return native(a, n)
    settings = Settings(site=site, **own)
    if not isinstance(a, ndarray) or not isinstance(n, (int, np.integer)) or n < 2:
        reason: Reason | None = Reason.DIMENSIONS
    elif a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        reason = Reason.SHAPE
    else:
        reason = dtype_reason(a) if type(a) is ndarray else Reason.SUBCLASS
    if reason is not None:
        call = not_rearranged(lambda *_: native(a, n), a, a, reason)
        return carry_out(call, settings)[0]
    assert isinstance(a, ndarray)
    bits = int(n)  # type: ignore[call-overload]
    remaining = bits.bit_length() + bits.bit_count() - 2

    def product(x: Array, y: Array) -> Any:
        nonlocal remaining
        remaining -= 1
        step = settings._replace(more_follow=remaining > 0)
        return carry_out(Call(MATMUL, x, y, (), None, matmul_shape), step)[0]

    if bits == 3:
        return product(product(a, a), a)
    power, result = a, None
    while True:
        bits, is_odd = divmod(bits, 2)
        if is_odd:
            result = power if result is None else product(result, power)
        if not bits:
            return result
        power = product(power, power)


@lru_cache(maxsize=256)
def steps(sizes: tuple[int, ...]) -> tuple[Step, ...]:
    """The cheapest order of products of matrices, sizes[i] × sizes[i + 1]; the one NumPy takes.

    Cormen et al., Introduction to Algorithms, 15.2.
    """
    count = len(sizes) - 1
    cost = {(i, i): 0.0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    order: list[Step] = []
    pending = [(0, count - 1)]
    while pending:  # from the last product to the first
        i, j = pending.pop()
        if i < j:
            order.append((i, split[i, j], j))
            pending += [(i, split[i, j]), (split[i, j] + 1, j)]
    return tuple(reversed(order))


def _sizes(arrays: Sequence[Array]) -> tuple[int, ...]:
    """Rows of the first, then columns of every array; a vector is a row first, a column last."""
    rows = arrays[0].shape[0] if arrays[0].ndim == 2 else 1
    columns = arrays[-1].shape[1] if arrays[-1].ndim == 2 else 1
    return (rows, *(x.shape[0] for x in arrays[1:]), columns)


def _matrices(arrays: object) -> list[Array] | tuple[object, Reason]:
    """The arrays of a chain in which every product can take a scheme; else an operand, and why the
    chain is one native call.
    """
    if (type(arrays) is not list and type(arrays) is not tuple) or len(arrays) < 2:
        return arrays, Reason.SHAPE
    matrices: list[Array] = []
    for at, x in enumerate(arrays):
        if type(x) is not ndarray:
            return x, Reason.NOT_AN_ARRAY
        reason = dtype_reason(x)
        if x.ndim > 2 or (x.ndim == 1 and 0 < at < len(arrays) - 1):
            reason = Reason.DIMENSIONS
        if at and x.ndim and x.shape[0] != arrays[at - 1].shape[-1]:
            reason = Reason.SHAPE
        if reason is not None or x.ndim == 0:
            return x, reason or Reason.SCALAR
        matrices.append(x)
    return matrices
