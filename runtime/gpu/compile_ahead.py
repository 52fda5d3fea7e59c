"""Compiles or loads the kernels of a product in parallel at its first call."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.gpu import gemm
from mixpert_py.runtime.gpu.guard import safe, wider_of
from mixpert_py.runtime.packing import by_columns, by_rows, compilations, task_of
from mixpert_py.runtime.packing.launch import PackingTask
from mixpert_py.runtime.packing.operand import Form, Layout, layout
from mixpert_py.runtime.packing.repair import repair_kernel
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.schemes import emulation_of

THREADS = 4  # kernels at a time: NVRTC and the driver, which assembles PTX, release Python's lock


class _Unpacked(NamedTuple):
    """An operand before packing, described as the GEMM will see it. slices: a number of its own."""

    layout: Layout
    slices: int = 0
    scales: int = 0


@contextmanager
def compiling_ahead(request: Request) -> Iterator[None]:
    """Context manager: other threads compile the kernels that the product inside it will use.

    The product waits only for the kernel that it needs next. After it, or an interrupt, the threads
    begin no further kernel, and end. request: of two-dimensional arrays on the current device;
    nothing is compiled for others. Errors are ignored here: the product asks for the same kernel,
    and raises them.
    """
    pool = ThreadPoolExecutor(THREADS)
    with suppress(RuntimeError):  # no thread can be started, as while the interpreter ends
        for compile in _compilations(request):
            pool.submit(compile)
    try:
        yield
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _compilations(request: Request) -> list[Callable[[], None]]:
    """Functions that each compile one kernel of a product: for the GEMM, packing, the wider
    scheme, or repair.
    """
    a, b, c = request.a, request.b, request.out
    if a.ndim > 2 or b.ndim > 2 or request.scheme == "exact" or is_complex(a, b):
        return []
    import cupy

    device = cupy.cuda.Device()
    scheme = emulation_of(request.scheme)
    if request.scheme == "faithful":
        scheme = safe(scheme, a, b, device.id)
    wider = wider_of(scheme, a, b)
    left, right = by_rows(a), by_columns(b)
    x, y = left.form, right.form
    tasks: list[Callable[[], Any]] = []
    for one in (scheme, wider):
        if one is not None:
            task = task_of(left, right, one)
            tasks.append(partial(_compile_gemm, task, x, y, c))
            tasks += compilations(task)
    tasks.append(partial(repair_kernel, x, y, c.itemsize))

    def on_device(compile: Callable[[], Any]) -> None:
        with device:
            compile()

    return [partial(on_device, compile) for compile in tasks]


def _compile_gemm(task: PackingTask, a: Form, b: Form, c: GpuArray) -> None:
    scheme, is_one = task.scheme, task.which == "left"
    left, right = (
        _Unpacked(layout(splitter, x.batch, x.rows, x.k, task.block), 0 if is_one else place)
        for place, (splitter, x) in enumerate(((scheme.left, a), (scheme.right, b)))
    )
    gemm.prepare(left, right, scheme, c)
