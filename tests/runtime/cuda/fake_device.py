"""A GPU that is not there: CuPy's names over NumPy, kernels that are the reference backend.

`FakeGpu.install` puts it where the runtime looks. Arrays of it are no NumPy arrays, do not mix with
them, and live on a numbered device; memory can be made short, kernels can be made not to compile.
"""

import ctypes
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin

from mixpert_py.runtime import packing, reference
from mixpert_py.runtime.complex_product import Way, join, split
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import device, several
from mixpert_py.runtime.cuda import product as device_product
from mixpert_py.runtime.cuda.break_even import Dims, Figures
from mixpert_py.runtime.engine import execute
from mixpert_py.runtime.outliers import kept_part, outlier_part
from mixpert_py.runtime.packing import Operand, packed_bytes
from mixpert_py.runtime.packing.layout import Layout, layout
from mixpert_py.runtime.packing.operand import Form


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory's, which cannot be made without sizes."""

    def __init__(self, size: int, total: int) -> None:
        super().__init__(
            f"Out of memory allocating {size} bytes (allocated so far: {total} bytes)."
        )


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime's."""

    def __init__(self, status: int, message: str = "CUDA said no") -> None:
        super().__init__(message)
        self.status = status


class CUDADriverError(RuntimeError):
    """As cupy.cuda.driver's."""


class ndarray(NDArrayOperatorsMixin):  # noqa: N801, it has its original's name
    """A NumPy array that only its own kind may touch."""

    __array_priority__ = 100
    current_device = 0

    def __init__(self, x: Any, number: int | None = None, base: Any = None) -> None:
        self.x, self.base = x, base
        self.number = ndarray.current_device if number is None else number

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.x.shape, "version": 3}

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, np.ndarray) and x.ndim for x in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        out = kwargs.pop("out", ())
        result = getattr(ufunc, method)(
            *map(plain, inputs), **kwargs, **({"out": plain(out)} if out else {})
        )
        return out[0] if out else ndarray(np.asarray(result))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(func)(*args, **kwargs)

    @property
    def data(self) -> "Pointer":
        return Pointer(self.x, self.number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.x, name)
        return wrapped(value) if callable(value) and name != "flags" else value

    def __getitem__(self, key: Any) -> "ndarray":
        base = self if self.base is None else self.base
        return ndarray(np.asarray(self.x[plain(key)]), self.number, base)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.x[key] = plain(value)

    def __len__(self) -> int:
        return len(self.x)

    def __float__(self) -> float:
        return float(self.x)

    def __int__(self) -> int:
        return int(self.x)

    def __bool__(self) -> bool:
        return bool(self.x)

    @property
    def T(self) -> "ndarray":  # noqa: N802
        return ndarray(self.x.T, self.number)

    def get(self, stream: Any = None, out: Any = None, blocking: bool = True) -> Any:
        if out is None:
            return self.x.copy()
        out[...] = self.x
        return out

    def set(self, x: Any, stream: Any = None) -> None:
        assert x.shape == self.x.shape
        assert x.dtype == self.x.dtype
        self.x[...] = x


@dataclass(frozen=True)
class Pointer:
    """Where an array begins. copies: (from, to, bytes) of what went from one device to another."""

    x: Any
    device_id: int
    copies: ClassVar[list[tuple[int, int, int]]] = []

    @property
    def ptr(self) -> int:
        return int(self.x.ctypes.data)

    def copy_from_device_async(self, source: "Pointer", size: int, stream: "Stream") -> None:
        assert size == source.x.nbytes == self.x.nbytes
        assert source.x.flags.c_contiguous
        assert self.x.flags.c_contiguous
        assert stream is Stream.here
        assert stream.number == ndarray.current_device
        assert stream.waited, "what is copied need not be there yet"
        self.copies.append((source.device_id, self.device_id, size))
        ctypes.memmove(self.ptr, source.ptr, size)


def plain(x: Any) -> Any:
    """NumPy's array in place of ours, in a tuple too."""
    if isinstance(x, tuple):
        return tuple(map(plain, x))
    return x.x if isinstance(x, ndarray) else x


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function that takes and gives our arrays."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
        return ndarray(np.asarray(result)) if isinstance(result, (np.ndarray, np.generic)) else None

    return call


class Stream:
    """A stream on which everything has happened already."""

    here: "Stream"

    def __init__(self, ptr: int = 0, number: int = 0, non_blocking: bool = False) -> None:
        self.ptr = ptr or id(self) * non_blocking
        self.number = number or ndarray.current_device
        self.capturing = False
        self.waits = 0
        self.waited: list[Stream] = []

    def __enter__(self) -> "Stream":
        self.outer, Stream.here = Stream.here, self
        return self

    def __exit__(self, *error: object) -> None:
        Stream.here = self.outer

    def synchronize(self) -> None:
        assert not self.capturing
        self.waits += 1

    def is_capturing(self) -> bool:
        return self.capturing

    def record(self) -> "Stream":
        return self

    def wait_event(self, event: "Stream") -> None:
        self.waited.append(event)


