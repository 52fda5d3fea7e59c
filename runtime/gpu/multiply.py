"""The backend for GPUs: products of CuPy arrays on the current device."""

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import complex_product
from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.complex_product import is_complex, widened
from mixpert_py.runtime.gpu import complex_parts, integers, slices, tiny
from mixpert_py.runtime.gpu.device import state_of, states
from mixpert_py.runtime.gpu.guard import outlier_guard, safe
from mixpert_py.runtime.gpu.slices import ProductSteps, SliceProduct
from mixpert_py.runtime.gpu.speculation import Outlook, Watch, findings_from
from mixpert_py.runtime.gpu.stacks import as_matmul, as_matrices, matrices
from mixpert_py.runtime.kernels.recording import Recording, Stream, is_capturing
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.packing.operand import DevicePacked
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product, Request, no_outliers, result_shape
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import FEWEST

T = TypeVar("T")

NO_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
MOST_OUTLOOKS = 4096  # of a device; at this number all are forgotten


@cache
def cuda_kernels() -> ProductSteps:
    """The kernels of this machine's GPUs. Imports CuPy."""
    import cupy

    from mixpert_py.runtime.gpu.gemm import gemm
    from mixpert_py.runtime.packing import pack, pack_one
    from mixpert_py.runtime.packing.repair import repair

    ours = pack, pack_one, gemm, repair
    return ProductSteps(cupy, *ours, complex_parts.way_on, tiny.multiply_tiny, outlier_guard)


class PackedOperand(NamedTuple):
    """A right operand that was packed in advance, and the scheme that it was packed for. parts: the
    packed real and imaginary part of a complex one.
    """

    scheme: Scheme
    packed: DevicePacked
    parts: Any = None


def multiply(
    request: Request,
    stream: Stream | None = None,
    watch: Watch | None = None,
    part: Scheme | None = None,
) -> Product | Reason:
    """A·B of CuPy arrays on the current device, or why the device cannot make it.

    stream: None for the current stream; a recording stream takes launches alone, see `prepared`.
    watch: the records of the `crt` product that this product is an attempt at. part: the scheme of
    that attempt; None: the request's scheme. Only `crt`, and complex products by residues, wait for
    the device, until the operands are packed.
    """
    kernels = cuda_kernels()
    xp, a, b, out = kernels.xp, request.a, request.b, request.out
    packed = request.right
    if request.scheme == "float64":
        return _attempt(a, "float64", _in_float64, xp, request)
    if request.scheme == "exact":
        return _attempt(a, "exact", integers.multiply, request, stream)
    scheme = packed.scheme if packed else part or emulation_of(request.scheme)
    device = a.data.device_id
    if is_complex(a, b) and part is None:
        return _attempt(a, scheme.name, _complex, kernels, request, scheme, stream)
    if request.scheme == "crt" and part is None:
        return _as_fp64(xp, request)
    rows = a[np.newaxis, :] if a.ndim == 1 else a
    columns = b[:, np.newaxis] if b.ndim == 1 else b
    target = None if out is None else as_matrices(out, a, b)
    if packed is None and request.scheme == "faithful" and tiny.suits(rows, columns):
        given = rows, columns, target, stream
        value = _attempt(a, "faithful", tiny.multiply, kernels, *given)
        if isinstance(value, Reason):
            return value
        return Product(as_matmul(value, a, b) if out is None else out, request.scheme)
    if packed is None and request.scheme == "faithful":
        scheme = safe(scheme, rows, columns, device)
    operands = slices.Operands(rows, columns, packed and packed.packed)
    made = partial(slices.multiply, out=target, stream=stream, watch=watch)
    product = _attempt(a, scheme.name, made, kernels, operands, scheme)
    if isinstance(product, Reason):
        return product
    return Product(
        as_matmul(product.value, a, b) if out is None else out,
        request.scheme,
        partial(_outliers, product) if request.traced and not _captures(xp) else no_outliers,
    )


