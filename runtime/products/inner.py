"""`inner` and `tensordot`: NumPy's functions, under the scheme in force."""

from functools import partial
from string import ascii_letters
from typing import Any, Unpack

from numpy import ndarray

from mixpert_py.runtime import warned
from mixpert_py.runtime.api import carry_out, matmul
from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.context import current, innermost, passes
from mixpert_py.runtime.products.rearranged import (
    INNER,
    TENSORDOT,
    Contraction,
    Pair,
    as_arrays,
    is_replaced,
    not_rearranged,
    pairs_of,
    rearranged,
)
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import (
    DOT,
    Call,
    Native,
    Own,
    Settings,
    dot_shape,
    is_dask,
    matmul_shape,
)
from mixpert_py.runtime.signatures import (
    NATIVE,
    device_of,
    keep,
    kept_product,
    signature_of_contraction,
)
from mixpert_py.runtime.worth import is_small


@trimmed
def inner(
    a: object, b: Any, *, native: Native = INNER, site: str | None = None, **own: Unpack[Own]
) -> Any:
    """np.inner(a, b): sums over the last axes, (…, k) and (…, k).

    a, b: anything `native` takes. Vectors and matrices of NumPy and CuPy are multiplied as
    a @ b.T; more dimensions stay native. Other arguments, result and errors as in `matmul`.
    """
    if not own:
        if type(a) is ndarray and is_small(a, b) and passes(site):
            return warned.call(native, a, b)
        if type(b) in device_of and b.ndim in (1, 2):
            columns = b.T if b.ndim == 2 else b  # a vector's view would take time
            value = kept_product(innermost.get().context, site, matmul_shape, native, a, columns)
            if value is not None:
                return native(a, b) if value is NATIVE else value
    if is_replaced(native, a, b):
        return native(a, b)
    return carry_out(_call(native, a, b), Settings(site=site, **own))[0]


def _call(native: Native, a: object, b: object) -> Call:
    arrays = as_arrays(a, b)
    if arrays is None or max(x.ndim for x in arrays) > 2:
        return not_rearranged(native, a, b, Reason.DIMENSIONS)
    rows, columns = arrays
    return rearranged(lambda: warned.call(native, a, b), rows, columns.T)


@trimmed
def tensordot(
    a: object,
    b: object,
    *rest: object,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    native: Native = TENSORDOT,
    **named: object,
) -> Any:
    """np.tensordot(a, b, axes=2): sums over pairs of axes.

    a, b, axes: anything `native` takes; `native` gets them as they are given, by position or by
    name. NumPy and CuPy arrays of types that take schemes are multiplied as two matrices, with the
    summed axes last in a and first in b. Other arguments, result and errors as in `matmul`.
    """
    is_free, is_on_device = scheme is None and backend is None, type(b) in device_of
    if is_free and not is_on_device and is_small(a, b) and passes(site):
        return native(a, b, *rest, **named)
    axes = rest[0] if rest else named.get("axes", 2)
    is_plain = len(rest) + len(named) < 2 and named.keys() <= {"axes"}
    context, signature = current(), None
    if is_plain and is_free and is_on_device and context.trace is None:
        signature = signature_of_contraction(site, native, str(axes), (a, b))
        known = context.known.get(signature)
        if known is not None:
            return native(a, b, *rest, **named) if known is NATIVE else known(a, b)
    if is_replaced(native, a, b) or not is_plain:
        return native(a, b, *rest, **named)
    run = partial(native, a, b, *rest, **named)
    settings = Settings(scheme, backend, site)
    if is_dask(a, b):
        from mixpert_py.runtime.products import dask_array

        if (lazy := dask_array.tensordot(run, a, b, axes, settings, tensordot)) is not None:
            return lazy
    arrays = as_arrays(a, b)
    pairs = Reason.NOT_AN_ARRAY if arrays is None else pairs_of(arrays[0], arrays[1], axes)
    if arrays is None or isinstance(pairs, Reason):
        assert isinstance(pairs, Reason)
        call = not_rearranged(lambda *_: run(), a, b, pairs)
        keep(context, signature, NATIVE)
        return carry_out(call, settings)[0]
    a_axes, b_axes = pairs
    pair = Pair(_contraction(arrays, a_axes, b_axes), arrays)
    if native is TENSORDOT and type(a) is ndarray:
        # This is all that NumPy does: calling it would copy the operands once more.
        call = Call(DOT, *pair.matrices(*arrays), (), None, dot_shape)
    else:
        call = pair.call(arrays, run, is_loop=False)
    result = pair.result(carry_out(call, settings)[0])
    keep(context, signature, pair.by(partial(matmul, site=site)))
    return result


def _contraction(arrays: tuple[AnyArray, ...], left: list[int], right: list[int]) -> Contraction:
    """A sum over pairs of axes, which are given for each array in order."""
    a, b = arrays
    a_letters, b_letters = ascii_letters[: a.ndim], [*ascii_letters[a.ndim : a.ndim + b.ndim]]
    for axis, other in zip(left, right, strict=True):
        b_letters[other] = a_letters[axis]
    rows = "".join(i for axis, i in enumerate(a_letters) if axis not in left)
    columns = "".join(i for axis, i in enumerate(b_letters) if axis not in right)
    summed = "".join(a_letters[axis] for axis in left)
    return Contraction(a_letters, "".join(b_letters), rows + columns, "", rows, summed, columns)
