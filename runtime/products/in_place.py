"""`imatmul`: `a @= b`, under the scheme that is in force for this call.

A rewritten `a @= b` is `a = imatmul(a, b)`; a rewritten `owner.name[key] @= b` is
`target(owner.name)[key].imatmul(b)`, which reads and writes the place as the statement did.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from numpy import ndarray

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.context import passes
from mixpert_py.runtime.gpu.foreign import may_be_on_device
from mixpert_py.runtime.products.rearranged import not_rearranged
from mixpert_py.runtime.program_frames import trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, Own, Settings, is_dask, matmul_shape
from mixpert_py.runtime.worth import is_small

_IN_PLACE: Native = operator.imatmul


@trimmed
def imatmul(a: object, b: object, *, site: str | None = None, **own: Unpack[Own]) -> Any:
    """operator.imatmul(a, b), the value that `a @= b` binds to `a`.

    A NumPy array takes the product in place and is returned, with the shapes and casts that NumPy
    allows; a type without `__imatmul__`, such as CuPy's, gives a new array. Other arguments and
    errors as in `matmul`.
    """
    if not own and is_small(a, b) and passes(site):
        return _IN_PLACE(a, b)
    return carry_out(_call(a, b), Settings(site=site, **own))[0]


def _call(a: object, b: object) -> Call:
    if type(a) is type(b) is ndarray and b.ndim > 1:
        return Call(_product, a, b, (), a, matmul_shape)
    if (may_be_on_device(type(a)) or is_dask(a)) and not hasattr(type(a), "__imatmul__"):
        return Call(operator.matmul, a, b, (), None, matmul_shape)
    return not_rearranged(_IN_PLACE, a, b, Reason.OUT)


def _product(a: object, b: object, *, out: object = None) -> Any:
    return operator.matmul(a, b) if out is None else _IN_PLACE(a, b)


def target(owner: object) -> "_Owner":
    """A proxy of an object, through which `imatmul` writes its attributes and elements."""
    return _Owner(owner)


class _Owner:
    __slots__ = ("_owner",)

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __getattribute__(self, name: str) -> "_Place":
        owner = object.__getattribute__(self, "_owner")
        return _Place(getattr(owner, name), partial(setattr, owner, name))

    def __getitem__(self, key: object) -> "_Place":
        owner = object.__getattribute__(self, "_owner")
        return _Place(owner[key], partial(operator.setitem, owner, key))


class _Place:
    """An attribute or an element of an object: its value, and the function that assigns to it."""

    __slots__ = ("_store", "_value")

    def __init__(self, value: object, store: Callable[[object], None]) -> None:
        self._value = value
        self._store = store

    def imatmul(self, b: object, **given: Any) -> None:
        """`place @= b`. Arguments as in the function `imatmul`."""
        self._store(imatmul(self._value, b, **given))
