"""Keeps this package's imports apart from those of a program with, say, a `queue.py` of its own.

In a process that runs a program, the program's folder comes first on sys.path, as under `python`.
Its files may have the names of Python's modules, or of modules that this package needs. The program
then gets its own modules, even if the others are imported already, and this package gets the
others, even if it imports them later.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

from mixpert_py import started_with

PREFIX = "mixpert_py."
SHARED = frozenset({"mixpert_py", "numpy"})  # the program and the runtime have the same arrays


class _State:
    """names: top-level modules that both the program and others have. path: where the others are
    found. modules: the others that are imported.
    """

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.path: list[str] = []
        self.modules: dict[str, ModuleType] = {}
        self.is_importing = False

    def take_out(self, kept: Iterable[str] = ()) -> dict[str, ModuleType]:
        """Remove all modules with these names from sys.modules, except those to keep."""
        names = self.names.difference(kept)
        found = [name for name in sys.modules if name.partition(".")[0] in names]
        return {name: sys.modules.pop(name) for name in found}


_state = _State()


def keep_apart(folder: str, path: Sequence[str]) -> None:
    """Put a program's folder before the modules that this package has imported.

    folder: will come first on sys.path. path: sys.path without it. Modules that Python imports at
    its own start stay: a program's modules never come before them.
    """
    _state.path = list(path)
    _state.names = frozenset()
    try:
        is_on_path = os.path.realpath(folder) in map(os.path.realpath, path)
    except FileNotFoundError:  # the current folder was removed
        return
    if is_on_path:
        return
    others = sys.stdlib_module_names.union(*map(_names, path))
    _state.names = others.intersection(_names(folder)).difference(SHARED, sys.builtin_module_names)
    if not _state.names:
        return
    theirs = [name for name in _state.names if _is_in(sys.modules.get(name), folder)]
    _state.modules |= _state.take_out(kept=[*started_with, *theirs])
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def path_before() -> list[str]:
    """Entries that come first on sys.path while a spawned child imports this package."""
    return list(_state.path) if _state.names else []


@contextmanager
def importing() -> Iterator[None]:
    """Context manager: imports inside are this package's, not the program's."""
    if _state.is_importing:
        yield
        return
    theirs, path = _state.take_out(), list(sys.path)
    sys.modules.update(_state.modules)
    # The program's own places stay, at the end: its other threads may import meanwhile.
    sys.path[:] = dict.fromkeys([*_state.path, *path])
    _state.is_importing = True
    try:
        yield
    finally:
        _state.is_importing = False
        _state.modules |= _state.take_out()
        sys.modules.update(theirs)
        sys.path[:] = path


def _names(folder: str) -> set[str]:
    """The names of modules in a folder; a folder without `__init__.py` is not a module."""
    with suppress(OSError), os.scandir(folder or os.curdir) as entries:
        return {
            entry.name.partition(".")[0]
            for entry in entries
            if not entry.is_dir() or os.path.isfile(os.path.join(entry.path, "__init__.py"))
        }
    return set()


def _is_in(module: ModuleType | None, folder: str) -> bool:
    file = getattr(module, "__file__", None) or ""
    return os.path.realpath(file).startswith(os.path.join(os.path.realpath(folder), ""))


class _Finder:
    """Finds the modules of this package and the modules that they import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(PREFIX):
            if not _state.is_importing or name not in _state.names:
                return None
            if (found := PathFinder.find_spec(name, _state.path)) is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return found
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with importing():
            super().exec_module(module)


_finder = _Finder()
