"""Finds the files of a project that a program imports, without running them."""

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from mixpert_py import config
from mixpert_py.errors import SourceError
from mixpert_py.sources import project


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file of the project. module: the first part of its site ids. imports: what the file itself
    writes for a module of the project, such as "lib" or ".lib" → that module's file.
    """

    path: str
    module: str
    source: bytes
    imports: Mapping[str, str] = field(default_factory=dict)


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
    """The spec of a module, found without importing its packages; paths that they would add are
    ignored.
    """
    spec = None
    for part in name.split("."):
        # By its last part: a namespace package looks the package around it up in sys.modules.
        spec = PathFinder.find_spec(part, path)
        if spec is None and path is None:  # of an editable installation, which has a finder
            spec = importlib.util.find_spec(part)
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
    return (place, parent) if project.is_in(place, folder) else None


def _is_package(name: str, folder: str, path: Sequence[str]) -> bool:
    """Whether a package, with or without source, may be the project's own."""
    spec = spec_without_imports(name, path)
    places = () if spec is None else spec.submodule_search_locations or ()
    return any(project.is_in(str(Path(place, "_")), folder) for place in places)


def _read(path: str) -> ProjectFile:
    try:
        source = project.read(path)
    except SourceError:
        source = b""  # too large: it runs as it is
    return ProjectFile(path, config.module_name(Path(path)), source)


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
    """The names of the packages around a module, then its own name."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]
