"""The products that rewritten programs call: `matmul`, `dot` and `dot_method`, and `carry_out`.

`matmul`, `dot` and `dot_method` do for every operand what `@`, `np.dot` and `x.dot` would have
done. Where a scheme is in force and the operands suit it, the product is made by that scheme; a
call that did not take its scheme has a Reason, kept by the trace in force.
"""

import operator
import threading
from collections.abc import Iterable
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy import ndarray

from mixpert_py.runtime import warned
from mixpert_py.runtime.arrays import PRECISION, AnyArray, name_of
from mixpert_py.runtime.backends import is_on_gpu, require_backend
from mixpert_py.runtime.context import Choice, Context, current, innermost, passes
from mixpert_py.runtime.execute import execute
from mixpert_py.runtime.gpu.foreign import may_be_on_device, on_host, wait_for
from mixpert_py.runtime.program_frames import pass_over, trim
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.reference.emulation import is_apart
from mixpert_py.runtime.request import (
    MATMUL,
    Call,
    Native,
    Product,
    Settings,
    dot_shape,
    is_dask,
    matmul_shape,
)
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.select import are_half, are_integers, why_not_lower
from mixpert_py.runtime.signatures import (
    NATIVE,
    below_modes,
    device_of,
    is_recorded,
    kept_product,
    native_functions,
    native_product_of,
)
from mixpert_py.runtime.tracing.counted import NONE, CountedCalls
from mixpert_py.runtime.tracing.trace import Trace, TracedCall
from mixpert_py.runtime.warned import again
from mixpert_py.runtime.worth import MIN_ELEMENTS_TO_MOVE, MIN_PAIRS, is_small, may_be_exact

# Arguments of ours, which no native function takes.
OWN = frozenset({"scheme", "backend"})

# Where a traced call finds the product that was made of its native call below PyTorch's autograd.
taken_below = threading.local()

# The three functions repeat lines on purpose: these are all that a call which passes through costs,
# and sharing them would be one more call. Python takes time for every argument that has a name,
# used or not: those that few calls have are among `options`. In a deep recursion there may be no
# room for our own calls: then NumPy's arrays are multiplied right there.


def matmul(
    a: Any,
    b: Any,
    *rest: Any,
    site: str | None = None,
    native: Native | None = None,
    **options: Any,
) -> Any:
    """The product a @ b, under the scheme that is in force for this call.

    a, b: anything `native` takes; float32 and float64 arrays of one dimension or more can take a
    scheme, and complex ones, each part of which does; NumPy's and those on a GPU; stacks of
    matrices broadcast as in np.matmul. rest: `out` given by position.
    site: id of the call site. native: the function that the program called, None for `@`; without
    a site, operands that have no `@` are np.matmul's.

    options:
        scheme: overrides what is in force; without any, float32 and complex64 products on a
            GPU run `faithful`, and float64 and complex128 ones `crt`, where that is faster.
        backend: "reference" (NumPy emulation), "reference:h200" (the same, adding up as that device
            does), "cuda" (NumPy arrays are moved, and small products too are emulated), or None for
            automatic.
        out: as in np.matmul.
        Whatever else np.matmul takes, such as axes and dtype: with that it makes the product.

    Returns what `native(a, b)` would, type and dtype included. Raises PlanError for an unknown
    scheme or backend, DeviceError for a device that is absent, or of which the device
    models say too little, and whatever `native` raises.
    """
    is_plain = not options and not rest
    try:
        if is_plain:
            context = innermost.get().context
            try:
                if type(a) is type(b) is ndarray:
                    if (
                        a.size * b.size < MIN_PAIRS
                        or (
                            a.size < MIN_ELEMENTS_TO_MOVE
                            and (
                                not may_be_exact(a, b)
                                or next(context.resting.get(site, NONE), False)
                            )
                        )
                    ) and (site in context.passing or next(context.counted.get(site, NONE), False)):
                        return a @ b if native is None else native(a, b)
                else:
                    value = kept_product(context, site, matmul_shape, native, a, b)
                    if value is NATIVE:
                        return a @ b if native is None else native(a, b)
                    if value is not None:
                        return value
            except RuntimeWarning as warning:
                return again(warning, native or operator.matmul, a, b)
        elif _passes(a, b, site, options):
            return warned.call(_function(native), a, b, *rest, **options)
        elif type(a) in device_of:
            value = _kept_out(native, a, b, rest, options, site, matmul_shape)
            if value is NATIVE:
                return _function(native)(a, b, *rest, **options)
            if value is not None:
                return value
        settings, out = _settings(site, options)
        function = native or operator.matmul
        if rest or out is not None or options or (site is None and not _has_operator(a, b)):
            function = _function(native)
        call = Call(function, a, b, rest, out, matmul_shape)
        if options:
            given = partial(function, **options)
            call = call._replace(native=given, shape_of=lambda *_: Reason.ARGUMENT)
        return carry_out(call, settings)[0]
    except BaseException as error:
        if type(error) is RecursionError and type(a) is type(b) is ndarray and is_plain:
            return a @ b if native is None else native(a, b)
        trim(error)
        raise


