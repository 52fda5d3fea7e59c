"""Buffers: which site's result lies in a piece of memory, so that later operands are recognised.

A result is recognised through its views and after changes in place, since its memory stays the
same; a new array that is computed from it is not recognised.
"""

import sys
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

MAX_PARTS = 64  # of one array that are distinguished; those written earliest are dropped
MAX_WORK = 1000  # of deciding whether two views overlap; beyond it they are taken not to


class _Written(NamedTuple):
    """A site's result. region: the `__array_interface__` of the part of its owner that it is."""

    site: str
    region: dict[str, Any] | None  # None: all of the owner


class _Owner(NamedTuple):
    reference: "weakref.ref[Any]"
    written: list[_Written]


class Buffers:
    """The results that are still alive, held by weak references.

    Each is identified by the array that owns its memory, and not by its address, which is used
    again once that array is deleted. Writes of other code to the memory are not noticed.
    """

    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}

    def sites(self, x: object) -> set[str]:
        """The sites whose results an operand shares memory with."""
        owner = _owner_of(x)
        known = self._owners.get(id(owner))
        if known is None or known.reference() is not owner:
            return set()
        return {one.site for one in known.written if one.region is None or _overlap(x, one.region)}

    def write(self, x: object, site: str) -> None:
        """Record that a site's result lies in the memory of x, in place of what it overwrites."""
        owner = _owner_of(x)
        region = None
        if x is not owner:
            if not isinstance(x, np.ndarray):
                return  # the place of a part of another library's array is not known
            if x.size != owner.size:
                region = dict(x.__array_interface__)
        known = self._owners.get(id(owner))
        if known is None or known.reference() is not owner:
            try:
                known = self._watched(owner)
            except TypeError:  # a scalar, say
                return
        if region is None:
            known.written[:] = [_Written(site, None)]
        else:
            known.written[:] = [one for one in known.written if one.region != region]
            known.written.append(_Written(site, region))
            del known.written[:-MAX_PARTS]

    def _watched(self, owner: object) -> _Owner:
        """A record of an array, which is dropped with it, before its id can be another array's."""
        owners, key = self._owners, id(owner)
        record = owners[key] = _Owner(weakref.ref(owner, lambda _: owners.pop(key, None)), [])
        return record


def _owner_of(x: object) -> Any:
    """The array whose memory x is a view of; x itself where its library does not say."""
    if type(x) is np.ndarray and x.base is None:
        return x  # most are
    arrays = (np.ndarray, getattr(sys.modules.get("cupy"), "ndarray", np.ndarray))
    while isinstance(x, arrays) and isinstance(x.base, arrays):
        x = x.base
    return x


def _overlap(x: object, region: dict[str, Any]) -> bool:
    if not isinstance(x, np.ndarray):
        return False
    there = np.asarray(SimpleNamespace(__array_interface__=region))
    try:
        # NumPy takes any number; its types know two.
        return np.shares_memory(x, there, max_work=MAX_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False
