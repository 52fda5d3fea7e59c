"""`crt` on the GPU: the operands alone decide how a product is made, and the device rarely waits.

Kernels write a record of both operands, by which `schemes.crt` chooses the number of moduli, or
the native product, and `schemes.integers` the fewest INT8 products of unscaled integers. Packing
records all entries, so the right scheme is only known of operands that have been packed:

1. If the last products of a signature (device, shapes, types, layouts) needed the same scheme, the
   next one is enqueued by it at once, by the launches that `prepared` keeps. Otherwise the device
   looks at some rows of both operands, in 5 to 10 µs, and the host reads that record before it
   enqueues the product by the scheme that these rows need. If they need the native product, so do
   the operands, and nothing is packed.
2. The host reads the record of all entries while the device multiplies. If they need another
   scheme, the product is made again. After packing, the device itself judges whether the moduli
   are enough; if not, the GEMM, by far the longest step, returns at once.
3. If the last products were native, the host enqueues the native product before it reads the
   record; the device looks at all rows if some rows did not show the need of earlier products.

So earlier products change when the launches of a product are enqueued, and never its bits. In a
CUDA graph, where the host cannot read records, products are native.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mixpert_py.runtime.gpu.gemm import BEST, UNGATED, KernelChoice
from mixpert_py.runtime.gpu.guard import GENERAL, HERMITIAN, look_at_hermitian, may_be_hermitian
from mixpert_py.runtime.kernels.recording import HOST, Recording, Stream, allocate, clear
from mixpert_py.runtime.packing.operand import DevicePacked, Operand
from mixpert_py.runtime.packing.residues import judge, look
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import BYTE, FEWEST, RECORD, Rows, moduli_for
from mixpert_py.runtime.schemes.integers import Bounds, Integers, is_exact, scheme_for

STEADY, MAX_STEADY = 1, 64
SAMPLED_ROWS, ALL_ROWS = 128, 1 << 62  # of each operand; a look reads no more
WORD: Final = 2 * RECORD  # offset in bytes of the device's judgement, after both records
BYTES: Final = WORD + 4
CONJUGATE = KernelChoice(hermitian=True)


class Findings:
    """The records of both operands in page-locked memory of the host, at `address`, and an event of
    the current device: once it has happened, the records are there.

    is_complex: whether operands are complex. Such operands are never treated as integers, not even
    zeros, whose records do not show that they are complex.
    """

    is_complex = False

    def __init__(self) -> None:
        import cupy

        host = cupy.cuda.alloc_pinned_memory(2 * RECORD)
        self._numbers = np.frombuffer(host, np.float64, 2 * RECORD // 8)
        self.address = self._numbers.ctypes.data
        self._event = cupy.cuda.Event(disable_timing=True)
        self._bounds: tuple[Bounds | None, Bounds | None] = None, None

    def follow(self, stream: int) -> None:
        """Record the event: the records are there once all work on the stream so far is done."""
        import cupy

        cupy.cuda.runtime.eventRecord(self._event.ptr, stream)

    def scheme(self, k: int, made: Scheme | None = None) -> Scheme | None:
        """The scheme that is right for the recorded entries; None: the native product. Waits.

        made: the scheme by which the product was enqueued. If that is one of integers, and exact
        for these, it is returned even if another scheme needs fewer INT8 products.
        """
        self._event.synchronize()
        left, right = self._numbers.reshape(2, -1).tolist()
        first = None if self.is_complex else Bounds.of(left[4:])
        bounds = self._bounds = first, first and Bounds.of(right[4:])
        if made is not None and isinstance(made.left, Integers) and is_exact(made, *bounds, k):
            return made
        count = moduli_for(Rows.of(left), Rows.of(right))
        needed = None if count is None else emulation_of(f"crt{count}")
        is_right = needed is not None and needed is made
        return needed if is_right else scheme_for(*bounds, k) or needed

    def quickest(self, k: int, made: Scheme) -> Scheme:
        """The right scheme with the fewest products. made: what `scheme` has just returned."""
        return scheme_for(*self._bounds, k) or made


def findings_from(idle: list[Findings], *, is_complex: bool) -> Findings:
    """Idle findings of the current device, or new ones. The caller appends them to `idle`
    after it has waited for them.
    """
    try:
        found = idle.pop()
    except IndexError:
        found = Findings()
    found.is_complex = is_complex
    return found


class Watch:
    """The records of both operands on the current device, filled on a stream, and copied to the
    host.

    findings: the copy; None on a recording's stream, whose launches take its address from each
    call. ways: kernels and gates of the GEMM, see `gemm.gemm`, of which the device runs one; none
    if the moduli of packed operands do not suffice.
    """

    def __init__(self, stream: Stream, findings: Findings | None) -> None:
        self._stream, self._findings = stream, findings
        self._memory = allocate(BYTES, stream)
        start = self._memory.ptr
        clear(start, BYTES, stream, BYTE)
        self.records, self._word = (start, start + RECORD), start + WORD
        self.ways: tuple[tuple[KernelChoice, tuple[int, int]], ...] = ((BEST, UNGATED),)

    def look(self, a: Operand, b: Operand, *, at_all: bool) -> None:
        """Enqueue a look at some rows of A and some columns of B, or, unless these show that no
        moduli are enough, at all of them.
        """
        records = self._records(is_both=(a.address, a.form) == (b.address, b.form))
        for max_rows in (SAMPLED_ROWS, ALL_ROWS)[: 1 + at_all]:
            look(a, b, records, self._stream, max_rows)
        self._judge(records, FEWEST, GENERAL)

    def packed(self, left: DevicePacked, right: DevicePacked, *, is_one: bool) -> None:
        """Enqueue the judgement, after operands, or parts of them, have been packed; the host will
        see the records. is_one: whether each matrix of A is multiplied by that of B at its place.
        """
        may_mirror = is_one and may_be_hermitian(left, right)
        enough, splitter = HERMITIAN if may_mirror else GENERAL, left.splitter
        self._judge(self._records(is_both=left is right), splitter.count, enough)
        self.ways = ((BEST, (self._word, GENERAL)),)
        if isinstance(splitter, Integers):
            self.ways = ((BEST, UNGATED),)
        elif may_mirror:
            look_at_hermitian(left.operand, right.operand, self._word, self._stream)
            self.ways = ((CONJUGATE, (self._word, HERMITIAN)), *self.ways)

    def _records(self, *, is_both: bool) -> tuple[int, int]:
        """The addresses of the records of A and B: twice the same one if A is B."""
        return self.records[:1] * 2 if is_both else self.records

    def _judge(self, records: tuple[int, int], count: int, enough: int) -> None:
        seen = HOST if self._findings is None else self._findings.address
        judge(count, records, self._word, seen, self._stream, enough)
        if isinstance(self._stream, Recording):
            self._stream.mark = len(self._stream.steps)
        elif self._findings is not None:
            self._findings.follow(self._stream)


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

    @property
    def expected(self) -> Scheme | None:
        """The scheme by which the next product is attempted at once; None: by none."""
        return self.scheme if self.row >= self.steady else None

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
