"""Whether a program has put a function of its own in the place of a library's product."""

from collections.abc import Callable
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.request import Native
from mixpert_py.runtime.signatures import device_of


def _own(module: str, public: ModuleType, name: str) -> Callable[..., Any]:
    """NumPy's function from the module that defines it, which programs do not write to; from the
    public one where this version of NumPy defines it elsewhere.
    """
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        found = getattr(public, name)
    return found


EINSUM = _own("numpy._core.einsumfunc", np, "einsum")
TENSORDOT = _own("numpy._core.numeric", np, "tensordot")
INNER = _own("numpy._core.multiarray", np, "inner")
MULTI_DOT = _own("numpy.linalg._linalg", np.linalg, "multi_dot")
OTHERS = frozenset({"cupy", "cupyx", "dask"})  # libraries, by the first part of a module's name


def is_replaced(native: Native, *operands: object) -> bool:
    """Whether a function that the program calls as einsum, tensordot, inner or multi_dot is none of
    NumPy's, CuPy's or Dask's: then it is called, and no product is made in its place.

    Where an operand is of a type that a GPU has, it is taken to be that library's. A primitive of
    autograd stands for the function that it wraps.
    """
    for x in operands:
        if type(x) in device_of:
            return False
    function = getattr(native, "fun", native) if type(native) is FunctionType else native
    if function is EINSUM or function is TENSORDOT or function is INNER or function is MULTI_DOT:
        return False
    return str(getattr(function, "__module__", "")).partition(".")[0] not in OTHERS