def dot(
    a: Any,
    b: Any,
    *rest: Any,
    site: str | None = None,
    native: Native = np.dot,
    **options: Any,
) -> Any:
    """np.dot(a, b), under the scheme that is in force for this call. Arguments as in `matmul`."""
    is_plain = not options and not rest
    try:
        if is_plain:
            context = innermost.get().context
            try:
                if type(a) is type(b) is ndarray:
                    if (
                        a.size * b.size < MIN_PAIRS
                        or (
                            a.size < MIN_ELEMENTS_TO_MOVE
                            and (
                                not may_be_exact(a, b)
                                or next(context.resting.get(site, NONE), False)
                            )
                        )
                    ) and (site in context.passing or next(context.counted.get(site, NONE), False)):
                        return native(a, b)
                else:
                    value = kept_product(context, site, dot_shape, native, a, b)
                    if value is NATIVE:
                        return native(a, b)
                    if value is not None:
                        return value
            except RuntimeWarning as warning:
                return again(warning, native, a, b)
        elif _passes(a, b, site, options):
            return warned.call(native, a, b, *rest, **options)
        elif type(a) in device_of:
            value = _kept_out(native, a, b, rest, options, site, dot_shape)
            if value is NATIVE:
                return native(a, b, *rest, **options)
            if value is not None:
                return value
        if options.get("out", native) is None:  # which a type's `__array_function__` would see
            native = partial(native, out=None)
        settings, out = _settings(site, options, "dot")
        return carry_out(Call(native, a, b, rest, out, dot_shape), settings)[0]
    except BaseException as error:
        if type(error) is RecursionError and type(a) is type(b) is ndarray and is_plain:
            return native(a, b)
        trim(error)
        raise


def dot_method(a: Any, b: Any, *rest: Any, site: str | None = None, **options: Any) -> Any:
    """a.dot(b), under the scheme that is in force for this call. Arguments as in `matmul`."""
    is_plain = not options and not rest
    try:
        if is_plain:
            context = innermost.get().context
            try:
                if type(a) is type(b) is ndarray:
                    if (
                        a.size * b.size < MIN_PAIRS
                        or (
                            a.size < MIN_ELEMENTS_TO_MOVE
                            and (
                                not may_be_exact(a, b)
                                or next(context.resting.get(site, NONE), False)
                            )
                        )
                    ) and (site in context.passing or next(context.counted.get(site, NONE), False)):
                        return a.dot(b)
                else:
                    value = kept_product(context, site, dot_shape, warned.call_method, a, b)
                    if value is NATIVE:
                        return a.dot(b)
                    if value is not None:
                        return value
            except RuntimeWarning as warning:
                return again(warning, warned.call_method, a, b)
        elif _passes(a, b, site, options):
            return warned.call(warned.call_method, a, b, *rest, **options)
        elif type(a) in device_of:
            value = _kept_out(warned.call_method, a, b, rest, options, site, dot_shape)
            if value is NATIVE:
                return a.dot(b, *rest, **options)
            if value is not None:
                return value
        # The methods of many types take no `out`, None or not.
        method: Native = warned.call_method
        if rest or "out" in options:
            given = {"out": None} if options.get("out") is None and not rest else {}
            method = partial(warned.call_method, **given)
        settings, out = _settings(site, options, "dot_method")
        return carry_out(Call(method, a, b, rest, out, dot_shape), settings)[0]
    except BaseException as error:
        if type(error) is RecursionError and type(a) is type(b) is ndarray and is_plain:
            return a.dot(b)
        trim(error)
        raise


