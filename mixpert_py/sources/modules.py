"""Modules that are rewritten with a program, found without importing them.

They are those of its project, and those of packages: `--package sklearn`. A pattern is a package's
name, which covers all modules below it, or a glob of module names that begins with a package's
name, such as `sklearn.decomposition.*`.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from mixpert_py import sources
from mixpert_py.errors import SourceError, short
from mixpert_py.plan import Package, module_name

# What this package computes with: rewritten, its products would call themselves.
UNDERNEATH = ("mixpert_py", "numpy", "cupy", "numba")


def matches(module: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern names a module or a package around it."""
    return any(
        module == pattern or module.startswith(f"{pattern}.") or fnmatchcase(module, pattern)
        for pattern in patterns
    )


def top(name: str) -> str:
    """The package with which a module or a pattern begins."""
    return name.partition(".")[0]


def require(patterns: Iterable[str], path: Sequence[str] = ()) -> None:
    """Raise SourceError, in one line, for a pattern that can match nothing to rewrite.

    path: folders in which packages are looked up before those of sys.path. Nothing is imported.
    """
    for pattern in patterns:
        package = top(pattern)
        named = f"--package {short(pattern)}"
        if not package.isidentifier():
            raise SourceError(f"{named}: give a package, or a glob behind one, as in 'sklearn.*'")
        if package in UNDERNEATH:
            raise SourceError(f"{named}: products are made with it, so it stays as it is")
        spec = None
        with suppress(ImportError, ValueError):  # `__spec__` is None in what some put together
            spec = spec_without_imports(package, [*filter(None, path), *sys.path])
        if spec is None:
            raise SourceError(f"{named}: no such package is installed")
        if spec.submodule_search_locations is None:
            if isinstance(spec.loader, ExtensionFileLoader):
                raise SourceError(f"{named}: an extension module, which has no Python source")
            if not (spec.origin or "").endswith(".py"):
                raise SourceError(f"{named}: has no Python source ({spec.origin})")


def described(patterns: Iterable[str]) -> list[Package]:
    """The packages as a plan has them: each with its distribution and version."""
    from importlib import metadata  # not above: it takes longer than all else here

    patterns = list(patterns)
    if not patterns:  # to list all that is installed takes a quarter of a second
        return []
    distributions = metadata.packages_distributions()
    found = []
    for pattern in dict.fromkeys(patterns):
        names = sorted(set(distributions.get(top(pattern), ())))
        name = names[0] if len(names) == 1 else ""
        found.append(Package(pattern, name, metadata.version(name) if name else ""))
    return found


def unused_line(package: str) -> str:
    """A line about a package that was named and that the program did not import."""
    return f"package {package}: the program imported no module of it"


def relative(path: str, module: str) -> str:
    """A module's path from its package's folder, with slashes. module: as in site ids."""
    parts = path.replace(os.sep, "/").split("/")
    below = module.count(".") + (parts[-1] == "__init__.py")
    return "/".join(parts[-below - 1 :])


class ProjectFile(NamedTuple):
    """A file of the project. module: the first part of its site ids. imports: what the file itself
    writes for a module of the project, such as "lib" or ".lib" → that module's file.
    """

    path: str
    module: str
    source: bytes
    imports: Mapping[str, str] = {}


def project_files(
    main: ProjectFile, folder: str, path: Sequence[str], package: str = ""
) -> list[ProjectFile]:
    """A program's file, and the files below `folder` that it imports, directly or indirectly.

    path: the folders in which imports are looked up. package: the package of the program's own
    file. Imports whose names the program makes while it runs are not found.
    """
    find = cache(partial(_find, folder=folder, path=[*path, *sys.path]))
    found: dict[str, ProjectFile] = {}
    pending = [(main, package)]
    while pending:
        file, package = pending.pop(0)
        imports = {}
        for spelled, name in imported_names(file.source, package):
            if (place := find(name)) is None:
                continue
            imports[spelled], parent = place
            if place[0] not in found and place[0] != main.path:
                found[place[0]] = made = _read(place[0])
                pending.append((made, parent))
        found[file.path] = ProjectFile(file.path, file.module, file.source, imports)
    return [found.pop(main.path), *found.values()]


def spec_without_imports(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """The spec of a module, without importing its packages; paths that they add are ignored."""
    spec = None
    for depth, part in enumerate(name.split(".")):
        # By its last part: a namespace package looks the package around it up in sys.modules.
        spec = PathFinder.find_spec(part, path)
        if spec is None and depth == 0:
            spec = importlib.util.find_spec(part)  # an editable installation has its own finder
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    if spec is not None:
        spec.name = name
    return spec


def _find(name: str, folder: str, path: Sequence[str]) -> tuple[str, str] | None:
    """The file and the package of a module whose source is the project's own; None for others."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or (top != name and not _is_package(top, folder, path)):
        return None
    try:
        spec = spec_without_imports(name, path)
    except (ImportError, ValueError):
        return None
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    place = str(spec.origin)
    parent = spec.name if spec.submodule_search_locations else spec.parent or ""
    return (place, parent) if sources.is_in(place, folder) else None


def _is_package(name: str, folder: str, path: Sequence[str]) -> bool:
    """Whether the project's folder holds a package of this name; it need not have source."""
    spec = spec_without_imports(name, path)
    places = () if spec is None else spec.submodule_search_locations or ()
    return any(sources.is_in(str(Path(place, "_")), folder) for place in places)


def _read(path: str) -> ProjectFile:
    try:
        source = sources.read(path)
    except SourceError:
        source = b""  # too large: it runs as it is
    return ProjectFile(path, module_name(path), source)


def imported_names(source: bytes, package: str = "") -> Iterator[tuple[str, str]]:
    """The modules that a file may import: as its scopes spell them, and by their full names."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from ((name, name) for name in _prefixes(alias.name))
        elif isinstance(node, ast.ImportFrom):
            spelled = "." * node.level + (node.module or "")
            try:
                name = importlib.util.resolve_name(spelled, package)
            except ImportError:
                continue
            for prefix in _prefixes(name):
                yield (spelled if prefix == name else prefix), prefix
            for alias in node.names:
                yield f"{spelled}{'.' if node.module else ''}{alias.name}", f"{name}.{alias.name}"


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]
