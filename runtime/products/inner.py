"""`inner`, `matvec`, `vecmat` and `vecdot`: NumPy's functions, under the scheme in force."""

from typing import Any

from numpy import ndarray

from mixpert_py.runtime import warned
from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.context import innermost, passes
from mixpert_py.runtime.products.rearranged import (
    INNER,
    as_arrays,
    dtype_reason,
    is_replaced,
    not_rearranged,
    rearranged,
)
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, Settings, matmul_shape
from mixpert_py.runtime.signatures import NATIVE, device_of, kept_product
from mixpert_py.runtime.worth import is_small

FEWEST = {"matvec": (2, 1), "vecmat": (1, 2), "vecdot": (1, 1)}  # dimensions of the operands


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


@trimmed
def matvec(a: Any, b: Any, *, native: Native, site: str | None = None, **given: Any) -> Any:
    """np.matvec(a, b): (…, m, k) and (…, k), stacks as in np.matmul. Other arguments, result and
    errors as in `matmul`.
    """
    return _product(native, "matvec", a, b, site, given)


@trimmed
def vecmat(a: Any, b: Any, *, native: Native, site: str | None = None, **given: Any) -> Any:
    """np.vecmat(a, b): the conjugate of (…, k), and (…, k, n). The rest as in `matvec`."""
    return _product(native, "vecmat", a, b, site, given)


@trimmed
def vecdot(a: Any, b: Any, *, native: Native, site: str | None = None, **given: Any) -> Any:
    """np.vecdot(a, b): the conjugate of (…, k), and (…, k). The rest as in `matvec`."""
    return _product(native, "vecdot", a, b, site, given)


def _product(
    native: Native, name: str, a: Any, b: Any, site: str | None, given: dict[str, Any]
) -> Any:
    if not given and is_small(a, b) and passes(site):
        return native(a, b)
    settings = Settings(site=site, **given)
    arrays = as_arrays(a, b)
    if arrays is None:
        return carry_out(not_rearranged(native, a, b, Reason.NOT_AN_ARRAY), settings)[0]
    reason = dtype_reason(*arrays)
    if any(x.ndim < few for x, few in zip(arrays, FEWEST[name], strict=True)):
        reason = Reason.DIMENSIONS
    if reason is not None:
        return carry_out(not_rearranged(native, a, b, reason), settings)[0]
    left: Any
    right: Any
    left, right = arrays
    axes: list[int] = []
    if name != "matvec":
        left, axes = left.conj()[..., None, :], [-2]
    if name != "vecmat":
        right, axes = right[..., None], [*axes, -1]
    shape = tuple(axes)

    def run() -> Any:
        return _with_axes(native(a, b), shape)

    result = carry_out(rearranged(run, left, right), settings)[0].squeeze(shape)
    return result if result.ndim else result[()]


def _with_axes(result: Any, axes: tuple[int, ...]) -> Any:
    """The native result in the shape of the matrix product's."""
    if len(axes) == 2:
        return result[..., None, None]
    return result[..., None] if axes == (-1,) else result[..., None, :]