def _settings(
    site: str | None, options: dict[str, Any], function: str | None = None
) -> tuple[Settings, Any]:
    """The settings of a call, and `out`; both are taken out of the options. Raises TypeError if
    a function, whose name is given, has no other options.
    """
    scheme, backend, out = map(options.pop, ("scheme", "backend", "out"), [None] * 3)
    for name in options if function is not None else ():
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return Settings(scheme, backend, site), out


def _function(native: Native | None) -> Native:
    """The function that takes `out` and other arguments, which the operator `@` does not."""
    return MATMUL if native is None or native is operator.matmul else native


def _passes(a: object, b: object, site: str | None, options: Iterable[str]) -> bool:
    """Whether a call of a site that passes has no arguments but the native function's own."""
    if not (type(a) is type(b) is ndarray) or not is_small(a, b):
        return False
    return OWN.isdisjoint(options) and passes(site)


# In place of a call's function: `kept_product` then leaves native products to `_kept_out`, which
# writes them to `out`.
WITHOUT_OUT: Final = object()


def _kept_out(
    native: Native | None,
    a: AnyArray,
    b: AnyArray,
    rest: tuple[Any, ...],
    options: dict[str, Any],
    site: str | None,
    shape_of: object,
) -> Any:
    """Return `out` with the product in it, made as by `kept_product`; `out` is the only argument
    besides the operands.

    NATIVE and None mean the same as there; None also if `out` does not suit the product.
    """
    if len(rest) + len(options) != 1 or not options.keys() <= {"out"}:
        return None
    function = None if native is None else WITHOUT_OUT
    value = kept_product(innermost.get().context, site, shape_of, function, a, b)
    out = rest[0] if rest else options["out"]
    if value is None or out is None:
        return value
    if value is NATIVE:
        quicker = native_product_of.get(type(a)) if native in native_functions else None
        is_product = shape_of is matmul_shape or b.ndim < 3
        return quicker(a, b, out) if quicker is not None and is_product else NATIVE
    ask = device_of.get(type(out))
    if ask is None or type(out) is not type(value) or ask(out) != ask(value):
        return None
    if out.shape != value.shape or out.dtype != value.dtype:
        return None
    out[...] = value
    return out


def _has_operator(a: object, b: object) -> bool:
    """Whether `a @ b` is for the operands to judge."""
    return hasattr(type(a), "__matmul__") or hasattr(type(b), "__rmatmul__")


def in_force(settings: Settings, context: Context) -> Settings:
    """The settings of a call, without its scheme where `precision` comes before it."""
    if context.overrides_sites and settings.site is not None:
        return settings._replace(scheme=None)
    return settings


def carry_out(call: Call, settings: Settings) -> tuple[Any, Product | None]:
    """The result of a call, and the product where a scheme made it.

    For a call that asks for something, or that is traced, or the first of its site.
    """
    if type(call.a) is not ndarray and is_recorded():
        return _native(call), None
    context = current()
    settings = in_force(settings, context)
    context.note_own(settings[:2])
    if settings.scheme is None:
        choice = context.choice(settings.site)
    else:
        choice = chosen_by_call(settings.scheme)
    if is_dask(call.a, call.b):
        from mixpert_py.runtime.products import dask_array

        if (lazy := dask_array.product(call, settings, matmul)) is not None:
            if context.uses is not None:
                context.uses.note(choice, lazy)
            return lazy, None
    backend = settings.backend or context.backend
    if backend is not None:
        require_backend(backend)
    if context.trace is not None:
        return _traced(call, settings, choice, context, context.trace)
    with below_modes():
        outcome = execute(call, settings, choice, context)
    if context.uses is not None:
        context.uses.note(choice, outcome)
    return (outcome.value, outcome) if isinstance(outcome, Product) else (_native(call), None)


def _native(call: Call) -> Any:
    """The product that the program would have made, with its warnings at the program's line."""
    if call.out is None:
        return warned.call(call.native, call.a, call.b, *call.rest)
    return warned.call(call.native, call.a, call.b, *call.rest, out=call.out)


