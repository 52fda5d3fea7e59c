"""NumPy operands that stay on a device after their product, for those that come.

Only where nobody writes to an operand: of Dask's blocks, which a task must not change, one is
often an operand of many of a product's tasks. It stays until it is gone from the host, or products
from here need the room. What is written to all the same, between two runs of one graph, is noticed
where it changes any of a few thousand elements.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any
from weakref import ref

import numpy as np

from mixpert_py.runtime.gpu.device_state import state_of, states
from mixpert_py.runtime.request import Array

SHARE = 1 / 8  # of a device's memory, at most
SAMPLE = 64  # rows, and columns


@dataclass(frozen=True, slots=True, eq=False)
class _Resident:
    """array: what is there. owner: of the host's memory; while it lives, that is nobody else's.
    sample: elements as they were.
    """

    array: Any
    owner: "ref[Any]"
    sample: Array


def find(xp: ModuleType, which: str, x: Array, dtype: np.dtype[Any]) -> Any:
    """x on the current device, as that type; None where it is not there. which: products."""
    residents, key = _residents(xp), _key(which, x, dtype)
    found = residents.pop(key, None)
    if found is None or found.owner() is not _owner(x):
        return None
    if not np.array_equal(found.sample, _sample(x), equal_nan=True):
        return None
    residents[key] = found
    return found.array


def keep(xp: ModuleType, which: str, x: Array, array: Any) -> None:
    """Have `array`, which is x on the current device, stay there. Others go, if it is too much."""
    limit = SHARE * xp.cuda.runtime.memGetInfo()[1]
    if array.nbytes > limit:
        return
    residents, key = _residents(xp), _key(which, x, array.dtype)
    owner = ref(_owner(x), lambda _: residents.pop(key, None))
    residents[key] = _Resident(array, owner, _sample(x))
    there = list(residents.copy().items())
    size = sum(one.array.nbytes for _, one in there)
    for other, one in there:
        if size > limit:
            size -= one.array.nbytes
            residents.pop(other, None)


def evict() -> bool:
    """Nothing stays any more, on any device. Returns whether anything did."""
    found = False
    for state in states().values():
        found = found or bool(state.resident)
        state.resident.clear()
    return found


def _residents(xp: ModuleType) -> dict[Any, _Resident]:
    """(for which products, where an operand lies, as what it was moved) → what is on the current
    device; the latest last. Whoever looks through takes a copy, in one step: an owner may be gone
    at any time.
    """
    return state_of(xp.cuda.runtime.getDevice()).resident


def _key(which: str, x: Array, dtype: np.dtype[Any]) -> Any:
    return which, x.ctypes.data, x.shape, x.strides, x.dtype, dtype


def _sample(x: Array) -> Array:
    """A copy of some elements of every part of a matrix, up to four times SAMPLE² of them."""
    rows, columns = (max(length // SAMPLE, 1) for length in x.shape)
    return x[::rows, ::columns].copy()


def _owner(x: Array) -> Any:
    """Who has x's memory: an array, or what an array has it from, where that can be told."""
    owner: Any = x
    while isinstance(owner, np.ndarray) and owner.base is not None:
        base = owner.base
        if not isinstance(base, np.ndarray) and not hasattr(base, "__weakref__"):
            return owner
        owner = base
    return owner
