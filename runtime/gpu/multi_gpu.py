"""A large product of one GPU's arrays, divided among the GPUs of the machine.

Each device takes rows of A and C, and all of B, by copies from device to device; the last rows stay
where they are. CuPy's own distributed arrays do not serve: they make products by cuBLAS, want
operands that were distributed before, and NCCL. Nothing here waits for a device.
"""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu import slices
from mixpert_py.runtime.gpu.partition import PANEL
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product, Request


def multiply_on(
    numbers: tuple[int, ...], request: Request, multiply: Callable[[Request], Product | Reason]
) -> Product | Reason:
    """A·B, as many rows on each device, the rest on the current one, the last of `numbers`.

    multiply: makes the product of a request on the current device and stream. The request's
    workspace limit is one of each device, copies included.
    """
    xp = slices.cuda_kernels().xp
    a, b, out, limit = request.a, request.b, request.out, request.workspace_limit
    height = -(-a.shape[0] // len(numbers) // PANEL) * PANEL
    dtype = np.result_type(a.dtype, b.dtype)
    is_apart = out is not None and (not out.flags.c_contiguous or slices.overlaps(xp, out, a, b))
    if limit is not None:
        limit -= max(_copied_bytes(a, b, height), _bytes_here(a, b, out if is_apart else None))
        if limit < 0:
            return Reason.WORKSPACE
    value = xp.empty((a.shape[0], b.shape[1]), dtype) if out is None or is_apart else out
    shares = [slice(at * height, (at + 1) * height) for at in range(len(numbers) - 1)]
    shares.append(slice(len(shares) * height, None))
    lefts, right = [_dense(xp, a[rows]) for rows in shares], _dense(xp, b)
    here = xp.cuda.get_current_stream()
    begin = here.record()
    part = request._replace(b=right, out=None, devices=None, workspace_limit=limit)
    products, ends = [], []
    try:
        for number, rows, left in zip(numbers[:-1], shares, lefts, strict=False):
            with xp.cuda.Device(number), _stream(number) as stream:
                stream.wait_event(begin)
                try:
                    its = part._replace(a=_copied(xp, left, stream), b=_copied(xp, right, stream))
                    product = multiply(its)
                    if isinstance(product, Product):
                        _copy(product.value, value[rows], stream)
                    products.append(product)
                finally:
                    ends.append(stream.record())
        products.append(multiply(part._replace(a=lefts[-1], out=value[shares[-1]])))
    finally:
        for end in ends:  # whatever has happened: what others read or write is not free before
            here.wait_event(end)
    for one in products:
        if isinstance(one, Reason):
            return one
    if is_apart:
        out[...] = value
        value = out
    shared = [one.outliers for one in products if isinstance(one, Product)]

    def outliers() -> float:
        here.synchronize()  # flags of other devices are read on streams that wait for nobody
        return max(share() for share in shared)

    return Product(value, request.scheme, outliers)


@cache
def _stream(number: int) -> Any:
    """One for ever: memory that it has used is given to itself alone, in order."""
    return slices.cuda_kernels().xp.cuda.Stream(non_blocking=True)


def _copied_bytes(a: GpuArray, b: GpuArray, height: int) -> int:
    """Bytes of B, and of so many rows of A and C: what another device takes."""
    wide = np.result_type(a.dtype, b.dtype).itemsize
    rows = a.shape[1] * a.dtype.itemsize + b.shape[1] * wide
    return int(b.nbytes + height * rows)


def _bytes_here(a: GpuArray, b: GpuArray, out: GpuArray | None) -> int:
    """Bytes that the operands' own device takes. out: where the result goes when it is whole."""
    copied = 0 if a.flags.c_contiguous else a.nbytes
    copied += 0 if b.flags.c_contiguous or b.flags.f_contiguous else b.nbytes
    return int(copied + (0 if out is None else out.nbytes))


def _dense(xp: ModuleType, x: GpuArray) -> Any:
    """x itself if it is one piece of memory, else a copy."""
    return x if x.flags.c_contiguous or x.flags.f_contiguous else xp.ascontiguousarray(x)


def _copied(xp: ModuleType, x: GpuArray, stream: Any) -> Any:
    """An array of another device on the current one, rows and columns in the same order."""
    if not x.flags.c_contiguous:
        return _copied(xp, x.T, stream).T
    target = xp.empty(x.shape, x.dtype)
    _copy(x, target, stream)
    return target


def _copy(source: GpuArray, target: Any, stream: Any) -> None:
    target.data.copy_from_device_async(source.data, source.nbytes, stream)
