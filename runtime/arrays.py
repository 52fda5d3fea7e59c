"""Arrays: their types, as far as products use them, shared memory, and memory for casts."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numpy.exceptions import TooHardError

Array = npt.NDArray[Any]


class AnyArray(Protocol):
    """An array, wherever its elements are.

    Arrays of all libraries have shape, ndim, size, dtype and slices; those of NumPy and CuPy, the
    only ones that are rearranged, have the rest.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def T(self) -> Any: ...  # noqa: N802 — the libraries' name
    @property
    def reshape(self) -> Callable[..., Any]: ...
    @property
    def transpose(self) -> Callable[..., Any]: ...
    @property
    def astype(self) -> Callable[..., Any]: ...
    def conj(self) -> Any: ...
    @property
    def swapaxes(self) -> Callable[..., Any]: ...
    @property
    def __getitem__(self) -> Callable[..., Any]: ...
    @property
    def __setitem__(self) -> Callable[..., None]: ...
    @property
    def __matmul__(self) -> Callable[..., Any]: ...


class DeviceMemory(Protocol):
    """A place in the device's memory, as a CuPy array, or an allocation, has it."""

    ptr: int
    device_id: int

    def __add__(self, offset: int, /) -> "DeviceMemory": ...


class DeviceArray(Protocol):
    """An array on a device, as far as packing and repair look at it: a CuPy array is one. Strides
    are in bytes.
    """

    data: DeviceMemory
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class GpuArray(DeviceArray, AnyArray, Protocol):
    """A CuPy array, as far as products use it."""

    nbytes: int
    flags: Any
    base: Any
    fill: Callable[..., None]
    get: Callable[..., Any]

    def __len__(self) -> int: ...


class Tensor(Protocol):
    """A tensor of PyTorch, as far as products look at it."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    is_nested: bool
    device: Any
    layout: Any
    is_cuda: bool

    def numel(self) -> int: ...
    def is_contiguous(self) -> bool: ...
    def is_conj(self) -> bool: ...
    def is_neg(self) -> bool: ...
    def resolve_conj(self) -> Any: ...
    def get_device(self) -> int: ...
    def data_ptr(self) -> int: ...
    def detach(self) -> Any: ...
    def new_empty(self, size: tuple[int, ...], /) -> Any: ...
    def mul_(self, other: object, /) -> Any: ...
    def add_(self, other: object, /, *, alpha: float = 1) -> Any: ...


# The types that take schemes, and of what precision they are.
PRECISION = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}


def is_single(*dtypes: str) -> bool:
    """Whether all of some types are float32 or complex64."""
    return all(PRECISION.get(dtype) == "float32" for dtype in dtypes)


def default_scheme(*dtypes: str) -> str | None:
    """Return the default scheme of products on a GPU, by the dtypes of their operands.

    It is as accurate as the native product. None: the default is the native product.
    """
    if is_single(*dtypes):
        return "faithful"
    return "crt" if set(dtypes) in ({"float64"}, {"complex128"}) else None


def is_wide(*names: str) -> bool:
    """Whether any of these types is of float64's precision."""
    return any(PRECISION.get(name) == "float64" for name in names)


def real_products(*names: str) -> int:
    """The number of real products in a product of operands of two such types: 1, 2 or 4."""
    return 1 << sum(name.startswith("complex") for name in names)


def are_whole(*names: str) -> bool:
    """Whether all of some types are of integers or booleans."""
    return all(name.startswith(("int", "uint", "bool")) for name in names)


@lru_cache(maxsize=64)
def name_of(dtype: object) -> str:
    """A dtype's name, which NumPy composes anew each time; PyTorch's without its module."""
    return str(dtype).rpartition(".")[2]


WORK: Any = 1000  # steps in which NumPy finds out; blocks take a few


def shares(x: Array, y: Array) -> bool:
    """Whether NumPy arrays do, or may, where that is too hard to tell."""
    try:
        return bool(np.shares_memory(x, y, max_work=WORK))
    except TooHardError:
        return True


def shares_on_device(x: GpuArray, y: GpuArray) -> bool:
    """The same of CuPy arrays of one device; nothing of them is read."""
    return shares(np.asarray(_Addresses(x)), np.asarray(_Addresses(y)))


def is_transposed(a: AnyArray | Tensor, b: AnyArray | Tensor) -> bool:
    """Return whether B is a view of A with rows and columns exchanged, so that A·B is symmetric.

    False where an operand has no address: a compiler and PyTorch's transforms pass such operands.
    """
    *stack, rows, columns = tuple(a.shape) if len(a.shape) > 1 else (0, 0)
    if tuple(b.shape) != (*stack, columns, rows) or a.dtype != b.dtype:
        return False
    try:
        (address, *outer, down, across), place = _place(a), _place(b)
    except (AttributeError, RuntimeError):
        return False
    return [address, *outer, across, down] == place


def _place(array: AnyArray | Tensor) -> list[int]:
    """The address of an array, and its strides."""
    x: Any = array
    if hasattr(x, "data_ptr"):
        return [x.data_ptr(), *x.stride()]
    return [x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr, *x.strides]


class _Addresses:
    """The addresses of a CuPy array's elements, as if they were in host memory."""

    def __init__(self, x: GpuArray) -> None:
        self.__array_interface__ = {
            "data": (x.data.ptr, True),
            "shape": x.shape,
            "strides": x.strides,
            "typestr": x.dtype.str,
            "version": 3,
        }


# Bytes of all blocks that no call uses now. Products that need larger ones take so long that new
# pages do not matter.
MOST_BYTES = 1 << 26
LEAST_BYTES = 1 << 15  # of an array: smaller ones are as quick from the C library

# By their ids, the latest used last. Every step is one operation of a dict, so that neither other
# threads nor a signal's handler find a block that is in use.
_free: dict[int, Array] = {}


class Scratch:
    """Memory for the casts of one product; it serves other products once the block is left.

    The C library returns large freed blocks to the system, which then maps and clears every page
    again at the next call: that can cost as much as the product itself. What a caller of a product
    receives never lies in such memory.
    """

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[Array] = []

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *error: object) -> None:
        for block in self._taken:
            _free[id(block)] = block
        total = 0  # bytes of free memory, of which the oldest is dropped beyond MOST_BYTES
        for key, block in reversed(list(_free.items())) if self._taken else ():
            total += block.nbytes
            if total > MOST_BYTES and _free.pop(key, None) is not None:
                total -= block.nbytes

    def empty(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """An array in C order whose entries may be anything."""
        found = np.empty(0, dtype)
        size = math.prod(shape) * found.itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        block = _taken_block(size)
        self._taken.append(block)
        return block[:size].view(dtype).reshape(shape)

    def cast(self, x: Array, dtype: "np.dtype[Any]") -> Array:
        """x.astype(dtype), with the axes in the same order in memory."""
        axes = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
        made = self.empty(tuple(x.shape[axis] for axis in axes), dtype)
        made = made.transpose(sorted(range(x.ndim), key=axes.__getitem__))
        np.copyto(made, x, casting="same_kind")
        return made


def _taken_block(size: int) -> Array:
    """A free block of at most twice the size, the latest used first; else a new one."""
    for key, block in reversed(list(_free.items())):
        if size <= block.nbytes <= 2 * size and _free.pop(key, None) is not None:
            return block
    return np.empty(size, np.uint8)
