"""`blas_gemm`: SciPy's `sgemm`, `dgemm`, `cgemm` and `zgemm`, under the scheme in force."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.context import current, passes
from mixpert_py.runtime.products.rearranged import not_rearranged, rearranged
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Native, Settings
from mixpert_py.runtime.worth import is_small

DTYPES: dict[str, np.dtype[Any]] = {
    "sgemm": np.dtype(np.float32),
    "dgemm": np.dtype(np.float64),
    "cgemm": np.dtype(np.complex64),
    "zgemm": np.dtype(np.complex128),
}
NUMBERS = (bool, int, float, np.floating, np.integer)
COMPLEX = (complex, np.complexfloating)


class Arguments(NamedTuple):
    """The parameters of SciPy's functions, in their order and with their defaults."""

    alpha: Any
    a: Any
    b: Any
    beta: Any = 0.0
    c: Any = None
    trans_a: Any = 0
    trans_b: Any = 0
    overwrite_c: Any = 0


@trimmed
def blas_gemm(
    *arguments: object,
    native: Native,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    **options: Any,
) -> Any:
    """alpha · op(a) @ op(b) + beta · c, as native(*arguments, **options) computes it.

    native: one of these four of scipy.linalg.blas. Arguments that it would convert or refuse are
    left to it; matrices of its own dtype take the scheme. The result is in Fortran order, and is c
    itself where that may be overwritten. alpha and beta are rounded to that dtype. Other arguments
    and errors as in `matmul`.
    """
    given = _bound(arguments, options)
    if scheme is None and backend is None and is_small(given.a, given.b) and passes(site):
        return native(*arguments, **options)
    settings = Settings(scheme, backend, site)
    native_result: list[Any] = []

    def run(*_: object) -> Any:
        native_result[:] = [native(*arguments, **options)]
        return native_result[0]

    a, b = given.a, given.b
    refused = _refused(given, native)
    if refused is not None:
        return carry_out(not_rearranged(run, a, b, refused), settings)[0]
    left, right = _op(a, given.trans_a), _op(b, given.trans_b)
    product = carry_out(rearranged(run, left, right), settings)[0]
    result = native_result[0] if native_result else _with_factors(product, given)
    trace = current().trace
    if trace is not None and site in trace.keep:
        trace.keep_result(site, result.copy())  # in place of the product alone
    return result


def _op(x: Array, flag: int) -> Array:
    """op(x) as a new array: x, its transpose (1), or that conjugated (2)."""
    if not flag:
        return x.view()
    return x.T.conj() if flag == 2 and x.dtype.kind == "c" else x.T


def _bound(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Arguments:
    """The arguments of a call by their names; None for all where SciPy would refuse them."""
    try:
        return Arguments(*arguments, **options)
    except TypeError:
        return Arguments(None, None, None)


def _refused(given: Arguments, native: Native) -> Reason | None:
    """The reason why the call is left to `native`; None if its result is known."""
    dtype = DTYPES.get(str(getattr(native, "__name__", "")).rpartition(" ")[2])
    if dtype is None:
        return Reason.DTYPE
    matrices = [given.a, given.b, *(() if given.c is None else (given.c,))]
    if any(type(x) is not ndarray for x in matrices):
        return Reason.NOT_AN_ARRAY
    if any(x.dtype != dtype for x in matrices):
        return Reason.DTYPE
    if any(x.ndim != 2 for x in matrices):
        return Reason.DIMENSIONS
    numbers = (*NUMBERS, *COMPLEX) if dtype.kind == "c" else NUMBERS
    if not all(isinstance(x, numbers) for x in (given.alpha, given.beta)) or given.alpha == 0:
        return Reason.SCALAR  # with zero it is BLAS's to say whether NaN is read
    flags = given.trans_a, given.trans_b, given.overwrite_c
    if not all(isinstance(x, (bool, int)) and 0 <= x <= 2 for x in flags):
        return Reason.SHAPE
    (m, k), (inner, n) = (
        x.shape[::-1] if flag else x.shape
        for x, flag in ((given.a, given.trans_a), (given.b, given.trans_b))
    )
    if k != inner or 0 in (m, k, n):
        return Reason.SHAPE
    c = given.c
    if c is None:
        return None
    if c.shape != (m, n):
        return Reason.SHAPE
    if given.overwrite_c and c.flags.f_contiguous:
        apart = not any(np.may_share_memory(c, x) for x in (given.a, given.b))
        return None if apart and c.flags.writeable and c.flags.aligned else Reason.OUT
    return None


def _with_factors(product: Array, given: Arguments) -> Any:
    """alpha · product + beta · c, in c where that is overwritten."""
    dtype, c = product.dtype, given.c
    with np.errstate(all="ignore"):  # as in BLAS, nobody warns
        result = np.multiply(product, dtype.type(given.alpha), order="F")
        if c is not None and given.beta != 0:
            result += dtype.type(given.beta) * c
    if c is None or not given.overwrite_c or not c.flags.f_contiguous:
        return result
    np.copyto(c, result)
    return c
