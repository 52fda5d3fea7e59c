"""`crt` on the GPU: the operands alone decide how a product is made, and the device rarely waits.

Kernels write a record of both operands, by which `schemes.crt` chooses the number of moduli, or
the native product, and `schemes.integers` the fewest INT8 products of unscaled integers. Packing
records all entries, so the right scheme is only known of operands that have been packed:

1. If the last products of a signature (device, shapes, types, layouts) needed the same scheme, the
   next one is enqueued by it at once. Otherwise the device looks at some rows of both operands, in
   5 to 10 µs, and the host reads that record before it enqueues the product by the scheme that
   these rows need. If they need the native product, so do the operands, and nothing is packed.
2. The host reads the record of all entries while the device multiplies. If they need another
   scheme, the product is made again. After packing, the device itself judges whether the moduli
   are enough; if not, the GEMM, by far the longest step, returns at once.
3. If the last products were native, the host enqueues the native product before it reads the
   record; the device looks at all rows if some rows did not show the need of earlier products.

So earlier products change when the launches of a product are enqueued, and never its bits. In a
CUDA graph, where the host cannot read records, products are native.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Final

import numpy as np

from mixpert_py.runtime.gpu.gemm import BEST, UNGATED, KernelChoice
from mixpert_py.runtime.gpu.guard import (
    GENERAL,
    HERMITIAN,
    look_at_hermitian,
    may_be_hermitian,
)
from mixpert_py.runtime.kernels.recording import allocate
from mixpert_py.runtime.packing import DevicePacked, Operand
from mixpert_py.runtime.packing.residues import judge, look
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import BYTE, NOTHING, RECORD, Rows, moduli_for
from mixpert_py.runtime.schemes.integers import Bounds, Integers, is_exact, scheme_for

STEADY, MAX_STEADY = 4, 64
SAMPLED_ROWS, ALL_ROWS = 128, 1 << 62  # of each operand, that a look reads at most
WORD: Final = 2 * RECORD  # where the device's judgement lies behind both records
BYTES: Final = WORD + 4
CONJUGATE = KernelChoice(hermitian=True)

BothBounds = tuple[Bounds | None, Bounds | None]


class Watch:
    """The records of both operands on the current device, filled on the current stream, and their
    copy on the host.

    ways: kernels and gates of the GEMM, see `gemm.gemm`, of which the device runs one; none if the
    moduli of packed operands do not suffice. is_complex: whether operands are. Then they are never
    taken for integers, also zeros, of which kernels record nothing that says so.
    """

    def __init__(self, xp: ModuleType, *, is_complex: bool) -> None:
        self._is_complex = is_complex
        self._stream = xp.cuda.get_current_stream()
        self._memory = allocate(BYTES, self._stream.ptr)
        self._memory.memset_async(BYTE, BYTES, self._stream)
        self.records = self._memory.ptr, self._memory.ptr + RECORD
        self.ways: tuple[tuple[KernelChoice, tuple[int, int]], ...] = ((BEST, UNGATED),)
        self._is_both = False
        host = xp.cuda.alloc_pinned_memory(2 * RECORD)
        self._seen = np.frombuffer(host, np.float64, 2 * RECORD // 8)
        self._seen[:] = NOTHING  # the record of an operand without entries, which is not packed
        self._event = xp.cuda.Event(disable_timing=True)

    def look(self, a: Operand, b: Operand, *, at_all: bool) -> None:
        """Enqueue a look at some rows of A and some columns of B, or, unless these show that no
        moduli are enough, at all of them.
        """
        self._is_both = (a.address, a.form) == (b.address, b.form)
        records = self.records[:1] * 2 if self._is_both else self.records
        for max_rows in (SAMPLED_ROWS, ALL_ROWS)[: 1 + at_all]:
            look(a, b, records, self._stream.ptr, max_rows)
        self._copy()

    def packed(self, left: DevicePacked, right: DevicePacked, *, is_one: bool) -> None:
        """Enqueue the judgement, after operands, or parts of them, have been packed; the host will
        see the records. is_one: whether each matrix of A is multiplied by that of B at its place.
        """
        self._is_both, self.ways = left is right, ((BEST, UNGATED),)
        if isinstance(left.splitter, Integers):
            self._copy()
            return
        word, seen, stream = self._memory.ptr + WORD, self._seen.ctypes.data, self._stream.ptr
        may_mirror = is_one and may_be_hermitian(left, right)
        records = self.records[:1] * 2 if self._is_both else self.records
        judge(left, records, word, seen, stream, HERMITIAN if may_mirror else GENERAL)
        self._event.record(self._stream)
        self.ways = ((BEST, (word, GENERAL)),)
        if may_mirror:
            look_at_hermitian(left.operand, right.operand, word, stream)
            self.ways = ((CONJUGATE, (word, HERMITIAN)), *self.ways)

    def _copy(self) -> None:
        self._memory.copy_to_host_async(self._seen.ctypes.data, 2 * RECORD, self._stream)
        self._event.record(self._stream)

    def scheme(self, k: int, made: Scheme | None = None) -> Scheme | None:
        """The scheme that is right for the recorded entries; None: the native product. Waits.

        made: the scheme by which the product has been made. It is right also for integers that take
        fewer products by another scheme, if its product is exact.
        """
        left, right, bounds = self._records()
        if made is not None and isinstance(made.left, Integers) and is_exact(made, *bounds, k):
            return made
        count = moduli_for(Rows.of(left), Rows.of(right))
        needed = None if count is None else emulation_of(f"crt{count}")
        is_right = needed is not None and needed is made
        return needed if is_right else scheme_for(*bounds, k) or needed

    def quickest(self, k: int, made: Scheme) -> Scheme:
        """The scheme of the fewest products that is right for operands that `made` is right for."""
        return scheme_for(*self._records()[2], k) or made

    def _records(self) -> tuple[list[float], list[float], BothBounds]:
        self._event.synchronize()
        left, right = self._seen.reshape(2, -1).tolist()
        right = left if self._is_both else right
        bounds = (None, None) if self._is_complex else (Bounds.of(left[4:]), Bounds.of(right[4:]))
        return left, right, bounds


@dataclass(slots=True)
class Outlook:
    """The scheme of the last product of a signature, None for a native one.

    row: how many products in a row needed it. steady: after how many the next one is expected to
    need it too; twice as many after a row that was hardly longer. is_shown: whether some rows have
    shown that native products were needed.
    """

    scheme: Scheme | None = None
    row: int = 0
    steady: int = STEADY
    is_shown: bool = True

    @property
    def is_steady(self) -> bool:
        return self.row >= self.steady

    def learn(self, scheme: Scheme | None, *, is_shown: bool = True) -> None:
        """Take over what a product needed. is_shown: whether a look has shown it."""
        self.is_shown = scheme is not None or (self.is_shown and is_shown)
        if scheme is self.scheme:
            self.row += 1
            return
        if self.is_steady:
            is_short = self.row < 4 * self.steady
            self.steady = min(2 * self.steady, MAX_STEADY) if is_short else STEADY
        self.scheme, self.row = scheme, 1
