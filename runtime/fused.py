"""`fused`: a sum with a product in it, the product under the scheme in force for this call.

A rewritten `alpha * (a @ b) + beta * c` is `fused(alpha, (a, b), beta, c, form="alpha*ab+beta*c")`,
and a rewritten `c += a @ b` is `c = fused(c, a, b, form="c+=ab")`.
"""

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from numpy import ndarray

from mixpert_py.errors import PlanError
from mixpert_py.runtime.call import Call, Wish, matmul_shape
from mixpert_py.runtime.dispatch import MOVES, planned
from mixpert_py.runtime.in_force import passes

PRODUCT = r"(alpha\*)?ab"
OTHER = r"(beta\*)?c"
PRODUCT_FIRST = re.compile(rf"{PRODUCT}([+-]){OTHER}")
OTHER_FIRST = re.compile(rf"{OTHER}([+-]=?){PRODUCT}")
SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "+=": operator.iadd,
    "-=": operator.isub,
}


class Form(NamedTuple):
    """How a sum is written: whether the product is its first term, and has a factor; and so on."""

    product_first: bool
    has_alpha: bool
    has_beta: bool
    add: Callable[[Any, Any], Any]


def fused(
    *operands: Any,
    form: str,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    block: int | None = None,
) -> Any:
    """The sum that `form` describes, by the operators that the program wrote and in their order.

    operands: as they stand in the form, such as "c-ab" or "alpha*ab+beta*c"; a and b are a pair
    where they have a factor. `c+=ab` and `c-=ab` write where Python's statement would, and return
    what it would bind. Any types: each step is the program's own but the product. Raises PlanError
    for a form that is none; other arguments and errors as in `matmul`.
    """
    how = read(form)
    count = 2 if how.product_first or how.has_beta else 1  # arguments of the first term
    left, right = operands[:count], operands[count:]
    other, product = (right, left) if how.product_first else (left, right)
    term = None if how.product_first else _other(other)
    a, b = product[1] if how.has_alpha else product
    if (
        scheme is None
        and backend is None
        and passes(site)
        and type(a) is type(b) is ndarray
        and a.size < MOVES
    ):
        made = operator.matmul(a, b)
    else:
        call = Call(operator.matmul, a, b, (), None, matmul_shape)
        made = planned(call, Wish(scheme, block, backend, site))[0]
    if how.has_alpha:
        made = product[0] * made
    return how.add(made, _other(other)) if how.product_first else how.add(term, made)


def _other(term: tuple[Any, ...]) -> Any:
    return term[0] if len(term) == 1 else term[0] * term[1]


@lru_cache(maxsize=64)
def read(form: str) -> Form:
    """Raises PlanError for a form that is none."""
    if found := PRODUCT_FIRST.fullmatch(form):
        alpha, sign, beta = found.groups()
    elif found := OTHER_FIRST.fullmatch(form):
        beta, sign, alpha = found.groups()
    if found is None or (beta and sign.endswith("=")):
        raise PlanError(f"unknown form {form!r} of a sum; known: ab+c, alpha*ab+beta*c, c+=ab, …")
    return Form(form.startswith("a"), bool(alpha), bool(beta), SUMS[sign])
