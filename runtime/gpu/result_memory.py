"""Reuses the memory of NumPy results that come from a device.

A fresh page costs the system more time than writing to it. Memory of a large result is therefore
kept when the program drops the result, for the next result of that size. At its second use it is
page-locked, so that the device writes to it directly. The kept and locked memory of a process is at
most a small share of the machine's memory.
"""

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import finalize

import numpy as np

from mixpert_py.runtime.arrays import Array

LEAST_BYTES = 1 << 24  # smaller results cost little, and some programs make thousands of them
SHARE = 1 / 16  # of the machine's memory, for each process
ROOM = 1.25  # size of a reused block, relative to the result, at most

PORTABLE = 1  # cudaHostRegisterPortable: for every device of the process
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(eq=False, slots=True)
class ResultBlock:
    """A block of memory. locked: whether it is page-locked; None if that was not tried."""

    memory: Array
    runtime: Any
    locked: bool | None = None

    def lock(self) -> None:
        """Page-lock the block if possible."""
        if self.locked is None and locked_bytes() + self.memory.nbytes <= limit():
            self.locked = True  # before the call: an interrupt must not free locked memory
            _locked.append(self)
            try:
                self.runtime.hostRegister(self.memory.ctypes.data, self.memory.nbytes, PORTABLE)
            except self.runtime.CUDARuntimeError:
                self.locked = False
                _locked.remove(self)

    def free(self) -> None:
        """Unlock the block. If that fails it is kept, because memory reused at its address would
        seem locked.
        """
        if self.locked:
            with suppress(self.runtime.CUDARuntimeError):
                self.runtime.hostUnregister(self.memory.ctypes.data)
                _locked.remove(self)


class Lease:
    """Owner of a block, as the base of an array and its views; returns it when all are gone."""

    def __init__(self, block: ResultBlock, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.block = block
        array = block.memory[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        self.__array_interface__ = array.__array_interface__
        # Not at the end of the process, when CUDA has ended.
        finalize(self, _take_back, block).atexit = False


# The longest unused block is first. Loops go over a copy, which is made in one step: any allocation
# may collect garbage, and so return a block to this list.
_idle: deque[ResultBlock] = deque()
_locked: list[ResultBlock] = []


def empty(xp: ModuleType, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array as from np.empty. A large one reuses an idle block if one fits.

    A large array does not own its memory, so it cannot be resized in place.
    """
    size = prod(shape) * dtype.itemsize
    if not LEAST_BYTES <= size <= limit():
        return np.empty(shape, dtype)
    block = _fitting(size)
    if block is None:
        block = ResultBlock(np.empty(size, np.uint8), xp.cuda.runtime)
    else:
        block.lock()
    return np.asarray(Lease(block, shape, dtype))


def is_locked(x: Array) -> bool:
    """Whether all of x is memory that this module has page-locked."""
    owner: Any = x
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, Lease) and bool(owner.block.locked)


def locked_bytes() -> int:
    """The number of bytes that are page-locked now."""
    return sum(block.memory.nbytes for block in _locked.copy())


@cache
def limit() -> int:
    """The maximum of kept and of page-locked bytes: a share of the available memory."""
    if not hasattr(os, "sysconf"):  # nobody knows
        return 0
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            found.append(int(Path(path).read_text()))
    return int(min(found) * SHARE)


def _fitting(size: int) -> ResultBlock | None:
    """Take the smallest idle block that is large enough, and not much larger."""
    fits = [block for block in _idle.copy() if size <= block.memory.nbytes <= ROOM * size]
    for block in sorted(fits, key=lambda block: block.memory.nbytes):
        with suppress(ValueError):  # another thread has taken it
            _idle.remove(block)
            return block
    return None


def _take_back(block: ResultBlock) -> None:
    """Make a block idle. Garbage collection may call this in any thread, so it takes no lock."""
    _idle.append(block)
    while sum(block.memory.nbytes for block in _idle.copy()) > limit():
        try:
            _idle.popleft().free()
        except IndexError:
            return
