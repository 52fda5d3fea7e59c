"""`resolve_scheme`: which scheme a product takes, and which backend makes it, or why none does."""

import operator
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import exact_integers, signatures, worth
from mixpert_py.runtime.arrays import (
    PRECISION,
    AnyArray,
    GpuArray,
    are_whole,
    default_scheme,
    name_of,
)
from mixpert_py.runtime.backends import (
    CUDA,
    REFERENCE,
    accumulations,
    backend_of,
    emulates,
    product_of,
)
from mixpert_py.runtime.context import Choice, Context
from mixpert_py.runtime.gpu import device, foreign
from mixpert_py.runtime.gpu.start import why_not_moved
from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.reference import emulation
from mixpert_py.runtime.request import (
    DTYPES,
    MATMUL,
    Call,
    Product,
    Request,
    Settings,
    result_shape,
)
from mixpert_py.runtime.signatures import NATIVE, Known, device_of

MultiplyFunction = Callable[[Request], Product | Reason]

CASTS = ("float32", "float64")
ON_HOST = (*CASTS, "blas")

# What is known of all later calls of a signature (the same shapes, types and devices), by the
# reason why this one takes no scheme; of reasons that are not here, nothing.
KNOWN: dict[Reason, Known] = {
    Reason.TOO_SMALL: NATIVE,
    Reason.NO_KERNEL: NATIVE,
    Reason.SCALAR: NATIVE,
    Reason.INTEGER: NATIVE,
    Reason.DTYPE: NATIVE,
    Reason.SHAPE: NATIVE,
    Reason.DIMENSIONS: NATIVE,
    Reason.OLD_GPU: NATIVE,
    # As long as the same holds of these operands, and of PyTorch and CuPy:
    Reason.GRADIENT: foreign.native_if_needed,
    Reason.AUTOCAST: foreign.native_if_needed,
    Reason.REDUCED: foreign.native_if_reduced,
    Reason.SPARSE: foreign.native_if_sparse,
}
# Reasons that hold for all operands of the same types, where these are no arrays of a GPU.
OF_TYPES = frozenset({Reason.NOT_AN_ARRAY, Reason.SUBCLASS, Reason.SPARSE})

# Reported even where nobody chose a scheme: the product was to be faithful, and is not.
REPORTED = frozenset(
    {Reason.GRADIENT, Reason.AUTOCAST, Reason.SPREAD, Reason.OLD_GPU, Reason.KERNEL, Reason.MEMORY}
)


def cover_torch(*, takes_small: bool) -> None:
    """Let products that PyTorch makes itself take schemes. `runtime.modules` replaces this function
    when PyTorch is imported; before, there is nothing to do.
    """


class Selection(NamedTuple):
    """A request and the backend that is to meet it.

    scope: a context in which the request's arrays are used, None where the current device and
    stream are theirs. give_back: makes a result an array of the library that the operands are of,
    None where it is one. is_chosen: whether somebody chose the scheme. library: whose arrays the
    operands are, where later calls of the signature can be prepared.
    """

    backend: MultiplyFunction
    request: Request
    scope: Callable[[], Any] | None = None
    give_back: Callable[[Any], Any] | None = None
    is_chosen: bool = True
    library: foreign.Library | None = None


class Declined(NamedTuple):
    """No scheme is taken: the native product is to be made.

    reason: None where there is nothing to report. known: what later calls of the signature may use,
    see `signatures`.
    """

    reason: Reason | None
    known: Known | None = None


