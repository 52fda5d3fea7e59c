"""Whether two arrays have memory in common. Blocks of one matrix, side by side, have none."""

from typing import Any

import numpy as np
from numpy.exceptions import TooHardError

from mixpert_py.runtime.request import Array

WORK: Any = 1000  # steps in which NumPy finds out; blocks take a few


def shares(x: Array, y: Array) -> bool:
    """Whether NumPy arrays do, or may, where that is too hard to tell."""
    try:
        return bool(np.shares_memory(x, y, max_work=WORK))
    except TooHardError:
        return True


def shares_on_device(x: Any, y: Any) -> bool:
    """The same of CuPy arrays of one device; nothing of them is read."""
    return shares(np.asarray(_Addresses(x)), np.asarray(_Addresses(y)))


class _Addresses:
    """The addresses of a CuPy array's elements, as if they were in host memory."""

    def __init__(self, x: Any) -> None:
        self.__array_interface__ = {
            "data": (x.data.ptr, True),
            "shape": x.shape,
            "strides": x.strides,
            "typestr": x.dtype.str,
            "version": 3,
        }
