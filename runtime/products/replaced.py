"""Whether a program has put a function of its own in the place of a library's product."""

from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from mixpert_py.runtime.request import Native
from mixpert_py.runtime.signatures import device_of


def _own(name: str, *modules: str) -> Callable[..., Any]:
    """NumPy's function as its own module has it, which programs do not write to."""
    for module in modules:
        try:
            found: Callable[..., Any] = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
        return found
    made: Callable[..., Any] = getattr(np, name)
    return made


EINSUM = _own("einsum", "numpy._core.einsumfunc", "numpy.core.einsumfunc")
TENSORDOT = _own("tensordot", "numpy._core.numeric", "numpy.core.numeric")
INNER = _own("inner", "numpy._core.multiarray", "numpy.core.multiarray")
MULTI_DOT = _own("multi_dot", "numpy.linalg._linalg", "numpy.linalg.linalg")
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
