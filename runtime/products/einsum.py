"""`einsum`: np.einsum, each product of matrices in it under the scheme in force for this call."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from mixpert_py.runtime.api import MOVES, carry_out
from mixpert_py.runtime.context import current, passes
from mixpert_py.runtime.dtypes import PRECISION, is_wide, name_of
from mixpert_py.runtime.gpu.foreign import on_host
from mixpert_py.runtime.products.contraction import Step, Sum, contraction, expand, path, read
from mixpert_py.runtime.products.pair import Pair
from mixpert_py.runtime.products.rearranged import are_arrays, dtype_reason, not_rearranged
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Native, Settings, is_dask

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
ORDERS = ("K", "A", "C", "F")


class Problem(NamedTuple):
    """Arrays that take schemes and what is summed over their products, in steps.

    No index has two sizes, and arrays have the dtype that np.einsum would cast them to.
    """

    terms: Sum
    arrays: tuple[Any, ...]
    steps: tuple[Step, ...]


def einsum(
    *operands: Any,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    block: int | None = None,
    native: Native = np.einsum,
    **options: Any,
) -> Any:
    """np.einsum(*operands, **options): subscripts and arrays, or arrays and lists of indices.

    operands, options: anything `native` takes. Arrays of NumPy's and CuPy's, of types that take
    schemes, are multiplied as (stacks of) matrices where `contraction` finds them to be that. More
    than two are contracted in pairs, in the order of np.einsum_path, if a scheme is in force for
    them: each pair is then a call of the site. Other arguments, result and errors as in `matmul`.
    """
    if scheme is None and backend is None and passes(site) and _stay(operands):
        return native(*operands, **options)
    settings = Settings(scheme, block, backend, site)
    if is_dask(*operands):
        from mixpert_py.runtime.products import dask_array

        if (lazy := dask_array.einsum(native, operands, options, settings)) is not None:
            return lazy

    def whole(*_: Any) -> Any:
        return native(*operands, **options)

    found = _found(operands, options)
    if isinstance(found, Reason):
        return carry_out(not_rearranged(whole, *_telling(operands), found), settings)[0]
    if len(found.steps) > 1:
        if not _is_emulated(settings, found):
            call = not_rearranged(whole, *_telling(operands), Reason.DIMENSIONS)
            return carry_out(call, settings)[0]
        result = _by_steps(found, native, options, settings)
        trace = current().trace
        if trace is not None and site in trace.keep and 0 not in result.shape:
            trace.keep_result(site, on_host(result))  # of all, as where `native` makes it
        return _finished(result, options)
    pair = Pair(found.terms, found.arrays, whole)
    result = carry_out(pair.call, settings)[0]
    return pair.made[0] if pair.made else _finished(pair.restored(result), options)


def _stay(operands: Sequence[Any]) -> bool:
    """Whether nothing here is on a GPU, or worth moving there."""
    for x in operands:
        if type(x) is ndarray:
            if x.size >= MOVES:
                return False
        elif type(x) not in (str, list, tuple):
            return False
    return True


def _telling(operands: Sequence[Any]) -> tuple[Any, Any]:
    """Two arrays, those first that tell why no scheme is taken."""
    _, arrays = read(operands)
    odd = [x for x in arrays if not are_arrays(x)]
    first, *others = odd or arrays or (None,)
    return first, others[-1] if others else first


def _found(operands: Sequence[Any], options: Mapping[str, Any]) -> Problem | Reason:
    """What the arguments mean, or why `native` has to judge them."""
    subscripts, arrays = read(operands)
    if not arrays or not are_arrays(*arrays):
        return Reason.NOT_AN_ARRAY
    if any(x.ndim == 0 for x in arrays):
        return Reason.SCALAR
    reason = dtype_reason(*arrays)
    if reason is not None:
        return reason
    terms = expand(subscripts, tuple(x.ndim for x in arrays)) if subscripts is not None else None
    if terms is None or len(arrays) < 2:
        return Reason.DIMENSIONS
    fitting = _fitting(terms, arrays)
    if isinstance(fitting, Reason):
        return fitting
    kept, fit, shape = fitting
    steps = path(kept, tuple(x.shape for x in fit), options.get("optimize", False))
    if len(fit) == 2 and steps is not None:
        steps = (Step((0, 1), kept),)
    if steps is None or not any(contraction(step.terms) for step in steps):
        return Reason.DIMENSIONS
    cast = _cast(fit, options)
    if isinstance(cast, Reason):
        return cast
    reason = _options_reason(options, arrays, shape, cast)
    return reason if reason is not None else Problem(kept, cast, steps)


def _fitting(
    terms: Sum, arrays: Sequence[Any]
) -> tuple[Sum, tuple[Any, ...], tuple[int, ...]] | Reason:
    """The operands without axes of 1 that would be repeated, and the shape of the result."""
    sizes: dict[str, int] = {}
    for letters, x in zip(terms.inputs, arrays, strict=True):
        for index, size in zip(letters, x.shape, strict=True):
            known = sizes.get(index, 1)
            if size not in (1, known) and known != 1:
                return Reason.SHAPE
            sizes[index] = size if known == 1 else known
    inputs, kept = [], []
    for letters, x in zip(terms.inputs, arrays, strict=True):
        repeated = [size != sizes[i] for i, size in zip(letters, x.shape, strict=True)]
        if any(repeated) and len(set(letters)) < len(letters):
            return Reason.SHAPE  # a diagonal of what is no square
        inputs.append("".join(i for i, gone in zip(letters, repeated, strict=True) if not gone))
        kept.append(x[tuple(0 if gone else slice(None) for gone in repeated)])
    return Sum(tuple(inputs), terms.output), tuple(kept), tuple(sizes[i] for i in terms.output)


def _cast(arrays: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, ...] | Reason:
    """The arrays in the dtype that the program asks for; a pair without a settings as it is."""
    wanted = options.get("dtype")
    casting = options.get("casting", "safe")
    if wanted is None and len(arrays) == 2:
        return tuple(arrays)
    try:
        dtype = np.result_type(*(x.dtype for x in arrays)) if wanted is None else np.dtype(wanted)
        allowed = casting in CASTINGS and all(np.can_cast(x.dtype, dtype, casting) for x in arrays)
    except TypeError:
        return Reason.DTYPE
    if not allowed or name_of(dtype) not in PRECISION:
        return Reason.DTYPE
    return tuple(x.astype(dtype, copy=False) for x in arrays)


def _options_reason(
    options: Mapping[str, Any], given: Sequence[Any], shape: tuple[int, ...], cast: Sequence[Any]
) -> Reason | None:
    """Why `native` has to judge the options; None: `_finished` keeps to them."""
    known = {"optimize", "dtype", "out", "order", "casting"}
    if type(given[0]) is not ndarray:
        known = {"optimize", "dtype"}  # CuPy's has no others
    if not options.keys() <= known:
        return Reason.OUT
    if options.get("order", "K") not in ORDERS or options.get("casting", "safe") not in CASTINGS:
        return Reason.OUT
    out = options.get("out")
    if out is None:
        return None
    dtype = np.result_type(*(x.dtype for x in cast))
    if type(out) is not ndarray or out.shape != shape or out.dtype != dtype:
        return Reason.OUT
    apart = out.flags.writeable and not any(np.may_share_memory(out, x) for x in given)
    return None if apart else Reason.OUT


def _finished(result: Any, options: Mapping[str, Any]) -> Any:
    """The result where and as the program wants it."""
    out = options.get("out")
    if out is not None:
        np.copyto(out, result)
        return out
    order = options.get("order", "K")
    if order not in ("C", "F") or type(result) is not ndarray:  # a scalar has none
        return result
    return np.asarray(result, order=order)


def _is_emulated(settings: Settings, found: Problem) -> bool:
    """Whether more than two operands take a scheme: else the program's own sum is made."""
    scheme = settings.scheme or current().choice(settings.site).scheme
    if scheme is not None:
        return scheme != "native"
    backend = settings.backend or current().backend
    is_single = not is_wide(*(name_of(x.dtype) for x in found.arrays))
    return is_single and (backend == "cuda" or type(found.arrays[0]) is not ndarray)


def _by_steps(
    found: Problem, native: Native, options: Mapping[str, Any], settings: Settings
) -> Any:
    given = {"optimize": True} if options.get("optimize", False) is not False else {}

    def natively(terms: Sum, *arrays: Any) -> Any:
        return native(f"{','.join(terms.inputs)}->{terms.output}", *arrays, **given)

    waiting = list(found.arrays)
    for step in found.steps:
        taken = [waiting[at] for at in step.positions]
        waiting = [x for at, x in enumerate(waiting) if at not in step.positions]
        waiting.append(
            _step(step.terms, taken, natively, settings._replace(more_follow=bool(waiting)))
        )
    return waiting[0]


def _step(terms: Sum, arrays: Sequence[Any], native: Native, settings: Settings) -> Any:
    def run(*_: Any) -> Any:
        return native(terms, *arrays)

    if contraction(terms) is None:
        both = arrays[0], arrays[-1]
        return carry_out(not_rearranged(run, *both, Reason.DIMENSIONS), settings)[0]
    pair = Pair(terms, arrays, run)
    result = carry_out(pair.call, settings)[0]
    return pair.made[0] if pair.made else pair.restored(result)
