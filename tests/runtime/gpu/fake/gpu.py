"""A GPU that is not there: what it makes, and of what."""

import ctypes
import math
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.complex_product import PartFunctions, join, split
from mixpert_py.runtime.gpu import (
    device,
    prepared,
    result_memory,
    slices,
    speculation,
)
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.gemm import BEST, KernelChoice
from mixpert_py.runtime.gpu.guard import GENERAL, HERMITIAN, Guard
from mixpert_py.runtime.kernels.tiny_block import EDGE
from mixpert_py.runtime.packing import Operand, readers
from mixpert_py.runtime.packing.operand import layout
from mixpert_py.runtime.reference.residues import bounds_of, rows_of
from mixpert_py.runtime.schemes.crt import FEWEST, RECORD, Rows, density, least_density
from mixpert_py.runtime.schemes.integers import ABOVE, Integers
from mixpert_py.runtime.worth import Dims, Figures
from tests.runtime.gpu.fake.array import ndarray, wrapped
from tests.runtime.gpu.fake.modules import cupy_of
from tests.runtime.gpu.fake.product import (
    FakePacked,
    add_what_left,
    entries,
    matrices,
    slices_product,
)
from tests.runtime.gpu.fake.stream import (
    CUDARuntimeError,
    Current,
    Memory,
    OutOfMemoryError,
    Stream,
)
from tests.runtime.operands import chained


