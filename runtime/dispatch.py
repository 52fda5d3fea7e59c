"""Who multiplies: looks at type, dtype, shape and device, in that order, and leaves early.

`matmul`, `dot` and `dot_method` do for every operand what `@`, `np.dot` and `x.dot` would have
done. Where a scheme is in force and the operands suit it, the product is made by that scheme; a
call that did not take its scheme has a Reason, kept by the trace in force.
"""

import operator
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy import ndarray

from mixpert_py.errors import PlanError
from mixpert_py.runtime.call import (
    MATMUL,
    PRECISION,
    Call,
    Made,
    Native,
    Wish,
    dot_shape,
    is_dask,
    matmul_shape,
    name_of,
)
from mixpert_py.runtime.cuda.foreign import may_be_on_device, on_host, wait_for
from mixpert_py.runtime.in_force import Choice, current, passes, require_backend
from mixpert_py.runtime.kept import Kept, unpacked
from mixpert_py.runtime.route import make
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Reason, Shape, Trace

# Elements of a left operand from which a NumPy product may be worth moving to a GPU.
MOVES = 1 << 20

GUARANTEES = (None, "componentwise")


def matmul(
    a: Any,
    b: Any,
    *rest: Any,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    out: Any = None,
    block: int | None = None,
    guarantee: str | None = None,
    return_certificate: bool = False,
    native: Native = operator.matmul,
    **options: Any,
) -> Any:
    """The product a @ b, under the scheme that is in force for this call.

    a, b: anything `native` takes, or an operand that `pack` has packed; float32 and float64 arrays
    of one dimension or more can take a scheme, and complex ones (see `complex_product`), NumPy's
    and those on a GPU; stacks of matrices broadcast as in np.matmul. Without a site, operands that
    have no `@` are np.matmul's. rest: `out` given by position. options: what else np.matmul takes,
    such as axes and dtype; with any of them it makes the product itself.
    scheme, block: override what is in force; without any, float32 and complex64 products on a GPU
    run `faithful`. backend: "reference" (NumPy emulation), "reference:h200" (the same, adding up as
    that device does), "cuda" (NumPy arrays are moved, and small products too are emulated), or None
    for automatic. site: id of the call site. out: as in np.matmul. guarantee: "componentwise", see
    `certificates.guarantee`: float32 and complex64 products of K ≥ 512 then run `faithful`, unless
    an int8 scheme that keeps the guarantee is asked for; others the first of int8x6, x8, x10 that
    keeps it, else native. Returns what `native(a, b)` would, type and dtype included; with
    return_certificate a pair of that and a Certificate, which is None where the native product ran.
    Raises PlanError for an unknown scheme, backend or guarantee, DeviceError for an absent device,
    or one that the device models say too little of, and whatever `native` raises.
    """
    # The three functions repeat these lines on purpose: this is all that a call which passes
    # through costs, and sharing them would be one more call.
    if (
        scheme is None
        and backend is None
        and guarantee is None
        and not return_certificate
        and passes(site)
        and type(a) is type(b) is ndarray
        and a.size < MOVES
    ):
        if out is None and not rest and not options:
            return native(a, b)
        return _natively(_function(native), a, b, rest, out, **options)
    if rest or out is not None or options or (site is None and not _has_operator(a, b)):
        native = _function(native)
    call = Call(native, a, b, rest, out, matmul_shape)
    if options:
        given = partial(native, **options)
        call = call._replace(native=given, shape_of=lambda *_: Reason.ARGUMENT)
    wish = Wish(scheme, block, backend, site, guarantee, return_certificate)
    result, made = planned(call, wish)
    if return_certificate:
        return result, None if made is None else made.certificate
    return result


def dot(
    a: Any,
    b: Any,
    *rest: Any,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    out: Any = None,
    block: int | None = None,
    native: Native = np.dot,
) -> Any:
    """np.dot(a, b), under the scheme that is in force for this call. Arguments as in `matmul`."""
    if (
        scheme is None
        and backend is None
        and passes(site)
        and type(a) is type(b) is ndarray
        and a.size < MOVES
    ):
        return native(a, b) if out is None and not rest else _natively(native, a, b, rest, out)
    call = Call(native, a, b, rest, out, dot_shape)
    return planned(call, Wish(scheme, block, backend, site))[0]


def dot_method(
    a: Any,
    b: Any,
    *rest: Any,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    out: Any = None,
    block: int | None = None,
) -> Any:
    """a.dot(b), under the scheme that is in force for this call. Arguments as in `matmul`."""
    if (
        scheme is None
        and backend is None
        and passes(site)
        and type(a) is type(b) is ndarray
        and a.size < MOVES
    ):
        return a.dot(b) if out is None and not rest else _natively(_call_method, a, b, rest, out)
    call = Call(_call_method, a, b, rest, out, dot_shape)
    return planned(call, Wish(scheme, block, backend, site))[0]