def _traced(
    call: Call, settings: Settings, choice: Choice, context: Context, trace: Trace
) -> tuple[Any, Product | None]:
    """As `carry_out`, with a record of the call in the trace."""
    with below_modes():
        for operand in (call.a, call.b):
            wait_for(operand)  # the time in which it is made is none of the product's
        start = perf_counter()
        outcome = execute(call, settings, choice, context, traced=True)
    if context.uses is not None:
        context.uses.note(choice, outcome)
    product = outcome if isinstance(outcome, Product) else None
    reason = outcome if isinstance(outcome, Reason) else None
    if product is None:
        taken_below.product = None
        if reason is None:  # the look for a scheme is none of the product's time
            start = perf_counter()
        result = _native(call)
        if reason in (Reason.GRADIENT, Reason.NOT_AN_ARRAY):  # which autograd and the host leave
            product = taken_below.product
            reason = reason if product is None else None
    else:
        result = product.value
    seconds, has_come = perf_counter() - start, True
    is_unasked = choice.scheme in (None, "native") and settings.backend is None
    counted = context.counted if is_unasked and not is_on_gpu(context.backend) else None
    with below_modes():
        if may_be_on_device(type(result)):
            has_come, seconds = wait_for(result), perf_counter() - start
        shape = _record(trace, settings, call, product or reason, seconds, result, counted)
        if has_come and not isinstance(shape, Reason):
            _sample(trace, settings.site, call, shape)
    return result, product


@lru_cache
def chosen_by_call(scheme: str) -> Choice:
    """The choice that a call makes for itself. Raises PlanError for an unknown scheme."""
    get(scheme)
    return Choice(scheme)


def _record(
    trace: Trace,
    settings: Settings,
    call: Call,
    outcome: Product | Reason | None,
    seconds: float,
    result: Any,
    counted: CountedCalls | None,
) -> Shape | Reason:
    """Add a call to the trace, and return its shape. counted: where later calls of the site are
    counted if they are small; None: nowhere.
    """
    site, kind = settings.site, type(result)
    product = outcome if isinstance(outcome, Product) else None
    shape = _shape(call)
    is_array = may_be_on_device(kind) or issubclass(kind, ndarray)
    has_dtype = is_array or issubclass(kind, np.generic)
    outliers = 0.0
    if product is not None and trace.samples(site, "outliers", shape):
        outliers = product.outliers()
    traced = TracedCall(
        (0, 0, 0) if isinstance(shape, Reason) else shape,
        name_of(result.dtype) if has_dtype else kind.__name__,
        "native" if product is None else product.scheme,
        outcome if isinstance(outcome, Reason) else None,
        seconds,
        outliers,
        0.0 if product is None else product.transfer,
        None if counted is None else why_not_lower(call, shape),
    )
    trace.add(site, traced)
    if counted is not None and type(call.a) is ndarray and site not in trace.keep:
        counted.begin(trace, site, traced)
    if site in trace.keep and not (is_array and 0 in result.shape):
        trace.keep_result(site, on_host(result) if is_array else result)
    if site is not None and trace.levels is not None:
        trace.follow(
            site, (call.a, call.b), result if is_array and not settings.more_follow else None
        )
    return shape


def _sample(trace: Trace, site: str | None, call: Call, shape: Shape) -> None:
    """Keep what the trace wants to know of a call's operands."""
    if trace.levels is None and trace.captures is None:
        return
    out = call.destination  # one of the operands, maybe, which then is not what was multiplied
    if out is not None and not (type(out) is ndarray and is_apart(out, call.a, call.b)):
        return
    dtypes = name_of(call.a.dtype), name_of(call.b.dtype)
    has_schemes = dtypes[0] in PRECISION and dtypes[1] in PRECISION
    if not (has_schemes or are_half(call.a, call.b) or are_integers(call.a, call.b)):
        return
    if not trace.samples(site, "operands", (shape, dtypes)):
        return
    if trace.captures is not None:
        trace.captures.add(site, shape, dtypes, call)
    if trace.levels is not None and has_schemes:
        from mixpert_py.runtime.tracing.operand_statistics import operand_statistics

        found = operand_statistics(call.a, call.b, trace.levels)
        if found is not None:
            trace.add_statistics(site, found)


def _shape(call: Call) -> Shape | Reason:
    if not may_be_on_device(type(call.a)) or not may_be_on_device(type(call.b)):
        return call.host_shape()
    try:
        return call.shape()
    except (AttributeError, RuntimeError, TypeError):
        return Reason.NOT_AN_ARRAY  # what may be an array need not have a shape


pass_over(matmul, dot, dot_method, carry_out, _native, _traced)
