"""Local errors by a GPU's own kernels: of operands that are there, and of NumPy's large ones.

What CuPy raises passes through: ImportError where cuBLAS is missing, its OutOfMemoryError.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from mixpert_py.runtime.complex_product import widened
from mixpert_py.runtime.gpu import device, foreign
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import TYPES, emulate
from mixpert_py.runtime.request import Array, Request
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.local_errors import relative, sampled

WORTH = 1 << 27  # multiply-adds


def local_errors(a: Any, b: Any, schemes: Sequence[str]) -> dict[str, float] | None:
    """As `tracing.shadow.local_errors`; None where the operands are on no GPU that can say.

    Waits for the device.
    """
    placement = foreign.placement(a, b)
    if not isinstance(placement, foreign.Placement):
        return None
    borrowed = foreign.borrow(placement, a, b)
    if isinstance(borrowed, Reason) or isinstance(device.find(placement.device), device.Absent):
        return None
    if borrowed.a.dtype not in TYPES or borrowed.b.dtype not in TYPES:
        return {}
    with nullcontext() if borrowed.scope is None else borrowed.scope():
        return _errors(*sampled(borrowed.a, borrowed.b), schemes)


def of_host(a: Array, b: Array, schemes: Sequence[str]) -> dict[str, float] | None:
    """The same of NumPy's operands: what is sampled of them moves to the current GPU.

    None where there is none, or where NumPy emulates the products in less than a second or so:
    of large ones it takes minutes.
    """
    if a.dtype not in TYPES or b.dtype not in TYPES or min(a.ndim, b.ndim) < 2:
        return None
    some, others = sampled(a, b)
    if some.size * others.shape[-1] < WORTH or isinstance(device.find(), device.Absent):
        return None
    import cupy

    return _errors(cupy.asarray(some), cupy.asarray(others), schemes)


def _errors(a: Any, b: Any, schemes: Sequence[str]) -> dict[str, float] | None:
    """Relative error of each scheme on the product a · b; None where the device cannot make one."""
    import cupy

    from mixpert_py.runtime.gpu.multiply import multiply

    exact = cupy.matmul(widened(a), widened(b)).get()
    errors = {}
    with np.errstate(all="ignore"):
        for scheme in schemes:
            result: Any
            if get(scheme).kind in ("native", "cast"):
                result = emulate(a.get(), b.get(), scheme)
            else:
                product = multiply(Request(a, b, scheme))
                if isinstance(product, Reason):
                    return None
                result = product.value.get()
            errors[scheme] = float("nan") if result is None else relative(exact, result)
    return errors
