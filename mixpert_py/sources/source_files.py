"""Finds, reads and safely writes back the source files that a command is given."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mixpert_py import files
from mixpert_py.errors import SourceError, writing
from mixpert_py.passes import MAX_BYTES
from mixpert_py.sources import project
from mixpert_py.sources.project import SKIPPED_FOLDERS

NOTEBOOK = ".ipynb"
# Most of a notebook is pictures, and its code is held to the limits of a source file.
MAX_NOTEBOOK_BYTES = 64 << 20


def files_of_projects(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    """The programs and notebooks that the paths name.

    These are named files, and files of named folders that neither `exclude` nor the folder's
    project excludes. `[tool.mixpert] exclude` has globs of names, and of paths relative to
    pyproject.toml. Raises SourceError if pyproject.toml is wrong.
    """
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        root = project.folder_of(path)
        patterns = project.settings(root).exclude
        for file in _below(path):
            inside = os.path.relpath(os.path.abspath(file), root)
            if not _excluded(file, exclude) and not _excluded(inside, patterns):
                yield file


def read(path: str) -> bytes:
    """A source file's bytes; of a file that is too large, one byte more than is accepted.

    Raises SourceError, in one line, if it cannot be read.
    """
    return _read(path, (MAX_NOTEBOOK_BYTES if path.endswith(NOTEBOOK) else MAX_BYTES) + 1)


def read_whole(path: str | Path) -> bytes:
    """Read all bytes of a file, however large. Raises SourceError, in one line, if that fails."""
    return _read(path, -1)


def _read(path: str | Path, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise SourceError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def write_back(path: str, before: bytes, after: bytes) -> None:
    """Replace the bytes of a file that was read as `before`; its mode and owner stay.

    Raises SourceError, and leaves the file, if it has changed since it was read.
    """
    with writing(path):
        now = read(path)
        if now not in (before, after):
            raise SourceError(f"{path}: changed while it was being rewritten; try again")
        if now != after:
            files.replace(Path(path), after)


def _below(folder: str) -> Iterator[str]:
    """Every source file below a folder, without links, hidden folders and SKIPPED_FOLDERS."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED_FOLDERS and name[0] != "."
        )
        for name in sorted(names):
            file = os.path.join(here, name)
            is_plain = os.path.isfile(file) and not os.path.islink(file)
            if is_plain and name.endswith((".py", NOTEBOOK)):
                yield file


def _excluded(file: str, patterns: Sequence[str]) -> bool:
    posix = Path(file).as_posix()
    return any(
        fnmatch.fnmatch(posix, pattern) or fnmatch.fnmatch(Path(file).name, pattern)
        for pattern in patterns
    )


def shown_path(path: str) -> str:
    """A path relative to the current folder if it lies in there, else the whole path."""
    here = os.getcwd() + os.sep
    for given in (path, os.path.realpath(path)):
        if given.startswith(here):
            return given.removeprefix(here)
    return path