def resolve_scheme(
    call: Call, settings: Settings, choice: Choice, context: Context, *, traced: bool
) -> Selection | Declined:
    """The scheme and the backend for a call, or why it runs natively instead.

    Where nobody chose a scheme (`choice.scheme` is None), products of float32 and complex64 arrays
    on a GPU run `faithful`, and those of float64 or complex128 arrays `crt`, where that is faster;
    also those of NumPy arrays where moving them is profitable; everything else is native. Raises
    DeviceError where operands of a chosen scheme are on different devices.
    """
    if choice.scheme == "native":
        return Declined(None, NATIVE)
    backend = settings.backend or context.backend
    request = Request(
        call.a,
        call.b,
        choice.scheme or "native",  # until it is known what the operands are
        call.destination,
        traced=traced,
        native=call.native,
    )
    is_chosen = choice.scheme is not None
    if type(call.a) is not np.ndarray and not emulates(backend):
        placement = foreign.placement(call.a, call.b)
        if isinstance(placement, foreign.Apart):
            if not is_chosen:
                return Declined(None)  # the program's own product may well work
            raise DeviceError(placement.sentence)
        if placement is not None:
            found = (
                placement
                if isinstance(placement, Reason)
                else _on_device(call, request, placement, backend, is_chosen)
            )
            if found is Reason.GRADIENT and context.modules is not None:
                # Below autograd it takes the scheme: one of its own whatever is native for others.
                is_own = (settings.scheme, settings.backend) != (None, None)
                if is_own or is_chosen or _gains_in_training(call):
                    cover_torch(takes_small=is_own)
            if isinstance(found, Reason):
                is_reported = is_chosen or found in REPORTED
                return Declined(found if is_reported else None, KNOWN.get(found))
            return found
    return _on_host(call, request, backend, is_chosen)


def _gains_in_training(call: Call) -> bool:
    """Whether a product of tensors, or of its backward pass, may take a scheme unasked."""
    shape, dtypes = call.shape(), _dtypes(call)
    if isinstance(shape, Reason) or dtypes[0] != dtypes[1]:
        return False
    name = sys.modules["torch"].cuda.get_device_name(call.a.get_device())
    return worth.layer_gains(name, dtypes[0], shape, is_trained=True)[0] > 0.0


def _on_host(
    call: Call, request: Request, backend: str | None, is_chosen: bool
) -> Selection | Declined:
    """The selection for operands that are on no GPU."""
    multiply: MultiplyFunction = exact_integers.multiply
    known = None
    is_tensor = type(call.a) in device_of and type(call.b) in device_of and takes_tensors(call)
    if is_tensor and (arrays := exact_integers.as_arrays(call.a, call.b)) is not None:
        multiply, known = exact_integers.multiply_tensors, NATIVE  # a signature has the shapes
        call = call._replace(a=arrays[0], b=arrays[1])
        request = request._replace(a=call.a, b=call.b)
    shape = call.host_shape()
    if isinstance(shape, Reason):
        # What may be on a GPU is not there now; of tensors, the signature has their devices.
        may_be_there = all(map(foreign.may_be_on_device, (type(call.a), type(call.b))))
        lasts = shape in OF_TYPES and (type(call.a) in device_of or not may_be_there)
        return Declined(shape if is_chosen else None, NATIVE if lasts else None)
    if are_integers(call.a, call.b):  # under any scheme: nothing is lowered
        if call.destination is not None and not _takes_result(call.destination, call):
            return Declined(Reason.OUT if is_chosen else None)
        if not worth.may_be_exact(call.a, call.b):
            return Declined(Reason.TOO_SMALL if is_chosen else None, known)
        request = request._replace(scheme="exact")
        return Selection(multiply, request, is_chosen=is_chosen)
    if request.scheme == "exact":
        return Declined(Reason.NO_INTEGERS)
    if not is_chosen:
        scheme = default_scheme(*_dtypes(call))
        if scheme is None or worth.is_too_short(scheme, shape[1]) or emulates(backend):
            return Declined(None)
        request = request._replace(scheme=scheme)
    is_asked = backend is not None
    made_by = REFERENCE if request.scheme in ON_HOST else backend_of(backend) or CUDA
    reason = _unsuited(call, request.scheme)
    if reason is None and request.scheme == "float32":
        reason = worth.why_not_cast(call.a, call.b, shape)
    elif reason is None and made_by.is_on_gpu:
        reason = why_not_moved(call.a, call.b, shape, request.scheme, is_asked=is_asked)
    if reason is not None:
        return Declined(reason if is_chosen or is_asked else None)
    request = request._replace(accumulation=accumulations(backend))
    return Selection(product_of(made_by), request)


