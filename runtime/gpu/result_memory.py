"""Reuses the memory of NumPy results that come from a device.

A fresh page costs the system more than writing to it, and all processes share the memory's speed.
Memory of a large result is therefore kept when nobody uses the result any more, for the next one of
its size. When it is used again it is page-locked, and the device writes to it directly. Kept and
locked memory is a small share of the machine's.
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

from mixpert_py.runtime.request import Array

LEAST_BYTES = 1 << 24  # smaller ones cost little, and many programs make them by the thousand
SHARE = 1 / 16  # of the memory, each process
ROOM = 1.25  # times what is asked for, at most

PORTABLE = 1  # cudaHostRegisterPortable: for every device of the process
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(eq=False, slots=True)
class Block:
    """A block of memory. locked: whether it is page-locked; None if that was not tried."""

    memory: Array
    runtime: Any
    locked: bool | None = None

    def lock(self) -> None:
        """Page-lock the block if possible."""
        if self.locked is None and locked_bytes() + self.memory.nbytes <= limit():
            self.locked = True  # first: whatever interrupts, what is locked is not unmapped
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
    """The claim of an array and its views on a block, until the last of them is gone."""

    def __init__(self, block: Block, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.block = block
        array = block.memory[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        self.__array_interface__ = array.__array_interface__
        # Not at the end of the process, when CUDA has ended.
        finalize(self, _take_back, block).atexit = False


# The longest unused first. Whoever looks through takes a copy, in one step: as soon as anything is
# allocated, garbage may be collected, and a block come back.
_idle: deque[Block] = deque()
_locked: list[Block] = []


def empty(xp: ModuleType, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array as from np.empty.

    A large array uses earlier memory if there is some. It does not own this memory, so it cannot be
    resized in place.
    """
    size = prod(shape) * dtype.itemsize
    if not LEAST_BYTES <= size <= limit():
        return np.empty(shape, dtype)
    block = _fitting(size)
    if block is None:
        block = Block(np.empty(size, np.uint8), xp.cuda.runtime)
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


def _fitting(size: int) -> Block | None:
    """Take the smallest idle block that is large enough, and not much larger."""
    fits = [block for block in _idle.copy() if size <= block.memory.nbytes <= ROOM * size]
    for block in sorted(fits, key=lambda block: block.memory.nbytes):
        with suppress(ValueError):  # another thread has taken it
            _idle.remove(block)
            return block
    return None


def _take_back(block: Block) -> None:
    """Return a block. Any thread may run this wherever it frees anything, so it takes no lock."""
    _idle.append(block)
    while sum(block.memory.nbytes for block in _idle.copy()) > limit():
        try:
            _idle.popleft().free()
        except IndexError:
            return
