"""The types of arrays, of any library or of CuPy, as far as products use them."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


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
    def T(self) -> Any: ...  # noqa: N802 — the libraries' name

    @property
    def reshape(self) -> Callable[..., Any]: ...

    @property
    def transpose(self) -> Callable[..., Any]: ...

    @property
    def astype(self) -> Callable[..., Any]: ...

    @property
    def __getitem__(self) -> Callable[..., Any]: ...

    @property
    def __matmul__(self) -> Callable[..., Any]: ...


class DeviceMemory(Protocol):
    """A place in the device's memory, as a CuPy array, or an allocation, has it."""

    @property
    def ptr(self) -> int: ...
    @property
    def device_id(self) -> int: ...
    def __add__(self, offset: int, /) -> "DeviceMemory": ...


class DeviceArray(Protocol):
    """An array on a device, as far as packing and repair look at it: a CuPy array is one. Strides
    are in bytes.
    """

    @property
    def data(self) -> DeviceMemory: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def itemsize(self) -> int: ...


class GpuArray(DeviceArray, Protocol):
    """A CuPy array, as far as products use it."""

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def flags(self) -> Any: ...

    @property
    def base(self) -> Any: ...

    @property
    def T(self) -> Any: ...  # noqa: N802 — the library's name

    @property
    def reshape(self) -> Callable[..., Any]: ...

    @property
    def astype(self) -> Callable[..., Any]: ...

    @property
    def fill(self) -> Callable[..., None]: ...

    @property
    def __getitem__(self) -> Callable[..., Any]: ...

    @property
    def __setitem__(self) -> Callable[..., None]: ...

    def __len__(self) -> int: ...


class Tensor(Protocol):
    """A tensor of PyTorch, as far as products look at it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def requires_grad(self) -> bool: ...

    def numel(self) -> int: ...

    def get_device(self) -> int: ...

    def detach(self) -> Any: ...

    def mul_(self, other: Any, /) -> Any: ...

    def add_(self, other: Any, /, *, alpha: float = 1) -> Any: ...