def _call_method(a: Any, b: Any, *rest: Any, **out: Any) -> Any:
    return a.dot(b, *rest, **out)


def _natively(
    native: Native, a: Any, b: Any, rest: tuple[Any, ...], out: Any, **options: Any
) -> Any:
    if out is not None:
        options["out"] = out
    return native(a, b, *rest, **options)


def _function(native: Native) -> Native:
    """What takes more than two operands: `@` does not."""
    return MATMUL if native is operator.matmul else native


def _has_operator(a: Any, b: Any) -> bool:
    """Whether `a @ b` is for the operands to judge; packed ones stand for arrays."""
    if type(a) is Kept or type(b) is Kept:
        return True
    return hasattr(type(a), "__matmul__") or hasattr(type(b), "__rmatmul__")


def planned(call: Call, wish: Wish) -> tuple[Any, Made | None]:
    """A call that somebody has a wish for, or that is traced, or the first of its site."""
    force = current()
    if type(call.a) is Kept or type(call.b) is Kept:
        call, choice = unpacked(call, wish)
        wish = wish._replace(scheme=choice.scheme)
    elif wish.scheme is None:
        choice = force.choice(wish.site)
        if wish.block is not None:
            choice = Choice(choice.scheme, wish.block)
    else:
        choice = _wished(wish.scheme, wish.block)
    if wish.guarantee not in GUARANTEES:
        raise PlanError(f"unknown guarantee {wish.guarantee!r}; known: componentwise")
    if is_dask(call.a, call.b):
        from mixpert_py.runtime import dask_array

        if (lazy := dask_array.product(call, wish)) is not None:
            return lazy, None
    backend = wish.backend or force.backend
    if backend is not None:
        require_backend(backend)

    trace = force.trace
    if trace is not None and (trace.levels or wish.site in trace.keep):
        call = call._replace(addend=None)  # it looks at products themselves
    if trace is not None:
        for operand in (call.a, call.b):
            wait_for(operand)  # what makes them is none of the product's time
    start = perf_counter()
    outcome = make(call, choice, backend, wish, traced=trace is not None)
    made = outcome if isinstance(outcome, Made) else None
    result = call.run() if made is None else made.value
    if trace is not None:
        reason = outcome if isinstance(outcome, Reason) else None
        _record(trace, wish, call, made, reason, start, result)
    return result, made


@lru_cache
def _wished(scheme: str, block: int | None) -> Choice:
    """Raises PlanError for an unknown scheme."""
    get(scheme)
    return Choice(scheme, block)


def _record(
    trace: Trace,
    wish: Wish,
    call: Call,
    made: Made | None,
    reason: Reason | None,
    start: float,
    result: Any,
) -> None:
    site, kind = wish.site, type(result)
    on_device = may_be_on_device(kind)
    has_come = not on_device or wait_for(result)
    seconds = perf_counter() - start
    shape = _shape(call)
    is_array = on_device or issubclass(kind, ndarray)
    has_dtype = is_array or issubclass(kind, np.generic)
    trace.add(
        site,
        (0, 0, 0) if isinstance(shape, Reason) else shape,
        name_of(result.dtype) if has_dtype else kind.__name__,
        "native" if made is None else made.scheme,
        reason,
        seconds,
        made.outliers() if made is not None and trace.samples(site, "outliers", shape) else 0.0,
        0.0 if made is None else made.transfer,
    )
    if site in trace.keep and not (is_array and 0 in result.shape):
        trace.keep_result(site, on_host(result) if is_array else result)
    if trace.levels is None:
        return
    if site is not None:
        trace.follow(site, (call.a, call.b), result if is_array and not wish.goes_on else None)
    if isinstance(shape, Reason):
        return
    dtypes = name_of(call.a.dtype), name_of(call.b.dtype)
    known = dtypes[0] in PRECISION and dtypes[1] in PRECISION
    if known and has_come and _is_intact(call) and trace.samples(site, "shadow", (shape, dtypes)):
        from mixpert_py.runtime.tracing.shadow import look

        found = look(call.a, call.b, trace.levels)
        if found is not None:
            trace.add_shadow(site, found)


def _shape(call: Call) -> Shape | Reason:
    if not may_be_on_device(type(call.a)) or not may_be_on_device(type(call.b)):
        return call.host_shape()
    try:
        return call.shape()
    except (AttributeError, TypeError):
        return Reason.NOT_AN_ARRAY  # what may be an array need not have a shape


def _is_intact(call: Call) -> bool:
    """Whether the operands still are what was multiplied: `out` may be one of them."""
    out = call.destination
    if out is None:
        return True
    arrays = (call.a, call.b)
    return type(out) is ndarray and not any(np.may_share_memory(out, x) for x in arrays)
