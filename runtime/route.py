"""Which way a product takes: a scheme on the GPU, one in NumPy, a cast, or the native call."""

import math
import operator
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.call import (
    DTYPES,
    MATMUL,
    PRECISION,
    Call,
    Made,
    Wish,
    is_single,
    is_wide,
    name_of,
    real_products,
    result_shape,
)
from mixpert_py.runtime.cuda import break_even, device, foreign
from mixpert_py.runtime.emulation import emulation
from mixpert_py.runtime.in_force import Choice, accumulations, current, emulates
from mixpert_py.runtime.tracing.trace import Reason, Shape

# m·n·k / (mk + kn + mn) from which a float32 product with its casts beats a float64 one: the casts
# move every element once, the product reads each min(m, n, k) times. Measured between 32 and 60.
FLOAT32_PAYS = 48

CASTS = ("float32", "float64")
SINGLE = ("float32", "float32")

# Told although nobody chose a scheme: the products of a GPU were to be faithful, and are not.
TOLD = frozenset(
    {
        Reason.GRADIENT,
        Reason.AUTOCAST,
        Reason.SPREAD,
        Reason.OLD_GPU,
        Reason.KERNEL,
        Reason.MEMORY,
        Reason.WORKSPACE,
    }
)


def make(
    call: Call, choice: Choice, backend: str | None, wish: Wish, *, traced: bool
) -> Made | Reason | None:
    """The product by the scheme that was chosen; why the native call must make it; None: it was
    meant to.

    choice.scheme None: nobody chose. Then products of float32, and complex64, on a GPU run
    `faithful`, also those of NumPy arrays where moving them pays; everything else is native.
    """
    if choice.scheme == "native":
        return None
    if type(call.a) is not np.ndarray and not emulates(backend):
        place = foreign.place(call.a, call.b)
        if isinstance(place, foreign.Apart):
            if choice.scheme is None:
                return None  # the program's own product may well work
            raise DeviceError(place.sentence)
        if place is not None:
            made = (
                place
                if isinstance(place, Reason)
                else _on_device(call, place, choice, backend, wish, traced=traced)
            )
            silent = choice.scheme is None and isinstance(made, Reason) and made not in TOLD
            return None if silent else made
    return _on_host(call, choice, backend, wish, traced=traced)


def _on_host(
    call: Call, choice: Choice, backend: str | None, wish: Wish, *, traced: bool
) -> Made | Reason | None:
    shape = call.host_shape()
    scheme = choice.scheme
    if scheme is None:
        if isinstance(shape, Reason) or not is_single(*_dtypes(call)):
            return None
        scheme = "faithful"
        if emulates(backend) and wish.guarantee is None:
            return None
        if backend is None and not _moves(call, shape, scheme):
            return None
    if isinstance(shape, Reason):
        return shape
    reason = _unsuited(call) or _cannot_run(call, shape, scheme, backend)
    if reason is not None:
        return reason
    if scheme in CASTS or emulates(backend):
        made = emulation.make(
            call.a,
            call.b,
            scheme,
            choice.block,
            native=call.native,
            guarantee=wish.guarantee,
            certificate=wish.certificate,
            like=accumulations(backend),
        )
    else:
        from mixpert_py.runtime.cuda import transfer

        made = transfer.make(
            call.a,
            call.b,
            scheme,
            choice.block,
            out=call.destination,
            addend=call.addend,
            guarantee=wish.guarantee,
            certificate=wish.certificate,
            traced=traced,
        )
    out = call.destination
    if out is None or isinstance(made, Reason) or made.value is out:
        return made
    np.copyto(out, made.value)
    return made.into(out)


def _unsuited(call: Call) -> Reason | None:
    """Why NumPy operands can take no scheme; None: they can."""
    a, b, out = call.a, call.b, call.destination
    for x in (a, b):
        if x.dtype not in emulation.TYPES:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    if out is not None and not _takes(out, call):
        return Reason.OUT
    return None


def _cannot_run(call: Call, shape: Shape, scheme: str, backend: str | None) -> Reason | None:
    """Why no way leads from NumPy operands to this scheme; None: one does, and pays."""
    a, b = call.a, call.b
    dtypes = _dtypes(call)
    if scheme == "float32" and is_wide(*dtypes):  # else it is float32's product already
        m, k, n = shape
        products = real_products(*dtypes)
        cast = (a.size + b.size + m * n) * math.isqrt(products)
        return Reason.TOO_SMALL if m * k * n * products < FLOAT32_PAYS * cast else None
    if scheme in CASTS or emulates(backend):
        return None
    if backend is None and not device.may_be_here():
        return Reason.NO_TENSOR_CORE
    if backend is None:  # by figures of any device, before one is looked for
        saved = _saved(call, shape, scheme, break_even.SHIPPED)
        pays = saved > 0.0 if "cupy" in sys.modules else break_even.start.pays(saved)
        if not pays:
            return Reason.TOO_SMALL
    found = device.find()
    if isinstance(found, device.Absent):
        return found.reason
    pays = backend is not None or _saved(call, shape, scheme, found.name) > 0.0
    return None if pays else Reason.TOO_SMALL


