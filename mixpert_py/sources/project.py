"""The project that a program belongs to: the folder whose modules `mixpert run` rewrites, too."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mixpert_py.errors import SourceError
from mixpert_py.sources import source_files
from mixpert_py.sources.pyproject import PROJECT, table
from mixpert_py.sources.pyproject import folder_of as folder_of
from mixpert_py.sources.source_files import SKIPPED_FOLDERS, SourceFile


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
    globs = table(path).get("exclude", [])
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise SourceError(f"{path}: [tool.mixpert] exclude is a list of globs")
    return globs
