"""Who multiplies: looks at type, dtype, shape and device, in that order, and leaves early.

`matmul`, `dot` and `dot_method` do for every operand what `@`, `np.dot` and `x.dot` would have
done. Where a scheme is in force and the operands suit it, the product is made by that scheme; a
call that did not take its scheme has a Reason, kept by the trace in force.
"""

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.emulation import FLOATS, Array, Native, emulate
from mixpert_py.runtime.in_force import Choice, current, passes, require_backend
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.trace import Reason, Shape, Trace

# m·n·k / (mk + kn + mn) from which a float32 product with its casts beats a float64 one: the casts
# move every element once, the product reads each min(m, n, k) times. Measured between 32 and 60.
FLOAT32_PAYS = 48

# By the dtype's kind; the rest is Reason.DTYPE.
DTYPES = {"i": Reason.INTEGER, "u": Reason.INTEGER, "b": Reason.INTEGER, "c": Reason.COMPLEX}


def matmul(
    a: Any,
    b: Any,
    *rest: Any,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    out: Any = None,
    block: int | None = None,
    native: Native = operator.matmul,
) -> Any:
    """The product a @ b, under the scheme that is in force for this call.

    a, b: anything `native` takes; float32 and float64 NumPy arrays of one dimension or more can
    take a scheme, stacks of matrices broadcast as in np.matmul. rest: `out` given by position.
    scheme, block: override what is in force. backend: "reference" (NumPy emulation), "cuda", or
    None for automatic. site: id of the call site. out: as in np.matmul. Returns what
    `native(a, b)` would, type and dtype included. Raises PlanError for an unknown scheme or
    backend, DeviceError for an absent device, and whatever `native` raises.
    """
    # The three functions repeat these lines on purpose: this is all that a call which passes
    # through costs, and sharing them would be one more call.
    if native is operator.matmul and (rest or out is not None):
        native = np.matmul
    if scheme is None and backend is None and passes(site):
        return native(a, b) if out is None and not rest else _natively(native, a, b, rest, out)
    call = Call(native, a, b, rest, out, _matmul_shape)
    return _planned(call, scheme, block, backend, site)


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
    if scheme is None and backend is None and passes(site):
        return native(a, b) if out is None and not rest else _natively(native, a, b, rest, out)
    call = Call(native, a, b, rest, out, _dot_shape)
    return _planned(call, scheme, block, backend, site)


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
    if scheme is None and backend is None and passes(site):
        return a.dot(b) if out is None and not rest else _natively(_call_method, a, b, rest, out)
    call = Call(_call_method, a, b, rest, out, _dot_shape)
    return _planned(call, scheme, block, backend, site)


def _call_method(a: Any, b: Any, *rest: Any, **out: Any) -> Any:
    return a.dot(b, *rest, **out)


def _natively(native: Native, a: Any, b: Any, rest: tuple[Any, ...], out: Any) -> Any:
    return native(a, b, *rest) if out is None else native(a, b, *rest, out=out)


class Call(NamedTuple):  # made at every planned call, and twice as quick as a dataclass
    """A product as the program wrote it. shape_of: (m, k, n) of two arrays, or why it has none."""

    native: Native
    a: Any
    b: Any
    rest: tuple[Any, ...]
    out: Any
    shape_of: Callable[[Array, Array], Shape | Reason]

    @property
    def destination(self) -> Any:
        """What was given as `out`; more than one is for `native` to refuse."""
        given = self.rest if self.out is None else (*self.rest, self.out)
        return given[0] if len(given) == 1 else given or None

    def shape(self) -> Shape | Reason:
        """(m, k, n), a stack of matrices counted in m, or why there is none."""
        for kind in (type(self.a), type(self.b)):
            if kind is not np.ndarray:
                if issubclass(kind, np.ndarray):
                    return Reason.SUBCLASS
                # A class may call its module anything, not only by a string.
                sparse = str(kind.__module__).startswith(("scipy.sparse", "cupyx.scipy.sparse"))
                return Reason.SPARSE if sparse else Reason.NOT_AN_ARRAY
        if self.a.ndim == 0 or self.b.ndim == 0:
            return Reason.SCALAR
        return self.shape_of(self.a, self.b)