Stream.here = Stream()


class Event:
    """The moment at which it was recorded: everything before it has happened."""

    def record(self) -> None:
        self.at = perf_counter()


def get_elapsed_time(begin: Event, end: Event) -> float:
    """Milliseconds, as cupy.cuda's."""
    return 1000 * (end.at - begin.at)


class FakePacked(NamedTuple):
    """A DevicePacked that is split when somebody looks. `origin`: the packed stack it is of."""

    operand: Operand
    splitter: Any
    layout: Layout
    slices: int
    scales: int
    flags: int
    outliers: int
    norms: int
    scheme: Any
    rule: Any
    origin: Any = None
    memory: Any = None

    def array(self) -> Any:
        """(batch, rows, k) in the operand's own memory."""
        address, it, item = self.operand.address, self.operand.form, self.operand.form.itemsize
        strides = it.batch_stride * item, it.row_stride * item, it.k_stride * item
        low = sum(min(s * (n - 1), 0) for s, n in zip(strides, self._shape, strict=True))
        high = sum(max(s * (n - 1), 0) for s, n in zip(strides, self._shape, strict=True)) + item
        memory = (ctypes.c_byte * (high - low)).from_address(address + low)
        return np.ndarray(self._shape, it.memory, memory, -low, strides)

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.operand.batch, self.operand.rows, self.operand.k

    def check(self) -> None:
        """Whether what the kernels would read belongs to this part of the stack."""
        it, whole = self.operand, self.origin
        apart = it.form.batch_stride * it.form.itemsize
        index = (it.address - whole.operand.address) // apart if apart else 0
        place = whole.layout
        each = place.steps * place.count * place.rows8 * 64
        assert self.slices - whole.slices == index * each
        assert self.scales - whole.scales == index * place.blocks * place.rows * 4
        assert self.flags - whole.flags == index * place.rows
        assert self.layout.batch == it.batch
        if whole.norms:
            assert self.norms - whole.norms == index * (2 + place.count) * place.rows * 8

    def view(self, name: str) -> Any:
        assert self.operand.device == ndarray.current_device
        packed = []
        for matrix in self.array():
            with np.errstate(all="ignore"):
                packed.append(reference.pack(matrix, matrix.T, self.scheme, self.rule)[0])
        if name == "norms":
            assert self.norms
            measured = [one.measured for one in packed]
            parts = [np.vstack([one.norm, one.residual, one.slices]) for one in measured]
            return ndarray(np.array(parts))
        if name == "scales":
            parts = [
                (one.exponents.astype(np.int32) - 8) << 9 | np.int32(256 * one.significands)
                for one in packed
            ]
            return ndarray(np.array(parts).swapaxes(-1, -2))
        if name == "flags":
            return ndarray(
                np.array([one.nonfinite + 2 * one.outlier.any(axis=1) for one in packed], np.uint8)
            )
        assert name == "outliers"
        return ndarray(np.array([one.outlier.T for one in packed], np.uint8))


class Names(SimpleNamespace):
    """A module's names; hashable, as modules are."""

    __hash__ = object.__hash__


class Memory:
    """An allocation, for as long as somebody has it."""

    def __init__(self, gpu: "FakeGpu", size: int) -> None:
        self.gpu, self.size = gpu, size
        gpu.held += size
        gpu.peak = max(gpu.peak, gpu.held)

    def __del__(self) -> None:
        self.gpu.held -= self.size


def needs(
    a: Form | None,
    b: Form | None,
    scheme: Any,
    result: str,
    *sizes: int,
    rule: Any = "loss",
    measure: bool = False,
) -> int:
    """As workspace.needs, of a device whose tiles are never shared."""
    forms = tuple(x for x in (a, b) if x is not None)
    which: Any = "both" if len(forms) == 2 else "left" if b is None else "right"
    return packed_bytes.__wrapped__(scheme, which, forms, result, rule, measure, sizes[-1])