def _complex(
    kernels: ProductSteps, request: Request, scheme: Scheme, stream: Stream | None
) -> Product | Reason:
    """The product of complex operands, by residues of both parts with one scale, or from a real
    stack of products of their parts.

    Under a scheme of a stated number of moduli, parts have one scale where 14 moduli are then as
    accurate as FP64.
    """
    a, b, out = request.a, request.b, request.out
    if scheme.moduli and request.right is None and are_packed_whole(a, b):
        if request.scheme == "crt":
            return _as_fp64(kernels.xp, request)
        product = _as_fp64(kernels.xp, request._replace(run=None), scheme)
        if product is not Reason.SPREAD:
            return product
    request = request._replace(run=None)
    used: list[Any] = []

    def real_product(x: GpuArray, y: GpuArray) -> Product | Reason:
        place = None
        if isinstance(stream, Recording):
            dtype = np.result_type(x.dtype, y.dtype)
            place = complex_parts.empty(result_shape(x, y), dtype, x.data.device_id, stream)
        product = multiply(request._replace(a=x, b=y, out=place), stream)
        used.append(product)
        return product

    current = kernels.xp.cuda.get_current_stream().ptr
    product = complex_product.multiply(
        kernels.complex(current if stream is None else stream),
        a[np.newaxis, :] if a.ndim == 1 else a,
        b[:, np.newaxis] if b.ndim == 1 else b,
        real_product,
        right=request.right and request.right.parts,
        out=None if out is None else as_matrices(out, a, b),
    )
    if isinstance(product, Reason):
        return product
    if _captures(kernels.xp):
        slices.keep_for_graph(product.value, used)  # each real product keeps its own operands
    return product.with_value(as_matmul(product.value, a, b) if out is None else out)


def are_packed_whole(*operands: GpuArray) -> bool:
    """Whether kernels can pack both parts of operands at once: these are complex, and aligned."""
    return all(
        is_complex(x) and not any(place % x.itemsize for place in (x.data.ptr, *x.strides))
        for x in operands
    )


def _as_fp64(xp: ModuleType, request: Request, chosen: Scheme | None = None) -> Product | Reason:
    """The product by the scheme that its operands need, see `speculation`; Reason.SPREAD if that is
    the native product and was not made meanwhile, or if the host may not wait. chosen: the scheme
    that replaces the one of 14 moduli; then Reason.SPREAD if the operands need another one.

    `out` may be written to even if a Reason is returned.
    """
    a, b, out = request.a, request.b, request.out
    if _captures(xp):
        return Reason.SPREAD
    # If this attempt has too few moduli, the next one needs the operands unchanged.
    apart = out is not None and slices.overlaps(xp, out, a, b)
    if apart:
        request = request._replace(out=None)
    first = emulation_of(f"crt{FEWEST}")
    if not (a.size and b.size):  # there is nothing to pack
        return multiply(request, part=chosen or first)
    outlook, k, idle = outlook_of(a, b), a.shape[-1], state_of(a.data.device_id).findings
    findings = findings_from(idle, is_complex=is_complex(a, b))
    watch = Watch(xp.cuda.get_current_stream().ptr, findings)
    scheme, native, is_shown = outlook.expected, None, True
    if scheme is None or (chosen and scheme is not first):
        ahead = outlook.is_steady and request.run is not None
        rows = a[np.newaxis, :] if a.ndim == 1 else a
        columns = b[:, np.newaxis] if b.ndim == 1 else b
        sides = by_rows(matrices(rows)), by_columns(matrices(columns))
        watch.look(*sides, at_all=ahead and not outlook.is_shown)
        if ahead and request.run is not None:
            native = Product(request.run(), "native", reason=Reason.SPREAD)
        scheme = findings.scheme(k)
        is_shown = scheme is None
    product: Product | Reason = native or Reason.SPREAD
    while scheme is not None and (chosen is None or scheme is first):
        product = multiply(request, watch=watch, part=chosen or scheme)
        if isinstance(product, Reason):
            xp.cuda.get_current_stream().synchronize()  # it may still write to `findings`
            return product
        made, scheme = scheme, findings.scheme(k, scheme)
        if scheme is made:
            break
        product = native or Reason.SPREAD
    outlook.learn(scheme and findings.quickest(k, scheme), is_shown=is_shown)
    idle.append(findings)
    if apart and scheme is not None and isinstance(product, Product):
        out[...] = product.value
        product = product.with_value(out)
    return product


