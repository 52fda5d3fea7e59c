"""The modes in which a program is measured: native, in the vendor's TF32, faithful, by a plan."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.context import Context
from mixpert_py.runtime.tracing.trace import Trace

FP32, TF32, FAITHFUL, TUNED = "cuBLAS FP32", "cuBLAS TF32", "faithful", "tuned"
NATIVE = Context(scheme="native")
TF32_TENSOR_OP_MATH = 3  # cublasMath_t


def under(schemes: Mapping[str, str], backend: str | None, trace: Trace | None = None) -> Context:
    """The context of a run in which each site has its scheme."""
    plan = Plan(site=[Site(id=site, scheme=scheme) for site, scheme in schemes.items()])
    return Context(plan=plan, backend=backend, trace=trace)


@contextmanager
def tensor_float(xp: ModuleType) -> Iterator[None]:
    """CuPy's float32 products by the vendor's TF32 inside; NumPy knows of no such thing."""
    if xp is np:
        yield
        return
    from cupy._core import _routines_linalg as routines
    from cupy_backends.cuda.libs import cublas

    handle = xp.cuda.device.get_cublas_handle()
    before = routines.get_compute_type("f"), cublas.getMathMode(handle)
    try:
        # CuPy asks the one for matrices, and cuBLAS the other for stacks of them.
        routines.set_compute_type("f", routines.COMPUTE_TYPE_TF32)
        cublas.setMathMode(handle, TF32_TENSOR_OP_MATH)
        yield
    finally:
        routines.set_compute_type("f", before[0])
        cublas.setMathMode(handle, before[1])
