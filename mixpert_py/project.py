"""The project that a program belongs to: the folder whose modules `mixpert run` rewrites, too."""

import fnmatch
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mixpert_py import source_files
from mixpert_py.errors import SourceError
from mixpert_py.source_files import SKIPPED_FOLDERS, SourceFile

PROJECT = "pyproject.toml"


def folder_of(start: str) -> str:
    """The project that a folder belongs to: where pyproject.toml is, there or above; else itself.

    Nothing at or above the user's home is a project: a file left there would make all files one.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    folder = Path(os.path.realpath(start))
    for place in (folder, *folder.parents):
        if Path(home).is_relative_to(place):
            break
        if (place / PROJECT).is_file():
            return str(place)
    return str(folder)


def is_in(file: str, folder: str) -> bool:
    """Whether a file in a project's folder is the project's own, and not an environment's."""
    if not file.startswith(folder.rstrip(os.sep) + os.sep):
        return False
    return not any(
        part in SKIPPED_FOLDERS or part[0] == "."
        for part in Path(file).relative_to(folder).parts[:-1]
    )


def files(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[SourceFile]:
    """The programs and notebooks that are meant: of a folder, those that its project lets in.

    `[tool.mixpert] exclude` has globs of names, and of paths from pyproject.toml on. A file that is
    named is meant. Raises SourceError where pyproject.toml is wrong.
    """
    for path in paths:
        found = source_files.source_files([path], exclude, notebooks=True)
        if not os.path.isdir(path):
            yield from found
            continue
        root = folder_of(path)
        patterns = _excluded(Path(root, PROJECT))
        for file in found:
            inside = Path(os.path.relpath(os.path.abspath(file.path), root)).as_posix()
            names = (inside, os.path.basename(inside))
            if not any(fnmatch.fnmatch(name, glob) for glob in patterns for name in names):
                yield file


def _excluded(path: Path) -> list[str]:
    """The globs of a project's file; none where there is no such file, or nothing of ours in it."""
    try:
        table: Any = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("mixpert", {})
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError) as error:
        raise SourceError(f"{path}: {' '.join(str(error).split())}") from None
    globs = table.get("exclude", []) if isinstance(table, dict) else None
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise SourceError(f"{path}: [tool.mixpert] exclude is a list of globs")
    if unknown := sorted(table.keys() - {"exclude"}):
        raise SourceError(f"{path}: [tool.mixpert] has no {unknown[0]!r}; it has 'exclude'")
    return globs
