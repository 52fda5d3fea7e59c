"""Kernels of a product compiled side by side, at its first call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from mixpert_py.runtime.gpu.gemm import gemm
from mixpert_py.runtime.gpu.guard import wider_of
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.packing.operand import Form, Layout, layout
from mixpert_py.runtime.packing.repair import repair_kernel
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of

THREADS = 3  # kernels at a time


class _Unpacked(NamedTuple):
    """An operand as the GEMM will see it, before it is packed."""

    layout: Layout
    slices: int = 0
    scales: int = 0


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


def compile_ahead(request: Request) -> None:
    """Let other threads compile the kernels that a product asks for last: the GEMM, that of the
    wider scheme, and the repair. Meanwhile the product compiles those of packing.

    request: of two-dimensional arrays on the current device; nothing is done for others. Whatever
    fails is left to the product itself, which will ask for the same kernel.
    """
    a, b, c = request.a, request.b, request.out
    if a.ndim > 2 or b.ndim > 2:
        return
    import cupy

    device = cupy.cuda.Device()
    scheme = emulation_of(request.scheme, request.block)
    wider = wider_of(scheme, a, b)
    x, y = by_rows(a).form, by_columns(b).form

    def on_device(compile: Callable[..., Any], *given: Any) -> None:
        with device:
            compile(*given)

    with suppress(RuntimeError):  # no thread can be started, as while the interpreter ends
        for one in (scheme, wider):
            if one is not None:
                _pool().submit(on_device, _compile_gemm, one, x, y, c)
        _pool().submit(on_device, repair_kernel, x, y, c.itemsize)


def _compile_gemm(scheme: Scheme, a: Form, b: Form, c: Any) -> None:
    block = scheme.lengths(a.k)[1]
    left, right = (
        _Unpacked(layout(splitter, x.batch, x.rows, x.k, block, False))
        for splitter, x in ((scheme.left, a), (scheme.right, b))
    )
    gemm(left, right, scheme, c, prepare=True)
