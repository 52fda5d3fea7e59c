"""`matvec`, `vecmat`, `vecdot`: NumPy's products of stacks of vectors, under a scheme."""

from typing import Any

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.context import passes
from mixpert_py.runtime.products.rearranged import (
    as_arrays,
    dtype_reason,
    not_rearranged,
    rearranged,
)
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Native, Settings
from mixpert_py.runtime.worth import is_small

FEWEST = {"matvec": (2, 1), "vecmat": (1, 2), "vecdot": (1, 1)}  # dimensions of the operands


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