def _moves(call: Call, shape: Shape, scheme: str) -> bool:
    """Whether a product that nobody chose a scheme for is worth moving to a GPU."""
    return _unsuited(call) is None and _cannot_run(call, shape, scheme, None) is None


def _saved(call: Call, shape: Shape, scheme: str, device: str) -> float:
    figures = break_even.figures(device)
    added = call.addend is not None
    return break_even.moving_saves(call.a, call.b, shape, scheme, figures, added=added)


def _dtypes(call: Call) -> tuple[str, str]:
    return name_of(call.a.dtype), name_of(call.b.dtype)


def _takes(out: Any, call: Call) -> bool:
    """Whether the result can go there: to an array of its shape and type, which np.dot wants in C
    order, np.matmul in any. Anything else is native's to judge.
    """
    if type(out) is not np.ndarray or out.ndim == 0:
        return False
    writes = out.flags.behaved if call.native is MATMUL else out.flags.carray
    a, b = call.a, call.b
    return writes and out.shape == result_shape(a, b) and out.dtype == np.result_type(a, b)


def _on_device(
    call: Call,
    place: foreign.Place,
    choice: Choice,
    backend: str | None,
    wish: Wish,
    *,
    traced: bool,
) -> Made | Reason | None:
    """A product of arrays on one GPU."""
    scheme = choice.scheme
    dtypes = _dtypes(call)
    if scheme is None:
        if not is_single(*dtypes) or not place.is_full():
            return None
        scheme = "faithful"
    takes_tensors = call.takes_tensors or call.native is operator.matmul
    if place.lend is not foreign.Lent and not takes_tensors:
        return Reason.NOT_AN_ARRAY  # np.matmul takes no tensor
    shape = call.shape()
    if isinstance(shape, Reason):
        return shape
    if dtypes[0] not in PRECISION or dtypes[1] not in PRECISION:
        x = call.b if dtypes[0] in PRECISION else call.a
        return DTYPES.get(getattr(x.dtype, "kind", ""), Reason.DTYPE)
    out = call.destination
    if out is not None and not _takes_on_device(out, call, dtypes):
        return Reason.OUT
    if scheme in CASTS and {PRECISION[dtype] for dtype in dtypes} == {scheme}:
        return Made(call.run(), scheme)
    if scheme == "float32":
        scheme = "faithful"  # as accurate, whatever the exponents of float64 operands
    found = device.find(place.device)
    if isinstance(found, device.Absent):
        return found.reason
    if backend is None and scheme != "float64":
        a, b = call.a.shape, call.b.shape
        packed = 0 if call.left is None else math.prod(a)
        packed += 0 if call.right is None else math.prod(b)
        faster = break_even.figures(found.name).faster
        wide, products = is_wide(*dtypes), real_products(*dtypes)
        small = products == 1 and break_even.small_pays(scheme, a, b)
        if not packed and dtypes == SINGLE and wish.guarantee is None and not wish.certificate:
            small = small or break_even.tiny_pays(scheme, a, b)
        if not small and not faster(scheme, a, b, wide, packed, products):
            return Reason.TOO_SMALL
    lent = foreign.lend(place, call.a, call.b)
    if isinstance(lent, Reason):
        return lent

    force = current()

    def made() -> Made | Reason:
        return _maker()(
            lent.a,
            lent.b,
            scheme,
            choice.block,
            out=out,
            left=call.left,
            right=call.right,
            addend=call.addend,
            guarantee=wish.guarantee,
            certificate=wish.certificate,
            traced=traced,
            limit=force.workspace_limit,
            devices=force.devices,
        )

    if lent.scope is None:
        return made()
    with lent.scope():
        outcome = made()
        if isinstance(outcome, Made) and lent.back is not None:
            return outcome.into(lent.back(outcome.value))
    return outcome


@cache
def _maker() -> Callable[..., Made | Reason]:
    """Imported when a product needs it: it brings more with it than all that a host needs."""
    from mixpert_py.runtime.cuda.several import make

    return make


def _takes_on_device(out: Any, call: Call, dtypes: tuple[str, str]) -> bool:
    """Whether `out` is an array of the operands' library, of the result's shape and type."""
    if type(out) is not type(call.a) or tuple(out.shape) != result_shape(call.a, call.b):
        return False
    wanted: np.dtype[Any] = np.result_type(*dtypes)
    return name_of(out.dtype) == wanted.name and out.data.device_id == call.a.data.device_id
