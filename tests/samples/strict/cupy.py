"""NumPy, as strict as CuPy: its arrays meet arrays of the host nowhere but in `asarray`."""

from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class ndarray(NDArrayOperatorsMixin):  # noqa: N801 — as CuPy calls it
    """An array of the device; so is every number computed from one."""

    def __init__(self, host: Any) -> None:
        self._host = np.asarray(host)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("an array of the device, taken for one of the host")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        return _on_device(getattr(ufunc, method))(*operands, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._host, name)
        return _on_device(found) if callable(found) else _device(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[_host(key)] = _host(value)

    def __getitem__(self, key: Any) -> Any:
        return _device(self._host[_host(key)])

    def __len__(self) -> int:
        return len(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __bool__(self) -> bool:
        return bool(self._host)


def asarray(x: Any, dtype: Any = None) -> ndarray:
    return ndarray(np.array(x._host if isinstance(x, ndarray) else x, dtype))


def _host(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        raise TypeError("an array of the host among those of the device")
    if isinstance(x, (list, tuple)):
        return type(x)(map(_host, x))
    return x._host if isinstance(x, ndarray) else x


def _device(x: Any) -> Any:
    if isinstance(x, tuple) and any(isinstance(part, np.ndarray) for part in x):
        return tuple(map(_device, x))
    return ndarray(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _on_device(function: Any) -> Any:
    def call(*operands: Any, **options: Any) -> Any:
        named = {name: _host(value) for name, value in options.items()}
        return _device(function(*map(_host, operands), **named))

    return call


class _Wrapped:
    """A module or ufunc whose functions take and give arrays of the device."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(self, *operands: Any, **options: Any) -> Any:
        return _on_device(self._original)(*operands, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._original, name)
        if isinstance(found, (ModuleType, np.ufunc)):
            return _Wrapped(found)
        return _on_device(found) if callable(found) and not isinstance(found, type) else found


def __getattr__(name: str) -> Any:
    return getattr(_Wrapped(np), name)
