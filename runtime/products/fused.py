"""`fused`: a sum with a product in it, the product under the scheme in force for this call.

A rewritten `alpha * (a @ b) + beta * c` is `fused(alpha, (a, b), beta, c, form="alpha*ab+beta*c")`,
and a rewritten `c += a @ b` is `c = fused(c, a, b, form="c+=ab")`.
"""

import operator
import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy
from numpy import errstate, finfo, floating, ndarray, result_type

from mixpert_py.errors import PlanError
from mixpert_py.runtime.api import MOVES, carry_out
from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.context import current, passes
from mixpert_py.runtime.overlap import shares
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.request import Addend, Call, Settings, broadcast, matmul_shape, result_shape

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
UFUNCS: dict[str, Callable[..., Any]] = {"+": numpy.add, "-": numpy.subtract}

INTEGERS = 24  # bits: any float type has these integers as they are


class Form(NamedTuple):
    """The order of a sum's terms, their factors, and the sign between them."""

    product_first: bool
    has_alpha: bool
    has_beta: bool
    sign: str

    @property
    def in_place(self) -> bool:
        return self.sign.endswith("=")


@trimmed
def fused(
    *operands: Any,
    form: str,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    block: int | None = None,
) -> Any:
    """The sum that `form` describes.

    operands: as they stand in the form, such as "c-ab" or "alpha*ab+beta*c"; a and b are a pair
    where they have a factor. `c+=ab` and `c-=ab` write where Python's statement would, and return
    the value that it would bind. Any types: every step but the product is made by the operator that
    the program wrote, in the program's order. Raises PlanError for an unknown form; other arguments
    and errors as in `matmul`.

    CuPy arrays of one type, and numbers, are multiplied and added in one pass where a scheme makes
    the product. Sums without factors of NumPy arrays
    are computed as the product of a GPU is copied back. Shape and type are those of the operators,
    and so are the places of NaN and Inf where no intermediate result overflows.
    """
    how = read(form)
    count = 2 if how.product_first or how.has_beta else 1  # arguments of the first term
    left, right = operands[:count], operands[count:]
    other, product = (right, left) if how.product_first else (left, right)
    a, b = product[1] if how.has_alpha else product
    addend = None if type(a) is ndarray else _addend(how, product[0], a, b, other)
    term_first = not how.product_first and addend is None
    term = _other(other) if term_first else None
    add = SUMS[how.sign]
    if (
        scheme is None
        and backend is None
        and type(a) is type(b) is ndarray
        and a.size < MOVES
        and passes(site)
    ):
        value = operator.matmul(a, b)
    else:
        if type(a) is ndarray:
            addend = _host_addend(how, a, b, other[0])
        call = Call(operator.matmul, a, b, (), None, matmul_shape, addend=addend)
        value, emulated = carry_out(call, Settings(scheme, block, backend, site))
        if emulated is not None and emulated.includes_addend:
            return value
        if emulated is None and type(a) is ndarray and _may_overwrite_product(addend):
            add = partial(UFUNCS[how.sign], out=value)
    if how.has_alpha:
        value = product[0] * value
    if not term_first:
        term = _other(other)
    return add(value, term) if how.product_first else add(term, value)


def _may_overwrite_product(addend: Addend | None) -> bool:
    """Whether the sum may be written over a native product of NumPy arrays.

    Nothing else refers to the product, unless a trace stores it. NumPy's operators also reuse the
    memory of such temporary arrays.
    """
    return addend is not None and not addend.in_place and current().trace is None


def _other(term: tuple[Any, ...]) -> Any:
    return term[0] if len(term) == 1 else term[0] * term[1]


def _addend(how: Form, alpha: object, a: Any, b: Any, other: tuple[Any, ...]) -> Addend | None:
    """The term that is added in the same pass as the product is made; None if there is no such.

    There is one if a, b and c are CuPy arrays of one type on one device, and the factors numbers.
    """
    array = getattr(sys.modules.get("cupy"), "ndarray", None)
    beta, c = (1.0, *other) if len(other) == 1 else other
    if type(beta) is array:
        beta, c = c, beta
    if array is None or not type(a) is type(b) is type(c) is array:
        return None
    if a.dtype.char not in "fd" or not a.dtype == b.dtype == c.dtype:
        return None
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2] or 0 in (a.size, b.size):
        return None
    if c.data.device_id != a.data.device_id or not _fits(c, a, b, how.in_place):
        return None
    factor = _factor(alpha, a.dtype.type) if how.has_alpha else 1.0
    beta = _factor(beta, a.dtype.type) if len(other) == 2 else 1.0
    if factor is None or not beta:  # the kernels do not read c, and its NaN, where beta is 0
        return None
    return _signed(how, factor, beta, c)


def _signed(how: Form, alpha: float, beta: float, c: AnyArray) -> Addend:
    """The term, with the sign of the sum in the factor of the second summand."""
    if how.sign.startswith("-"):
        alpha, beta = (alpha, -beta) if how.product_first else (-alpha, beta)
    return Addend(alpha, beta, c, how.in_place)


def _host_addend(how: Form, a: object, b: object, c: object) -> Addend | None:
    """The same as `_addend` of NumPy arrays, in sums without factors only.

    It is added to the panels in which a product is copied back from a GPU.
    """
    if how.has_alpha or how.has_beta or not type(a) is type(b) is type(c) is ndarray:
        return None
    if not a.ndim == b.ndim == 2 or any(x.dtype.char not in "fdFD" for x in (a, b)):
        return None
    if c.dtype != result_type(a, b) or not _fits(c, a, b, how.in_place):
        return None
    # In place, an operand that shares memory with c would change before it is multiplied.
    if how.in_place and (not c.flags.writeable or any(shares(c, x) for x in (a, b))):
        return None
    return _signed(how, 1.0, 1.0, c)


def _fits(c: AnyArray, a: AnyArray, b: AnyArray, in_place: bool) -> bool:
    """Whether a sum with c has the product's shape."""
    try:
        shape = result_shape(a, b)
        return bool(c.shape == shape or (not in_place and broadcast(c.shape, shape) == shape))
    except ValueError:
        return False


def _factor(x: object, real: type[floating[Any]]) -> float | None:
    """A number rounded to the type `real`; None if it would change the type of an array.

    None as well for a number that is neither 0 nor normal in that type: the kernels may flush it.
    """
    if type(x) not in (int, float, real) or (type(x) is int and x.bit_length() > INTEGERS):
        return None
    number: Any = x
    with errstate(all="ignore"):
        value = float(real(number))
    return value if value == 0 or finfo(real).tiny <= abs(value) <= finfo(real).max else None


@lru_cache(maxsize=64)
def read(form: str) -> Form:
    """Parse the form of a sum. Raises PlanError for an unknown one."""
    if found := PRODUCT_FIRST.fullmatch(form):
        alpha, sign, beta = found.groups()
    elif found := OTHER_FIRST.fullmatch(form):
        beta, sign, alpha = found.groups()
    if found is None or (beta and sign.endswith("=")):
        raise PlanError(f"unknown form {form!r} of a sum; known: ab+c, alpha*ab+beta*c, c+=ab, …")
    return Form(form.startswith("a"), bool(alpha), bool(beta), sign)
