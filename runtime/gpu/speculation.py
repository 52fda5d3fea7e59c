"""`crt` on the GPU: the product is enqueued before the host knows how many moduli it needs.

The packing kernels write a record of the operands, by which `schemes.crt` chooses the number of
moduli. The record is copied to the host. The GEMM, by far the longest step, is enqueued at once,
with the number of moduli that the last product of this signature (device, shapes, types) needed.
The host reads the record while the device multiplies. So the device never waits, and the host waits
only until both operands are packed. If the record asks for more moduli, the product is made again;
if it asks for too many, the caller makes the product natively. The first product of a signature,
and a product after a native one, may well be such a product: then the host reads the record before
it enqueues the GEMM, and the device waits for about 20 µs.

If both operands hold integers, the next product of this signature begins with the fewest INT8
products of unscaled entries that are exact (`schemes.integers`). Packing then reads each operand
once, and its record shows whether that was right.

The record of an operand that was packed in advance is known. In a CUDA graph the host cannot read
records. There the device itself lets `repair` make the product in FP64 if the moduli are too few,
each time that the graph runs. That is slower than the native product, so products whose last
operands were native or integers stay native in a graph.

After a product that was native because of its operands, the next MIN_UNSEEN products of the
signature are native without packing. This number doubles with each such product, up to MAX_UNSEEN.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Final

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

# Packing in vain costs a product that becomes native a third of its time.
MIN_UNSEEN, MAX_UNSEEN = 16, 64
MISTAKES: Final = 3  # wrong expectations of integers, after which a signature expects none


class Records:
    """The records of both operands on the current device, filled on the current stream."""

    def __init__(self, xp: ModuleType) -> None:
        self._stream = xp.cuda.get_current_stream()
        self._memory = allocate(2 * RECORD, self._stream.ptr)
        self._memory.memset_async(BYTE, 2 * RECORD, self._stream)

    @property
    def records(self) -> tuple[int, int]:
        """The addresses of the records of A and of B, on the device."""
        return self._memory.ptr, self._memory.ptr + RECORD


class Guarded(Records):
    """The device's own decision, in a CUDA graph: whether this number of moduli suffices."""

    def __init__(self, xp: ModuleType, count: int) -> None:
        super().__init__(xp)
        self._least = least_density(count)

    def packed(self, now: DevicePacked, *, is_both: bool) -> None:
        """Enqueue the decision. now: an operand that was packed for this product alone. is_both:
        whether it is both operands.
        """
        records = self.records[:1] * 2 if is_both else self.records
        leave(now, records, self._least, self._stream.ptr)


class UnfitError(Exception):
    """Operands need more moduli than the product was to use, so it was not made."""


class Watch(Records):
    """The records, and their copy to the host.

    most: the number of moduli that the product may need at most, else it is not made; None: the
    product is made before the record is read.
    """

    def __init__(self, xp: ModuleType, most: int | None = None) -> None:
        super().__init__(xp)
        self._most, self._is_both = most, False
        self._host = xp.cuda.alloc_pinned_memory(2 * RECORD)
        self._seen = np.frombuffer(self._host, np.float64, 2 * RECORD // 8)
        self._seen[:] = NOTHING  # the record of an operand without entries, which is not packed
        self._event = xp.cuda.Event(disable_timing=True)

    def packed(self, now: DevicePacked, *, is_both: bool) -> None:
        """Enqueue the copy of the records, after operands, or a part of them, have been packed.
        is_both: as of `Guarded`.

        Raises UnfitError if the product would need more than `most` moduli.
        """
        self._is_both = is_both
        self._memory.copy_to_host_async(self._host.ptr, 2 * RECORD, self._stream)
        self._event.record(self._stream)
        if self._most is not None and (self.moduli() or MAX_UNSEEN) > self._most:
            raise UnfitError

    def moduli(self) -> int | None:
        """The number of moduli needed, see `moduli_for`. Waits until the operands are packed."""
        left, right = self._records()
        return moduli_for(Rows.of(left), Rows.of(right))

    def integers(self, k: int) -> Scheme | None:
        """The scheme that multiplies both as integers, see `integers.scheme_for`. Waits."""
        left, right = self._records()
        return scheme_for(Bounds.of(left[4:]), Bounds.of(right[4:]), k)

    def is_exact(self, made: Scheme, k: int) -> bool:
        """Whether a scheme for integers made their product exactly. Waits."""
        left, right = (Bounds.of(record[4:]) for record in self._records())
        return left is not None and right is not None and is_exact(made, left, right, k)

    def _records(self) -> tuple[list[float], list[float]]:
        self._event.synchronize()
        left, right = self._seen.reshape(2, -1).tolist()
        return left, left if self._is_both else right


@dataclass(slots=True)
class Outlook:
    """How the next product of a signature is made, judged by the needs of earlier ones.

    count: the number of moduli to begin with. is_known: whether some number of moduli sufficed for
    the last operands. integers: the scheme to begin with instead, if the last operands were
    integers. mistakes: how often that was wrong. unseen: the number of next products that are
    native without packing. failures: the number of products in a row that no moduli sufficed for.
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
            self.unseen = min(MIN_UNSEEN << self.failures - 1, MAX_UNSEEN)
        else:
            self.count, self.failures = needed, 0

    def learn_integers(self, found: Scheme | None) -> None:
        """Record the scheme by which a product of integers could have been made."""
        if self.integers is not None and found is None:
            self.mistakes += 1
        self.integers = found if self.mistakes < MISTAKES else None
        if found is not None:
            self.unseen = self.failures = 0