def _planned(
    call: Call, scheme: str | None, block: int | None, backend: str | None, site: str | None
) -> Any:
    """A call that somebody has a wish for, or that is traced, or the first of its site."""
    force = current()
    choice = force.choice(site) if scheme is None else Choice(scheme, block)
    wanted = choice.scheme or "native"
    get(wanted)
    backend = backend or force.backend
    require_backend(backend)

    shape = call.shape()
    reason = None if wanted == "native" else _unsuited(call, shape, wanted, backend)
    start = perf_counter()
    result, ran = None, "native"
    if wanted != "native" and reason is None:
        result = emulate(call.a, call.b, wanted, block or choice.block, native=call.native)
        if result is None:
            reason = Reason.RANGE
        else:
            ran = wanted
            if call.destination is not None:
                np.copyto(call.destination, result)
                result = call.destination
    if ran == "native":
        result = _natively(call.native, call.a, call.b, call.rest, call.out)
    if force.trace is not None:
        seconds = perf_counter() - start
        _record(force.trace, site, call, shape, ran, reason, seconds, result)
    return result


def _matmul_shape(a: Array, b: Array) -> Shape | Reason:
    m, k = a.shape[-2:] if a.ndim > 1 else (1, a.shape[0])
    inner, n = b.shape[-2:] if b.ndim > 1 else (b.shape[0], 1)
    if k != inner:
        return Reason.SHAPE
    if a.ndim <= 2 and b.ndim <= 2:
        return m, k, n
    try:
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        return Reason.SHAPE
    return math.prod(stack) * m, k, n


def _dot_shape(a: Array, b: Array) -> Shape | Reason:
    if a.ndim > 2 or b.ndim > 2:
        return Reason.DIMENSIONS  # np.dot sums over other axes there than a product of matrices
    return _matmul_shape(a, b)


def _unsuited(call: Call, shape: Shape | Reason, scheme: str, backend: str | None) -> Reason | None:
    """Why a product cannot take this scheme here; None: it can."""
    if isinstance(shape, Reason):
        return shape
    a, b, out = call.a, call.b, call.destination
    for x in (a, b):
        if x.dtype not in FLOATS:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    if out is not None and not _takes(out, a, b):
        return Reason.OUT
    if scheme == "float32" and a.itemsize + b.itemsize > 8:  # else both are float32 already
        m, k, n = shape
        if m * k * n < FLOAT32_PAYS * (a.size + b.size + m * n):
            return Reason.TOO_SMALL
    elif scheme not in ("float32", "float64") and backend != "reference":
        return Reason.NO_TENSOR_CORE
    return None


def _takes(out: Any, a: Array, b: Array) -> bool:
    """Whether `out` is what np.dot accepts, the strictest; anything else is native's to judge."""
    if type(out) is not np.ndarray or not out.flags.carray or max(a.ndim, b.ndim) > 2:
        return False
    shape = a.shape[:-1] + (b.shape[-1:] if b.ndim > 1 else ())
    return shape != () and out.shape == shape and out.dtype == np.result_type(a, b)


def _record(
    trace: Trace,
    site: str | None,
    call: Call,
    shape: Shape | Reason,
    ran: str,
    reason: Reason | None,
    seconds: float,
    result: Any,
) -> None:
    kind = type(result)
    is_array = issubclass(kind, np.ndarray)
    sizes = (0, 0, 0) if isinstance(shape, Reason) else shape
    dtype = _name(result.dtype) if is_array or issubclass(kind, np.generic) else kind.__name__
    count = trace.add(site, sizes, dtype, ran, reason, seconds)
    if site in trace.keep and not (is_array and result.size == 0):
        trace.keep_result(site, np.array(result) if is_array else result)
    # Calls 1, 2, 4, 8, … are sampled: a site that is called often costs little more than once.
    sampled = trace.levels and count & (count - 1) == 0
    if sampled and not isinstance(shape, Reason) and _is_intact(call):
        from mixpert_py.runtime.shadow import local_errors

        trace.add_errors(site, local_errors(call.a, call.b, trace.levels))


_name = lru_cache(maxsize=64)(str)  # NumPy composes a dtype's name anew each time


def _is_intact(call: Call) -> bool:
    """Whether the operands still are what was multiplied: `out` may be one of them."""
    out = call.destination
    if out is None:
        return True
    arrays = (call.a, call.b)
    return type(out) is np.ndarray and not any(np.may_share_memory(out, x) for x in arrays)
