"""`einsum`: np.einsum of two operands, under the scheme that is in force for this call."""

from functools import lru_cache
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from mixpert_py.runtime.call import Native, Wish
from mixpert_py.runtime.dispatch import MOVES, planned
from mixpert_py.runtime.in_force import passes
from mixpert_py.runtime.rearranged import are_arrays, dtype_reason, not_rearranged, rearranged
from mixpert_py.runtime.trace import Reason


class Contraction(NamedTuple):
    """A sum over products that is (stack, rows, sum) @ (stack, sum, columns).

    Each is the letters of some indices; left, right and output are as the subscripts give them.
    """

    left: str
    right: str
    output: str
    stack: str
    rows: str
    sum: str
    columns: str


def einsum(
    subscripts: Any,
    a: Any,
    b: Any,
    *,
    optimize: Any = False,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    block: int | None = None,
    native: Native = np.einsum,
) -> Any:
    """np.einsum(subscripts, a, b).

    subscripts, a, b, optimize: anything `native` takes. Arrays of NumPy's and CuPy's, float32 or
    float64, are multiplied as (stacks of) matrices where `contraction` finds them to be that. Other
    arguments, result and errors as in `matmul`.
    """
    given = {} if optimize is False else {"optimize": optimize}
    if (
        scheme is None
        and backend is None
        and passes(site)
        and type(a) is type(b) is ndarray
        and a.size < MOVES
    ):
        return native(subscripts, a, b, **given)
    wish = Wish(scheme, block, backend, site)
    found = _found(subscripts, a, b) if are_arrays(a, b) else Reason.NOT_AN_ARRAY
    if isinstance(found, Reason):
        call = not_rearranged(lambda x, y: native(subscripts, x, y, **given), a, b, found)
        return planned(call, wish)[0]
    size = dict(zip(found.left + found.right, a.shape + b.shape, strict=True))
    stack = [size[index] for index in found.stack]
    m, k, n = (prod(size[i] for i in part) for part in (found.rows, found.sum, found.columns))
    made = found.stack + found.rows + found.columns

    def run() -> Any:
        result = native(subscripts, a, b, **given)
        return _moved(result, found.output, made).reshape(*stack, m, n)

    rows = _moved(a, found.left, found.stack + found.rows + found.sum).reshape(*stack, m, k)
    columns = _moved(b, found.right, found.stack + found.sum + found.columns)
    call = rearranged(run, rows, columns.reshape(*stack, k, n))
    result = planned(call, wish)[0].reshape(*(size[index] for index in made))
    return _moved(result, made, found.output)


def _moved(x: Any, indices: str, wanted: str) -> Any:
    return x.transpose(*(indices.index(index) for index in wanted))


def _found(subscripts: Any, a: Any, b: Any) -> Contraction | Reason:
    if a.ndim == 0 or b.ndim == 0:
        return Reason.SCALAR
    reason = dtype_reason(a, b)
    if reason is not None:
        return reason
    found = contraction(subscripts) if type(subscripts) is str else None
    if found is None:
        return Reason.DIMENSIONS
    if (len(found.left), len(found.right)) != (a.ndim, b.ndim):
        return Reason.SHAPE
    left, right = dict(zip(found.left, a.shape, strict=True)), found.right
    # An index of 1 on one side would be broadcast, which no product of matrices does.
    shared = zip(right, b.shape, strict=True)
    return found if all(left.get(i, size) == size for i, size in shared) else Reason.SHAPE


@lru_cache(maxsize=256)
def contraction(subscripts: str) -> Contraction | None:
    """The product of matrices that subscripts of two operands mean; None: they mean another.

    Others: an ellipsis, an index twice in one operand or summed in one alone, no sum over both, and
    products of vectors alone, which give one number (of a stack) each.
    """
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    left, comma, right = inputs.partition(",")
    if not comma or not all(index in ascii_letters for index in left + right + output):
        return None
    once = set(left) ^ set(right)
    if not arrow:
        output = "".join(sorted(once))
    if any(len(set(part)) < len(part) for part in (left, right, output)):
        return None
    if not once <= set(output) <= set(left + right):
        return None
    found = Contraction(
        left,
        right,
        output,
        stack="".join(i for i in output if i not in once),
        rows="".join(i for i in output if i in once and i in left),
        sum="".join(i for i in left if i not in output),
        columns="".join(i for i in output if i in once and i in right),
    )
    return found if found.sum and once else None
