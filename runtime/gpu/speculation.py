"""`crt` on the GPU: the product is made before it is known how many moduli the operands need.

Packing records what `schemes.crt` decides by. The record is copied to the host behind it, and the
GEMM, the longest part by far, is enqueued at once: the host looks at the record while the device
multiplies. So the device never waits, and the host waits until both operands are packed. Where more
moduli are needed, the product is made anew; where they are too many, the caller makes it natively.
The first product of a signature, and those after one that was native, may well be such: there the
host looks before the GEMM is enqueued, which the device waits for, some 20 µs.

Where both operands hold integers, the next product of the same shapes and types begins with the
fewest INT8 products that are exact, of entries as they are (`schemes.integers`). Packing then reads
an operand once; what it records shows whether that was right.

An operand that is packed beforehand has been looked at then. In CUDA graphs the host cannot look:
there the device itself leaves the product to FP64's kernel of `repair` where moduli are too few,
each time that the graph runs. That is slower than the native product; so operands that were
native, or integers, when they were last seen, are not multiplied so.

A signature (device, shapes, types) begins with as many moduli as its last product needed. After one
that was native for its operands the next ones are so unseen, LEAST, twice as many each time, and
MOST at most.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from mixpert_py.runtime.kernels.recording import allocate
from mixpert_py.runtime.packing import DevicePacked
from mixpert_py.runtime.packing.residues import leave
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.crt import (
    BYTE,
    FEWEST,
    NOTHING,
    RECORD,
    Rows,
    least_density,
    moduli_for,
)
from mixpert_py.runtime.schemes.integers import Bounds, is_exact, scheme_for

# Products that are native unseen, after one that had to be: packing costs it a third of its time.
LEAST, MOST = 16, 64
MISTAKES: Final = 3  # products of what was no integers, after which a signature expects none


class Record(NamedTuple):
    """The findings about an operand that is packed beforehand: on the device, and as numbers."""

    memory: Any
    numbers: list[float]

    @property
    def rows(self) -> Rows:
        return Rows.of(self.numbers)


Known = tuple[Record | None, Record | None]  # of A and B, where they are packed beforehand
NEITHER: Final[Known] = None, None


class Records:
    """The records of both operands on the current device, filled on the current stream."""

    def __init__(self, xp: ModuleType, known: Known = NEITHER) -> None:
        self._stream = xp.cuda.get_current_stream()
        self._memory = allocate(2 * RECORD, self._stream.ptr)
        self._memory.memset_async(BYTE, 2 * RECORD, self._stream)
        self._known = known

    @property
    def records(self) -> tuple[int, int]:
        """The addresses of the records of A and of B, on the device."""
        own = self._memory.ptr, self._memory.ptr + RECORD
        left, right = self._known
        return left.memory.ptr if left else own[0], right.memory.ptr if right else own[1]


class Guarded(Records):
    """The device's own decision, in a CUDA graph, about a product by this number of moduli."""

    def __init__(self, xp: ModuleType, known: Known, count: int) -> None:
        super().__init__(xp, known)
        self._least = least_density(count)

    def packed(self, now: DevicePacked) -> None:
        """Enqueue the decision. now: an operand that is packed for this product alone."""
        leave(now, self.records, self._least, self._stream.ptr)


class UnfitError(Exception):
    """Operands need more moduli than the product was to use, so it was not made."""


class Watch(Records):
    """The records on their way to the host.

    most: the moduli by which the product is to be made, if they are known to suffice; None: it is
    made whatever it needs.
    """

    def __init__(self, xp: ModuleType, known: Known = NEITHER, most: int | None = None) -> None:
        super().__init__(xp, known)
        self._most = most
        self._host = xp.cuda.alloc_pinned_memory(2 * RECORD)
        self._seen = np.frombuffer(self._host, np.float64, 2 * RECORD // 8)
        self._seen[:] = NOTHING  # where nothing is packed, as of operands without entries
        self._event = xp.cuda.Event(disable_timing=True)

    def packed(self, now: DevicePacked) -> None:
        """Enqueue the copy of the records, after operands, or a part of them, have been packed.

        Raises UnfitError if the product to follow would need too many moduli.
        """
        self._memory.copy_to_host_async(self._host.ptr, 2 * RECORD, self._stream)
        self._event.record(self._stream)
        if self._most is not None and (self.moduli() or MOST) > self._most:
            raise UnfitError

    def left(self) -> Record:
        """The record of A. Waits until A is packed."""
        return Record(self._memory, self._records()[0])

    def moduli(self) -> int | None:
        """The number of moduli needed, see `moduli_for`. Waits until the operands are packed."""
        left, right = self._records()
        return moduli_for(Rows.of(left), Rows.of(right))

    def integers(self, k: int) -> Scheme | None:
        """The scheme that multiplies them as integers, see `integers.scheme_for`. Waits."""
        left, right = self._records()
        return scheme_for(Bounds.of(left[4:]), Bounds.of(right[4:]), k)

    def is_exact(self, made: Scheme, k: int) -> bool:
        """Whether a scheme for integers made their product exactly. Waits."""
        left, right = (Bounds.of(record[4:]) for record in self._records())
        return left is not None and right is not None and is_exact(made, left, right, k)

    def _records(self) -> tuple[list[float], list[float]]:
        self._event.synchronize()
        own = self._seen.reshape(2, -1).tolist()
        left, right = self._known
        return left.numbers if left else own[0], right.numbers if right else own[1]


@dataclass(slots=True)
class Outlook:
    """How the next product of a signature is made, judged by the needs of earlier ones.

    count: moduli to begin with. is_known: whether the last operands needed no more than there are.
    integers: the scheme to begin with instead, if the last operands were integers. mistakes: how
    often that was wrong. unseen: products to come that are native without a look. failures: in a
    row.
    """

    count: int = FEWEST
    is_known: bool = False
    unseen: int = 0
    failures: int = 0
    integers: Scheme | None = None
    mistakes: int = 0

    def next(self) -> int | None:
        """The number of moduli to begin with; None means natively."""
        if self.unseen:
            self.unseen -= 1
            return None
        return self.count

    def learn(self, needed: int | None) -> None:
        """Record what a product needed."""
        self.is_known = needed is not None
        if needed is None:
            self.failures += 1
            self.unseen = min(LEAST << self.failures - 1, MOST)
        else:
            self.count, self.failures = needed, 0

    def learn_integers(self, found: Scheme | None) -> None:
        """Record the scheme by which a product of integers could have been made."""
        if self.integers is not None and found is None:
            self.mistakes += 1
        self.integers = found if self.mistakes < MISTAKES else None
        if found is not None:
            self.unseen = self.failures = 0
