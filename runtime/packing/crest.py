"""Crest factors of operands on the device, told to the host while the device goes on."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.crest import LINES, mean, stride
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.packing.operand import Form, Operand

KERNELS = "mixpert_py.runtime.packing.crest_kernels"
ROOM = 2 * LINES * 8  # bytes
THREADS = 256


class Place(NamedTuple):
    """Page-locked memory that a kernel writes to, and the event after which it has."""

    memory: Any
    squares: np.ndarray[Any, np.dtype[np.float64]]
    event: Any


# device → places that nobody uses now. `_places` keeps all: one that was abandoned, by an error
# before anybody has waited, must not be given to others while a kernel may still write to it.
_free: dict[int, list[Place]] = {}
_places: list[Place] = []


def crests(a: Operand, b: Operand) -> Callable[[], tuple[float, float]]:
    """Begin to look, on the current stream of the current device, at A by rows and B by columns.

    Returns what waits until that has been done, and gives the mean square of the crest factors of
    either: see `runtime.crest`. To be called once.
    """
    import cupy

    kernel, counts, words = _prepared(a.form, b.form, a.device)
    free = _free.setdefault(a.device, [])
    try:
        place = free.pop()
    except IndexError:
        place = _place(cupy)
    stream = cupy.cuda.get_current_stream()
    values = (a.address, b.address, place.squares.ctypes.data, *words)
    kernel.launch_words(sum(counts), THREADS, values, 0, stream.ptr)
    place.event.record(stream)

    def told() -> tuple[float, float]:
        place.event.synchronize()
        squares = place.squares[: sum(counts)].tolist()
        free.append(place)
        return mean(squares[: counts[0]]), mean(squares[counts[0] :])

    return told


def _place(cupy: Any) -> Place:
    memory = cupy.cuda.alloc_pinned_memory(ROOM)
    squares = np.frombuffer(memory, np.float64, 2 * LINES)
    place = Place(memory, squares, cupy.cuda.Event(disable_timing=True))
    _places.append(place)
    return place


@lru_cache(4096)
def _prepared(a: Form, b: Form, device: int) -> tuple[Kernel, tuple[int, int], tuple[int, ...]]:
    """On this device, which is the current one."""
    counts, integers = words(a, b)
    return numba_kernel(KERNELS, "crest_kernel", (a.memory, b.memory)), counts, integers


def words(a: Form, b: Form) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Rows of each that are looked at, and the integers that the kernel takes."""
    one, other = (min(x.batch * x.rows, LINES) for x in (a, b))
    step = stride(a.k)
    its = [(x.batch * x.rows, x.rows, x.batch_stride, x.row_stride, x.k_stride) for x in (a, b)]
    return (one, other), (one, other, -(-a.k // step), step, *its[0], *its[1])