def outlook_of(a: GpuArray, b: GpuArray) -> Outlook:
    """The device's `Outlook` for products of arrays of these shapes, types and layouts."""
    outlooks = state_of(a.data.device_id).outlooks
    if len(outlooks) >= MOST_OUTLOOKS:
        outlooks.clear()
    layouts = a.strides, b.strides, a.data.ptr == b.data.ptr
    key = a.shape, b.shape, a.dtype.char, b.dtype.char, *layouts
    found: Outlook = outlooks.setdefault(key, Outlook())
    return found


def _in_float64(xp: ModuleType, request: Request) -> Product:
    left, right = widened(request.a), widened(request.b)
    product = xp.matmul(left, right)
    result = product.astype(np.result_type(request.a.dtype, request.b.dtype), copy=False)
    if request.out is not None:
        request.out[...] = result
        result = request.out
    if _captures(xp):
        slices.keep_for_graph(result, (left, right, product))
    return Product(result, request.scheme)


def pack_right(x: GpuArray, scheme: Scheme) -> PackedOperand | Reason:
    """The right operand of products (…, k, n), packed for a scheme on the current stream; or why
    not.
    """
    kernels = cuda_kernels()
    stream = kernels.xp.cuda.get_current_stream().ptr

    def packed() -> PackedOperand:
        split = complex_product.parts(kernels.complex(stream), x) if is_complex(x) else None
        held = x if split is None else split
        how = by_columns(matrices(held)), scheme, "right", held.dtype.name
        return PackedOperand(scheme, kernels.pack_one(*how, stream=stream), split)

    return _attempt(x, scheme.name, packed)


def _attempt(x: GpuArray, name: str, work: Callable[..., T], *arguments: Any) -> T | Reason:
    """The result of work(*arguments), or why x's device cannot make products by scheme `name`."""
    xp, device = cuda_kernels().xp, x.data.device_id
    if name in state_of(device).refused:
        return Reason.KERNEL
    try:
        return work(*arguments)
    except _failures(xp) as error:
        reason = _reason_of(error, device, name)
    if reason is Reason.MEMORY:
        # To the device, for a native product by another library. Not where the exception is
        # handled: it keeps the memory of the failed attempt.
        xp.get_default_memory_pool().free_all_blocks()
    return reason


def _failures(xp: ModuleType) -> tuple[type[Exception], ...]:
    """The exceptions that are raised if a device cannot make a product."""
    cuda = xp.cuda
    memory, driver = cuda.memory.OutOfMemoryError, cuda.driver.CUDADriverError
    return memory, DeviceError, ImportError, driver


def _reason_of(error: Exception, device: int, name: str) -> Reason:
    """The Reason for an error. A kernel that does not compile is not tried again, but one for whose
    code the driver had no memory, since CuPy's pool may have returned some by then.
    """
    states = (getattr(one, "status", None) for one in (error, error.__cause__))
    if isinstance(error, MemoryError) or NO_MEMORY in states:
        return Reason.MEMORY
    state_of(device).refused[name] = str(error).partition("\n")[0]
    return Reason.KERNEL


def refusals() -> dict[tuple[int, str], str]:
    """(device, scheme) → the message about a kernel that did not compile."""
    return {
        (device, name): message
        for device, state in states().items()
        for name, message in state.refused.items()
    }


def _captures(xp: ModuleType) -> bool:
    """Whether work enqueued on the current stream goes into a CUDA graph."""
    return is_capturing(xp.cuda, xp.cuda.get_current_stream().ptr)


def _outliers(product: SliceProduct) -> float:
    """The share of all blocks that slices cannot represent. Waits for the device, current or
    not.
    """
    flagged = total = 0
    with cuda_kernels().xp.cuda.Device(product.value.data.device_id):
        guard = product.guard
        decided = product if guard is None or not guard.flag() else guard
        for packed in (decided.left, decided.right):
            if packed is not None:
                one = packed.layout.blocks == 1
                marks = packed.view("flags") & 2 if one else packed.view("outliers")
                flagged += int((marks != 0).sum())
                total += marks.size
    return flagged / total if total else 0.0
