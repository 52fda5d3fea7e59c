"""Which site's result a piece of memory holds: a later operand there was that site's result.

What is seen is memory. A result, its views and what was done to it in place are followed; a new
array computed from it is not.
"""

import sys
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

MOST_PARTS = 64  # of one array that are told apart; those written before are forgotten
MOST_WORK = 1000  # of deciding whether two views meet; beyond that nobody knows, and they do not


class _Written(NamedTuple):
    """A site's result. region: where in its owner it lies, as `__array_interface__` says it."""

    site: str
    region: dict[str, Any] | None  # None: all of the owner


class _Owner(NamedTuple):
    reference: "weakref.ref[Any]"
    written: list[_Written]


class Buffers:
    """The results that are still alive. Keeps none of them so.

    They are known by the array that owns the memory, not by the address, which is used again once
    that array is gone. Whatever else writes to the memory goes unseen.
    """

    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}

    def sites(self, x: Any) -> set[str]:
        """The sites whose results an operand shares memory with."""
        owner = _owner_of(x)
        known = self._owners.get(id(owner))
        if known is None or known.reference() is not owner:
            return set()
        return {one.site for one in known.written if one.region is None or _meet(x, one.region)}

    def write(self, x: Any, site: str) -> None:
        """A result now lies in the memory of x; what it covers there is no more."""
        owner = _owner_of(x)
        whole = x is owner or (isinstance(x, np.ndarray) and x.size == owner.size)
        if not whole and not isinstance(x, np.ndarray):
            return  # of a part of another library's array nobody can say where it lies
        known = self._owners.get(id(owner))
        if known is None or known.reference() is not owner:
            try:
                known = self._known(owner)
            except TypeError:  # a scalar, say
                return
        if whole:
            known.written[:] = [_Written(site, None)]
        else:
            region = dict(x.__array_interface__)
            known.written[:] = [one for one in known.written if one.region != region]
            known.written.append(_Written(site, region))
            del known.written[:-MOST_PARTS]

    def _known(self, owner: Any) -> _Owner:
        owners, key = self._owners, id(owner)

        def forget(_: Any) -> None:  # before the id can be another array's
            owners.pop(key, None)

        known = owners[key] = _Owner(weakref.ref(owner, forget), [])
        return known


def _owner_of(x: Any) -> Any:
    """The array whose memory x is a view of; x itself where its library does not tell."""
    if type(x) is np.ndarray and x.base is None:
        return x  # most are
    arrays = (np.ndarray, getattr(sys.modules.get("cupy"), "ndarray", np.ndarray))
    while isinstance(x, arrays) and isinstance(x.base, arrays):
        x = x.base
    return x


def _meet(x: Any, region: dict[str, Any]) -> bool:
    if not isinstance(x, np.ndarray):
        return False
    there = np.asarray(SimpleNamespace(__array_interface__=region))
    try:
        # NumPy takes any number; its types know two.
        return np.shares_memory(x, there, max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False
