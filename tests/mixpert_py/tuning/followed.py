"""Arrays whose memory knows which products its numbers were computed from.

Every array that a program makes is seen as `Followed`, and NumPy hands all that is done to it to
this file. Numbers that leave the arrays (`float(x)`, an index into a list) are followed no further.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Sites = frozenset[str]
NONE: Sites = frozenset()

# Their result has the argument's shape and nothing of its numbers.
SHAPES_ONLY = (np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.shape, np.ndim, np.size)


class Memory:
    """The sites whose results each piece of memory holds.

    Every array met stays alive, so that no memory is used again for another.
    """

    def __init__(self) -> None:
        self._written: dict[int, tuple[Array, list[tuple[Array, Sites]]]] = {}

    def sites(self, value: Any) -> Sites:
        """Whose results are in the numbers of a value: an array, or containers of arrays."""
        found = NONE
        for array in _arrays(value):
            _, regions = self._written.get(id(_owner(array)), (None, []))
            found = found.union(*(s for region, s in regions if _overlap(region, array)))
        return found

    def write(self, array: Array, sites: Sites) -> None:
        """These are now the sites in the array's memory, and in its views'."""
        owner, region = _owner(array), array.view(np.ndarray)
        _, regions = self._written.setdefault(id(owner), (owner, []))
        whole = region.size == owner.size
        regions[:] = [old for old in regions if not whole and not _is_same_place(old[0], region)]
        if sites:
            regions.append((region, sites))

    def follow(self, value: Any) -> Any:
        """A value as it is, its arrays as Followed ones on the same memory."""
        if type(value) is np.ndarray:
            seen = value.view(Followed)
            seen.memory = self
            return seen
        if type(value) in (list, dict):  # the program's own, in place
            for key in range(len(value)) if type(value) is list else list(value):
                value[key] = self.follow(value[key])
        elif type(value) is tuple:
            return tuple(map(self.follow, value))
        elif isinstance(value, tuple) and hasattr(value, "_fields"):  # of np.linalg
            return type(value)(*map(self.follow, value))
        return value

    def product(self, result: Any, site: str, given: Mapping[int, Any]) -> Any:
        """The result of a site. given: its arguments by the identity of what NumPy was given."""
        result = _boxed(result)
        if isinstance(result, np.ndarray):
            self.write(result, frozenset({site}))
        return given.get(id(result)) if id(result) in given else self.follow(result)

    def made(self, result: Any, sites: Sites, given: Any) -> Any:
        """The result of a computation on `given`; what shares its memory is a view or `out`."""
        inputs = list(_arrays(given))
        for array in _arrays(result):
            if not any(_overlap(array, one) for one in inputs):
                self.write(array, sites)
        return self.follow(result)


class Followed(Array):
    """An array that tells a Memory what it is computed from."""

    memory: Memory

    def __array_finalize__(self, other: Any) -> None:
        memory = getattr(other, "memory", None)
        if memory is not None:
            self.memory = memory
            if not _overlap(self, other):  # a copy, an `astype`, elements taken
                memory.write(self, memory.sites(other))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        out = given.get("out", ())
        # `np.add.at(target, index, values)` reads and writes its first operand.
        targets = [one for one in out if one is not None] or list(inputs[: method == "at"])
        sites = self.memory.sites([*inputs, *given.values()] if method == "at" else list(inputs))
        result = getattr(ufunc, method)(
            *map(plain, inputs), **{k: plain(v) for k, v in given.items()}
        )
        for target in targets:
            self.memory.write(target, sites)
        if len(out) == 1 and out[0] is not None:
            return out[0]
        return self.memory.made(_boxed(result), sites, targets)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        given = (args, kwargs)
        sites = NONE if function in SHAPES_ONLY else self.memory.sites(given)
        result = function(*plain(args), **plain(kwargs))
        target = kwargs.get("out", args[0] if result is None and args else None)
        if isinstance(target, np.ndarray):  # `out`, or that of np.copyto, np.put, np.fill_diagonal
            self.memory.write(target, sites)
            return target if result is not None else None
        return self.memory.made(_boxed(result), sites, given)

    def __getitem__(self, key: Any) -> Any:
        result = super().__getitem__(key)
        sites = self.memory.sites(key)
        if sites and isinstance(result, np.ndarray):
            self.memory.write(result, sites | self.memory.sites(self))
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        sites = self.memory.sites([key, value])
        super().__setitem__(plain(key), plain(value))
        region = super().__getitem__(plain(key))
        if isinstance(region, np.ndarray) and _overlap(region, self):
            self.memory.write(region, sites)
        else:  # elements here and there: the others stay
            self.memory.write(self, sites | self.memory.sites(self))


def plain(value: Any) -> Any:
    """A value with its arrays, on the same memory, as NumPy's own."""
    match value:
        case Followed():
            return value.view(np.ndarray)
        case list():
            return list(map(plain, value))
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case slice():
            return slice(*map(plain, (value.start, value.stop, value.step)))
        case tuple() if type(value) is tuple:
            return tuple(map(plain, value))
    return value


def _boxed(result: Any) -> Any:
    """A number as an array, for it to be followed."""
    return np.asarray(result) if isinstance(result, np.generic) else result


def _arrays(value: Any) -> Iterator[Array]:
    match value:
        case np.ndarray():
            yield value
        case list() | tuple() | set():
            for one in value:
                yield from _arrays(one)
        case Mapping():
            yield from _arrays(list(value.values()))
        case slice():
            yield from _arrays([value.start, value.stop, value.step])


def _owner(array: Array) -> Array:
    """The array whose memory this one is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _overlap(one: Array, other: Any) -> bool:
    return isinstance(other, np.ndarray) and np.shares_memory(
        one.view(np.ndarray), other.view(np.ndarray)
    )


def _is_same_place(one: Array, other: Array) -> bool:
    return (one.ctypes.data, one.shape, one.strides) == (
        other.ctypes.data,
        other.shape,
        other.strides,
    )
