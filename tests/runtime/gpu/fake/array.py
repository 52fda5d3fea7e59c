"""Arrays that are no NumPy arrays, do not mix with them, and live on a numbered device."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tests.runtime.gpu.fake.stream import Current, Stream


class ndarray(NDArrayOperatorsMixin):  # noqa: N801, it has its original's name
    """A NumPy array that only its own kind may touch."""

    __array_priority__ = 100

    def __init__(self, x: Any, number: int | None = None, base: Any = None) -> None:
        self.x, self.base = x, base
        self.number = Current.device if number is None else number

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.x.shape, "version": 3}

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, np.ndarray) and x.ndim for x in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        out = kwargs.pop("out", ())
        if ufunc is not np.matmul:  # a program's own, which may well be slow
            require_here(*inputs, *out)
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
        return wrapped(value, self) if callable(value) and name != "flags" else value

    def __getitem__(self, key: Any) -> "ndarray":
        base = self if self.base is None else self.base
        return ndarray(np.asarray(self.x[plain(key)]), self.number, base)

    def __setitem__(self, key: Any, value: Any) -> None:
        require_here(self, value)
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
        assert (out.shape, out.dtype) == (self.x.shape, self.x.dtype)
        assert out.flags.c_contiguous
        assert self.x.flags.c_contiguous, "what is not contiguous is copied first"
        out[...] = self.x
        return out

    def set(self, x: Any, stream: Any = None) -> None:
        assert (x.shape, x.dtype) == (self.x.shape, self.x.dtype)
        assert self.x.flags.c_contiguous or self.x.flags.f_contiguous
        self.x[...] = x


@dataclass(frozen=True)
class Pointer:
    x: Any
    device_id: int

    @property
    def ptr(self) -> int:
        return int(self.x.ctypes.data)

    def copy_to_host_async(self, address: int, size: int, stream: "Stream") -> None:
        assert stream is Stream.here
        ctypes.memmove(address, self.ptr, size)


def plain(x: Any) -> Any:
    """NumPy's array in place of ours, in a tuple too."""
    if isinstance(x, tuple):
        return tuple(map(plain, x))
    return x.x if isinstance(x, ndarray) else x


def wrapped(function: Callable[..., Any], owner: Any = None) -> Callable[..., Any]:
    """A NumPy function, or a method of an array's, that takes and gives our arrays."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
        if not isinstance(result, (np.ndarray, np.generic)):
            return None
        if owner is not None and np.may_share_memory(result, owner.x):
            return ndarray(result, owner.number, owner if owner.base is None else owner.base)
        require_here(owner, *args)
        return ndarray(np.asarray(result))

    return call


def require_here(*operands: Any) -> None:
    """What a kernel reads and writes is on the current device: CuPy's read others', slowly, or
    fail.
    """
    numbers = {x.number for x in operands if isinstance(x, ndarray)}
    assert numbers <= {Current.device}, f"on device {Current.device}, of arrays on {numbers}"


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> ndarray:
    return ndarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))
