"""`inner`: np.inner, under the scheme that is in force for this call."""

from typing import Any

from numpy import ndarray

from mixpert_py.runtime import warned
from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.context import innermost, passes
from mixpert_py.runtime.products.rearranged import (
    INNER,
    as_arrays,
    is_replaced,
    not_rearranged,
    rearranged,
)
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, Settings, matmul_shape
from mixpert_py.runtime.signatures import NATIVE, device_of, kept_product
from mixpert_py.runtime.worth import is_small


@trimmed
def inner(
    a: Any,
    b: Any,
    *,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    block: int | None = None,
    native: Native = INNER,
) -> Any:
    """np.inner(a, b): sums over the last axes, (…, k) and (…, k).

    a, b: anything `native` takes. Vectors and matrices of NumPy and CuPy are multiplied as
    a @ b.T; more dimensions stay native. Other arguments, result and errors as in `matmul`.
    """
    if scheme is None and backend is None and block is None:
        if type(a) is ndarray and is_small(a, b) and passes(site):
            return warned.call(native, a, b)
        if type(b) in device_of and b.ndim in (1, 2):
            columns = b.T if b.ndim == 2 else b  # a vector's view would take time
            value = kept_product(innermost.get().context, site, matmul_shape, False, a, columns)
            if value is not None:
                return native(a, b) if value is NATIVE else value
    if is_replaced(native, a, b):
        return native(a, b)
    return carry_out(_call(native, a, b), Settings(scheme, block, backend, site))[0]


def _call(native: Native, a: object, b: object) -> Call:
    arrays = as_arrays(a, b)
    if arrays is None or max(x.ndim for x in arrays) > 2:
        return not_rearranged(native, a, b, Reason.DIMENSIONS)
    rows, columns = arrays
    return rearranged(lambda: warned.call(native, a, b), rows, columns.T)