def why_not_lower(call: Call, shape: Shape | Reason) -> Reason | None:
    """Why a product that is on no GPU would stay native under `float32`, or `exact` if it is one of
    integers; LOOP where it would be made by `blas`. None: it would not, or it is one of float32
    already.
    """
    if isinstance(shape, Reason):
        return shape
    if type(call.a) is not np.ndarray or type(call.b) is not np.ndarray:
        return None
    if are_integers(call.a, call.b):
        return None if worth.may_be_exact(call.a, call.b) else Reason.TOO_SMALL
    if call.is_loop or are_half(call.a, call.b):
        return Reason.LOOP
    return _unsuited(call, "float32") or worth.why_not_cast(call.a, call.b, shape)


def are_integers(*operands: Any) -> bool:
    """Whether operands are arrays that NumPy multiplies as integers or booleans. Those in another
    byte order than the machine's do not count.
    """
    for x in operands:
        is_array = type(x) is np.ndarray
        if not is_array or x.dtype.num > worth.LAST_INTEGER or not x.dtype.isnative:
            return False
    return np.result_type(*operands).num <= worth.LAST_INTEGER


def are_half(*operands: object) -> bool:
    """Whether operands are NumPy arrays of float16."""
    return all(type(x) is np.ndarray and x.dtype == np.float16 for x in operands)


def _unsuited(call: Call, scheme: str) -> Reason | None:
    """Why NumPy operands cannot take a scheme; None: they can."""
    a, b, out = call.a, call.b, call.destination
    is_half = scheme == "blas" and are_half(a, b)
    for x in (a, b):
        if x.dtype not in emulation.TYPES and not is_half:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    return Reason.OUT if out is not None and not _takes_result(out, call) else None


def _dtypes(call: Call) -> tuple[str, str]:
    return name_of(call.a.dtype), name_of(call.b.dtype)


def _takes_result(out: AnyArray, call: Call) -> bool:
    """Whether `out` is an array of the result's shape and type, which np.dot wants in C order,
    np.matmul in any order. Anything else is for the native product to judge.
    """
    if type(out) is not np.ndarray or out.ndim == 0:
        return False
    writes = out.flags.behaved if call.native is MATMUL else out.flags.carray
    a, b = call.a, call.b
    return writes and out.shape == result_shape(a, b) and out.dtype == np.result_type(a, b)


def _on_device(
    call: Call, request: Request, placement: foreign.Placement, backend: str | None, is_chosen: bool
) -> Selection | Reason:
    """The selection for arrays that are on one GPU."""
    scheme = scheme_on_device(call, request.scheme if is_chosen else None, placement, backend)
    if isinstance(scheme, Reason):
        return scheme
    if _is_own_precision(scheme, _dtypes(call)):
        return Selection(lambda request: Product(call.run(), request.scheme), request)
    borrowed = foreign.borrow(placement, call.a, call.b)
    if isinstance(borrowed, Reason):
        return borrowed
    is_alone = call.destination is None and not call.is_sum and not request.traced
    run = call.run if is_alone and not signatures.has_modes() else None
    request = request._replace(a=borrowed.a, b=borrowed.b, scheme=scheme, run=run)
    from mixpert_py.runtime.gpu.multiply import multiply

    return Selection(
        multiply, request, borrowed.scope, borrowed.give_back, is_chosen, placement.library
    )


def _is_own_precision(scheme: str, dtypes: tuple[str, str]) -> bool:
    """Return whether a scheme is the cast to the precision that both operands have, or `blas`,
    which products on a GPU are natively.
    """
    return scheme == "blas" or (
        scheme in CASTS and {PRECISION[dtype] for dtype in dtypes} == {scheme}
    )


