"""The type of an array of any library, NumPy's, CuPy's or another's, as far as products use it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from mixpert_py.runtime.packing.operand import DeviceMemory


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


class GpuArray(Protocol):
    """A CuPy array, as far as products use it. Strides are in bytes."""

    @property
    def data(self) -> "DeviceMemory": ...

    @property
    def dtype(self) -> "np.dtype[Any]": ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def itemsize(self) -> int: ...

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