@dataclass
class FakeGpu:
    """memory: bytes that packed operands may take at a time. refuses: what kernels raise.
    held: bytes of packed operands, and arrays made by name; peak: the most that these have been.

    has_small: every stack is small. launches: (batch, m, n) of every product made.
    """

    name: str = "NVIDIA H200"
    capability: tuple[int, int] = (9, 0)
    count: int = 1
    error: CUDARuntimeError | None = None
    driver: int = 13000
    memory: float = float("inf")
    refuses: Exception | None = None
    lowered: bool = False
    has_small: bool = False
    launches: list[tuple[int, int, int]] = field(default_factory=list)
    moved: int = 0
    freed: int = 0
    held: int = 0
    peak: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Put it in the place of CuPy; returns that."""
        cupy = self._module()
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(device, "may_be_here", lambda: True)
        device._find.cache_clear()
        monkeypatch.setattr(device_product, "_refused", {})
        monkeypatch.setattr(packing, "has_clusters", lambda number: False)
        several._like.cache_clear()
        several._stream.cache_clear()

        monkeypatch.setattr(cuda_backend, "_repaired", set())
        kernels = cuda_backend.Kernels(
            cupy,
            self.pack,
            self.pack_one,
            self.gemm,
            self.repair,
            self.multiply_if_small,
            Way(cupy, wrapped(split), lambda products, out: join(products.x, out.x)),
            needs,
        )
        monkeypatch.setattr(cuda_backend, "cuda_kernels", lambda: kernels)
        return cupy

    def pack(self, a: Operand, b: Operand, scheme: Any, **given: Any) -> Any:
        result = "float64" if "float64" in (a.memory, b.memory) else "float32"
        return tuple(
            self.pack_one(x, scheme, side, result, within=self.memory / 2, **given)
            for x, side in ((a, "left"), (b, "right"))
        )

    def pack_one(
        self,
        x: Operand,
        scheme: Any,
        which: str,
        result: str,
        *,
        rule: Any = "loss",
        measure: bool = False,
        stream: int = 0,
        within: float | None = None,
    ) -> FakePacked:
        assert stream == Stream.here.ptr
        if self.refuses is not None:
            raise self.refuses
        splitter = scheme.left if which == "left" else scheme.right
        length = scheme.lengths(x.k)[1]
        place = layout(splitter, x.batch, x.rows, x.k, length, measure)
        if place.bytes > (self.memory if within is None else within):
            raise OutOfMemoryError(place.bytes, self.held)
        addresses = 1 << 20, 1 << 21, 1 << 22, 0, (1 << 23) * measure
        packed = FakePacked(x, splitter, place, *addresses, scheme, rule)
        return packed._replace(origin=packed, memory=Memory(self, place.bytes))

    def multiply_if_small(
        self, a: Operand, b: Operand, scheme: Any, out: Any, **given: Any
    ) -> tuple[FakePacked, FakePacked] | None:
        if not self.has_small:
            return None
        packed = self.pack(a, b, scheme, **given)
        self.gemm(*packed, scheme, out, stream=given["stream"])
        return packed

    def gemm(
        self,
        left: FakePacked,
        right: FakePacked,
        scheme: Any,
        out: Any,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        c: Any = None,
        stream: int,
    ) -> None:
        """RN(beta · c + RN(alpha · x)), x an element of the slices' product, which is 0 in rows and
        columns with NaN or Inf.
        """
        assert stream == Stream.here.ptr
        assert left.scheme == right.scheme == scheme
        left.check()
        right.check()
        assert out.strides[-1] == out.itemsize
        assert c is None or (c.shape, c.dtype) == (out.shape, out.dtype)
        assert c is None or c.strides[-1] == c.itemsize
        self.launches.append(out.shape if out.ndim == 3 else (1, *out.shape))
        others = np.zeros(out.shape) if c is None else c.x
        for a, b, value, other in matrices(left, right, out, others):
            found = slices_product(a, b, scheme, left.rule, value.dtype)
            value[...] = multiply_add(beta, other, value.dtype.type(alpha) * found)

    def repair(
        self,
        left: FakePacked,
        right: FakePacked,
        scheme: Any,
        out: Any,
        *,
        alpha: float = 1.0,
        stream: int,
    ) -> None:
        """Adds alpha times what left the slices, from the operands as they are then."""
        assert stream == Stream.here.ptr
        for a, b, value, _ in matrices(left, right, out, out.x):
            add_what_left(value, a, b, scheme, left.rule, alpha)

    def _module(self) -> Any:
        cupy: Any = ModuleType("cupy")
        cupy.__spec__ = SimpleNamespace(name="cupy")
        cupy.ndarray = ndarray
        for name in (
            "abs",
            "where",
            "isfinite",
            "matmul",
            "ascontiguousarray",
            "dot",
            "result_type",
            "take",
        ):
            setattr(cupy, name, wrapped(getattr(np, name)))
        cupy.empty = self._empty
        cupy.asarray = self._asarray
        cupy.broadcast_to = wrapped(np.broadcast_to)
        cupy.may_share_memory = lambda a, b: np.may_share_memory(a.x, b.x)
        cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=self._free)
        cupy.from_dlpack = lambda x: x.lend()
        cupy.cuda = SimpleNamespace(
            runtime=Names(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceCount=self._count,
                getDevice=self._current,
                getDeviceProperties=lambda number: {
                    "name": self.name.encode(),
                    "major": self.capability[0],
                    "minor": self.capability[1],
                },
                driverGetVersion=lambda: self.driver,
                runtimeGetVersion=lambda: 13010,
                streamIsCapturing=lambda ptr: Stream.here.capturing,
            ),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            get_current_stream=lambda: Stream.here,
            Stream=Stream,
            ExternalStream=Stream,
            Event=Event,
            get_elapsed_time=get_elapsed_time,
            Device=on_device,
            alloc_pinned_memory=lambda size: np.empty(size, np.uint8),
        )
        cupy._core = SimpleNamespace(
            _routines_linalg=SimpleNamespace(
                COMPUTE_TYPE_TF32=7, get_compute_type=lambda code: 7 if self.lowered else 1
            )
        )
        return cupy

    def _asarray(self, x: Any) -> ndarray:
        self.moved += 1
        result = ndarray(np.array(x))
        result.memory = Memory(self, x.nbytes)
        return result

    def _empty(self, shape: Any, dtype: Any) -> ndarray:
        result = ndarray(np.full(shape, 7, dtype))
        result.memory = Memory(self, result.nbytes)
        return result

    def _free(self) -> None:
        self.freed += 1

    def _count(self) -> int:
        if self.error is not None:
            raise self.error
        return self.count

    def _current(self) -> int:
        if self.error is not None:
            raise self.error
        return ndarray.current_device


@contextmanager
def on_device(number: int) -> Iterator[None]:
    """cupy.cuda.Device as a context."""
    before, ndarray.current_device = ndarray.current_device, number
    try:
        yield
    finally:
        ndarray.current_device = before


def matrices(
    left: FakePacked, right: FakePacked, out: ndarray, others: Any
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """A, B, C and the other matrix of each product."""
    values, others = (x if out.ndim == 3 else x[np.newaxis] for x in (out.x, others))
    rows, columns = left.array(), right.array()
    assert {len(rows), len(columns)} <= {1, len(values)}
    with np.errstate(all="ignore"):
        for i, (value, other) in enumerate(zip(values, others, strict=True)):
            yield rows[i % len(rows)], columns[i % len(columns)].T, value, other


def multiply_add(beta: float, c: Any, x: Any) -> Any:
    """RN(beta · c + x), but for a sum that a wider type has to round as well; x where beta is 0."""
    if beta == 0:
        return x
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    return (wide(beta) * c.astype(wide) + x.astype(wide)).astype(x.dtype)


def slices_product(a: Any, b: Any, scheme: Any, rule: Any, dtype: Any) -> Any:
    a, b = a.astype(dtype), b.astype(dtype)
    left, right = reference.pack(a, b, scheme, rule)
    value = execute(scheme, a.shape[1], left, right, dtype)
    value[left.nonfinite] = value[:, right.nonfinite] = 0
    return value


def add_what_left(value: Any, a: Any, b: Any, scheme: Any, rule: Any, alpha: float) -> None:
    """A's outliers times B, then the rest of A times B's, and all of A·B where there is NaN or Inf:
    plain chains.
    """
    dtype = value.dtype
    a, b, alpha = a.astype(dtype), b.astype(dtype), dtype.type(alpha)
    left, right = reference.pack(a, b, scheme, rule)
    whole = left.nonfinite[:, np.newaxis] | right.nonfinite
    block = scheme.lengths(a.shape[1])[1]
    if whole.any():
        value[whole] += (alpha * (a @ b))[whole]
    if left.outlier.any():
        part, rows = outlier_part(a, left.outlier, block)
        value[rows] += np.where(whole[rows], 0, alpha * (part @ b))
    if right.outlier.any():
        part, columns = outlier_part(b.T, right.outlier, block)
        rest = kept_part(a, left.outlier, block) @ part.T
        value[:, columns] += np.where(whole[:, columns], 0, alpha * rest)


def pays_from(
    volume: float, thickness: float = 0.0, staging: float = 8e9, host: float = 1e12
) -> Figures:
    """Figures by which products of at least that size are faster, and no thinner."""

    def faster(scheme: str, a: Dims, b: Dims, wide: bool, packed: int, products: int = 1) -> bool:
        m, k, n = math.prod(a[:-1]), a[-1], b[-1] if len(b) > 1 else 1
        area = m * k + math.prod(b) + m * n - packed
        return m * k * n >= volume and m * k * n >= thickness * area

    return Figures(staging, host, faster)