def scheme_on_device(
    call: Call, chosen: str | None, placement: foreign.Placement, backend: str | None
) -> str | Reason:
    """The scheme that arrays on one GPU take, or why they take none.

    chosen: None where nobody chose a scheme. The operands need no more than shapes and types: a
    compiler asks before there are arrays.
    """
    dtypes, is_default, out = _dtypes(call), chosen is None, call.destination
    if placement.library == "cupy" and are_whole(*dtypes):
        return _integers_on_device(call, placement)
    scheme = chosen or default_scheme(*dtypes)
    if scheme is None:
        return Reason.DTYPE
    if scheme == "faithful" and is_default and not placement.is_full():
        return Reason.REDUCED
    if placement.library == "torch" and not takes_tensors(call):
        return Reason.NOT_AN_ARRAY  # np.matmul takes no tensor
    shape = call.shape()
    if isinstance(shape, Reason):
        return shape
    if dtypes[0] not in PRECISION or dtypes[1] not in PRECISION:
        x = call.b if dtypes[0] in PRECISION else call.a
        return DTYPES.get(getattr(x.dtype, "kind", ""), Reason.DTYPE)
    if scheme == "exact":
        return Reason.NO_INTEGERS
    if out is not None and not takes_result_on_device(out, call):
        return Reason.OUT
    if _is_own_precision(scheme, dtypes):
        return scheme
    if scheme == "float32":  # a cast would lose float64 operands whose exponents FP32 has not
        scheme = "faithful"
    is_free = backend is None and scheme != "float64"  # to stay native where that is faster
    if is_default and worth.is_too_short(scheme, shape[1]):
        return Reason.TOO_SMALL
    if is_default and is_free and worth.is_small_anywhere(call):
        return Reason.TOO_SMALL
    if placement.library == "torch":  # before CuPy is imported, which takes half a second
        torch = sys.modules["torch"]
        needed = foreign.needed_by_torch(torch, call.a, call.b)
        if needed is None and is_default and is_free and "cupy" not in sys.modules:
            name = torch.cuda.get_device_name(call.a.get_device())
            needed = worth.why_not_on_device(call, scheme, name, by_default=True)
        if needed is not None:
            return needed
    found = device.find(placement.device)
    if isinstance(found, device.Absent):
        return found.reason
    if not is_free:
        return scheme
    return worth.why_not_on_device(call, scheme, found.name, by_default=is_default) or scheme


def _integers_on_device(call: Call, placement: foreign.Placement) -> str | Reason:
    """`exact` for matrices of CuPy's integers, whatever scheme is chosen; or why not."""
    shape, dtype = call.shape(), np.result_type(*_dtypes(call))
    if isinstance(shape, Reason):
        return shape
    if dtype.kind not in "iu" or not call.a.ndim == call.b.ndim == 2:
        return Reason.INTEGER
    if call.destination is not None and not takes_result_on_device(call.destination, call):
        return Reason.OUT
    if not worth.integers_gain(shape, dtype):
        return Reason.TOO_SMALL
    found = device.find(placement.device)
    if isinstance(found, device.Absent):
        return found.reason
    return "exact" if found.capability == HOPPER else Reason.NO_KERNEL


def takes_tensors(call: Call) -> bool:
    """Whether the call's function is one of arrays of any library."""
    return call.takes_tensors or call.native is operator.matmul


def takes_result_on_device(out: GpuArray, call: Call) -> bool:
    """Return whether `out` is an array of the operands' library, of the result's shape and type."""
    if type(out) is not type(call.a) or tuple(out.shape) != result_shape(call.a, call.b):
        return False
    wanted: np.dtype[Any] = np.result_type(*_dtypes(call))
    return name_of(out.dtype) == wanted.name and out.data.device_id == call.a.data.device_id