class Block:
    """Memory of the device, as an allocation."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.ptr = self.bytes.ctypes.data


def record_rows(
    x: Operand, address: int, *, bounds_only: bool = False, most: int = 1 << 30
) -> None:
    """Lower a record of `crt` to what is found in an operand, or in so many of its rows."""
    rows = entries(x).reshape(-1, x.k)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)]
    if not rows.any():  # of zeros, real or complex, kernels record nothing
        return
    with np.errstate(all="ignore"):
        bounds = bounds_of(rows)
        found = (1.0,) * 4 if bounds_only else rows_of(rows)
    ends = (0.0, 0.0) if bounds is None else (ABOVE - bounds.largest, ABOVE + bounds.smallest)
    record = np.frombuffer((ctypes.c_byte * RECORD).from_address(address))
    record[:] = np.minimum(record, (*found, *ends))


@dataclass
class FakeGpu:
    """memory: bytes that packed operands may take at a time. refuses: what kernels raise.
    held: bytes of packed operands, and arrays made by name; peak: the most that these have been.

    looks: how many rows of operands of `crt` were looked at before. packs: schemes by which both
    operands were packed. launches: (batch, m, n) of every product made; tiny: of those in FP32.
    mirrored: Hermitian matrices of which half was made. freed: how often the memory
    pool was emptied. locked: address → bytes of memory of the host that
    is page-locked.
    """

    name: str = "NVIDIA H200"
    capability: tuple[int, int] = (9, 0)
    count: int = 1
    error: CUDARuntimeError | None = None
    driver: int = 13000
    memory: float = float("inf")
    refuses: Exception | None = None
    lowered: bool = False
    looks: list[int] = field(default_factory=list)
    packs: list[str] = field(default_factory=list)
    launches: list[tuple[int, int, int]] = field(default_factory=list)
    mirrored: int = 0
    tiny: list[tuple[int, int, int]] = field(default_factory=list)
    freed: int = 0
    held: int = 0
    peak: int = 0
    locked: dict[int, int] = field(default_factory=dict)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Put it in the place of CuPy; returns that."""
        cupy = cupy_of(self)
        monkeypatch.setattr(Current, "streams", {})
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(device, "may_be_here", lambda: True)
        device._find.cache_clear()
        monkeypatch.setattr(readers, "has_clusters", lambda number: False)

        monkeypatch.setattr(device, "_states", {})
        monkeypatch.setattr(result_memory, "_idle", deque())
        monkeypatch.setattr(result_memory, "_locked", [])
        monkeypatch.setattr(worth, "MIN_K", 1)  # products of tests are small
        monkeypatch.setattr(worth, "SMALL_BYTES", 0)
        monkeypatch.setattr(worth, "THIN", 0)
        monkeypatch.setattr(worth, "SMALL_ELEMENTS", 0)
        kernels = slices.ProductSteps(
            cupy,
            self.pack,
            self.pack_one,
            self.gemm,
            self.repair,
            lambda _: PartFunctions(
                cupy, wrapped(split), lambda products, out: join(products.x, out.x)
            ),
            self.multiply_tiny,
            self.guard,
        )
        monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: kernels)
        monkeypatch.setattr(prepared, "prepare", lambda *_, **__: Unprepared())
        monkeypatch.setattr(speculation, "allocate", lambda size, stream: Block(size))
        monkeypatch.setattr(
            speculation, "clear", lambda at, size, stream, value: ctypes.memset(at, value, size)
        )
        monkeypatch.setattr(speculation, "look", self.look)
        monkeypatch.setattr(speculation, "judge", self.judge)
        monkeypatch.setattr(speculation, "look_at_hermitian", self.look_at_hermitian)
        return cupy

    def asarray(self, x: Any) -> ndarray:
        return self._charged(np.array(x))

    def empty(self, shape: Any, dtype: Any) -> ndarray:
        return self._charged(np.full(shape, 7, dtype))

    def _charged(self, x: Any) -> ndarray:
        result = ndarray(x)
        result.memory = Memory(self, x.nbytes)
        return result

    def free_all_blocks(self) -> None:
        self.freed += 1

    def lock(self, address: int, size: int, flags: int) -> None:
        assert flags == 1
        assert address not in self.locked
        self.locked[address] = size

    def unlock(self, address: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        del self.locked[address]

    def pack(
        self,
        a: Operand,
        b: Operand,
        scheme: Any,
        room_for: Any = None,
        gate: Any = None,
        records: tuple[int, int] = (0, 0),
        **given: Any,
    ) -> Any:
        assert room_for is None or gate is None
        if room_for is not None:
            packed = self.pack(a, b, scheme, **given)
            more = needed(room_for, packed) - needed(scheme, packed)
            left, right = packed
            return left._replace(memory=(left.memory, Memory(self, max(more, 0)))), right
        result = "float64" if "float64" in (a.memory, b.memory) else "float32"
        self.packs.append(scheme.name)
        for x, splitter, record in zip((a, b), (scheme.left, scheme.right), records, strict=True):
            assert not (isinstance(splitter, Integers) and x.memory.startswith("complex"))
            if record:
                record_rows(x, record, bounds_only=isinstance(splitter, Integers))
        room = gate and gate.memory
        return tuple(
            self.pack_one(x, scheme, side, result, room, within=self.memory / 2, **given)
            for x, side in ((a, "left"), (b, "right"))
        )

    def pack_one(
        self,
        x: Operand,
        scheme: Any,
        which: str,
        result: str,
        memory: Any = None,
        *,
        stream: int = 0,
        record: int = 0,
        within: float | None = None,
    ) -> FakePacked:
        assert stream == Stream.here.ptr
        if self.refuses is not None:
            raise self.refuses
        splitter = scheme.left if which == "left" else scheme.right
        length = scheme.lengths(x.k)[1]
        place = layout(splitter, x.batch, x.rows, x.k, length)
        if place.bytes > (self.memory if within is None else within):
            raise OutOfMemoryError(place.bytes, self.held)
        addresses = 1 << 20, 1 << 21, 1 << 22, 0
        packed = FakePacked(x, splitter, place, *addresses, scheme)
        return packed._replace(origin=packed, memory=memory or Memory(self, place.bytes))

    def look(
        self, a: Operand, b: Operand, records: tuple[int, int], stream: int, most: int
    ) -> None:
        assert stream == Stream.here.ptr
        self.looks.append(most)
        for x, record in zip((a, b), records, strict=True):
            record_rows(x, record, most=most)

    def judge(
        self,
        count: int,
        records: tuple[int, int],
        answer: int,
        seen: int,
        stream: int,
        enough: int,
    ) -> None:
        assert stream == Stream.here.ptr
        for place, record in enumerate(records):
            ctypes.memmove(seen + place * RECORD, record, RECORD)
        left, right = (
            Rows.of(np.frombuffer((ctypes.c_byte * RECORD).from_address(one)).tolist())
            for one in records
        )
        is_enough = density(left, right) >= least_density(max(count, FEWEST))
        ctypes.c_int32.from_address(answer).value = enough * is_enough

    def look_at_hermitian(self, a: Operand, b: Operand, word: int, stream: int) -> None:
        assert stream == Stream.here.ptr
        answer = ctypes.c_int32.from_address(word)
        if answer.value == HERMITIAN and (entries(a).conj() != entries(b)).any():
            answer.value = GENERAL

    def multiply_tiny(self, a: Operand, b: Operand, out: Any, *, stream: int) -> None:
        """Of as many matrices as `out`, or of one that all share."""
        assert stream == Stream.here.ptr
        if self.refuses is not None:
            raise self.refuses
        assert a.memory == b.memory == out.dtype.name == "float32"
        assert max(a.rows, a.k, b.rows) <= EDGE
        assert {a.batch, b.batch} <= {1, len(out)}
        self.tiny.append(out.shape)
        out.x[...] = chained(a.owner.x, b.owner.x)

    def gemm(
        self,
        left: FakePacked,
        right: FakePacked,
        scheme: Any,
        out: Any,
        *,
        stream: int,
        gate: tuple[int, int] = (0, 0),
        choice: KernelChoice = BEST,
    ) -> None:
        """The slices' product, which is 0 in rows and columns with NaN or Inf."""
        assert stream == Stream.here.ptr
        assert left.scheme == right.scheme == scheme
        left.check()
        right.check()
        assert out.strides[-1] == out.itemsize
        address, wanted = gate
        if address and ctypes.c_int32.from_address(address).value != wanted:
            return
        self.launches.append(out.shape if out.ndim == 3 else (1, *out.shape))
        for a, b, value in matrices(left, right, out):
            value[...] = slices_product(a, b, scheme, value.dtype)
            if choice.hermitian:
                self.mirrored += 1
                value[...] = np.tril(value) + np.tril(value.conj(), -1).T

    def guard(self, left: FakePacked, right: FakePacked, stream: int) -> Any:
        """One that tells of more than a quarter of outliers."""
        assert stream == Stream.here.ptr
        shares = [((x.view("flags").x & 2) > 0).mean() for x in (left, right)]
        return ndarray(np.array([max(shares) > 0.25], np.int32)).data

    def repair(
        self,
        left: FakePacked,
        right: FakePacked,
        out: Any,
        *,
        stream: int,
        guard: Guard | None = None,
    ) -> None:
        """Adds what left the slices, from the operands as they are then."""
        assert stream == Stream.here.ptr
        if guard is not None and ctypes.c_int32.from_address(guard.word.ptr).value:
            left, right = guard.left, guard.right
        for a, b, value in matrices(left, right, out):
            add_what_left(value, a, b, left.scheme)


class Unprepared:
    """Launches for no layout: each product is made directly."""

    def add(self, *_: Any) -> bool:
        return False

    def __call__(self, *_: Any) -> None: ...


def needed(scheme: Any, packed: tuple[FakePacked, FakePacked]) -> int:
    """Bytes of these operands, packed by a scheme."""
    forms = [x.operand.form for x in packed]
    length = scheme.lengths(forms[0].k)[1]
    splitters = scheme.left, scheme.right
    return sum(
        layout(splitter, x.batch, x.rows, x.k, length).bytes
        for splitter, x in zip(splitters, forms, strict=True)
    )


def pays_from(
    volume: float,
    thickness: float = 0.0,
    staging: float = 8e9,
    latency: float = 0.0,
    host: float = 1e12,
) -> Figures:
    """Figures by which products of at least that size are faster, and no thinner."""

    def times(
        scheme: str, a: Dims, b: Dims, wide: bool, packed: int, products: int = 1
    ) -> tuple[float, float]:
        m, k, n = math.prod(a[:-1]), a[-1], b[-1] if len(b) > 1 else 1
        area = m * k + math.prod(b) + m * n - packed
        is_faster = m * k * n >= volume and m * k * n >= thickness * area
        return (0.0 if is_faster else math.inf), 1.0

    return Figures(staging, latency, host, times)
