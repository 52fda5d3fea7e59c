"""Finds, reads and safely writes back the source files that a command is given."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mixpert_py import files
from mixpert_py.errors import SourceError, writing
from mixpert_py.passes import MAX_BYTES
from mixpert_py.sources import project
from mixpert_py.sources.project import SKIPPED_FOLDERS

NOTEBOOK = ".ipynb"
# Most of a notebook is pictures, and its code is held to the limits of a source file.
MAX_NOTEBOOK_BYTES = 64 << 20


class SourceFile(NamedTuple):
    """A file, and the folder in which it was found: links that lead out of it are not written to.

    is_named: whether the user gave the path of the file itself. Such a file is parsed even if it
    cannot have a product.
    """

    path: str
    root: str
    is_named: bool = False


def files_of_projects(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[SourceFile]:
    """The programs and notebooks that the paths name.

    These are named files, and files of named folders that neither `exclude` nor the folder's
    project excludes. `[tool.mixpert] exclude` has globs of names, and of paths relative to
    pyproject.toml. Raises SourceError if pyproject.toml is wrong.
    """
    for path in paths:
        found = source_files([path], exclude)
        if not os.path.isdir(path):
            yield from found
            continue
        root = project.folder_of(path)
        patterns = project.excluded(root)
        for file in found:
            inside = os.path.relpath(os.path.abspath(file.path), root)
            if not _excluded(inside, patterns):
                yield file


def source_files(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[SourceFile]:
    """Return each path that is a file, and every .py and .ipynb file below each folder, once."""
    for path in paths:
        if not os.path.isdir(path):
            yield SourceFile(path, os.path.dirname(path) or ".", is_named=True)
            continue
        found = [file for file in _below(path) if not _excluded(file, exclude)]
        own = {os.path.realpath(file) for file in found if not os.path.islink(file)}
        for file in found:
            if not os.path.islink(file) or os.path.realpath(file) not in own:
                yield SourceFile(file, path)


def read(path: str) -> bytes:
    """A source file's bytes; of a file that is too large, one byte more than is accepted.

    Raises SourceError, in one line, if it cannot be read or is an archive.
    """
    return _read(path, (MAX_NOTEBOOK_BYTES if path.endswith(NOTEBOOK) else MAX_BYTES) + 1)


def read_whole(path: str | Path) -> bytes:
    """Read all bytes of a file, however large. Raises SourceError, in one line, if that fails."""
    return _read(path, -1)


def _read(path: str | Path, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read(most)
    except OSError as error:
        raise SourceError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if b"\0" in raw:  # in no source that Python takes
        from zipfile import is_zipfile

        if is_zipfile(path):
            raise SourceError(f"{path}: an archive; unpack it, and give the folder")
    return raw


def write_back(file: SourceFile, before: bytes, after: bytes) -> None:
    """Replace the bytes of a file that was read as `before`; its mode and owner stay.

    Raises SourceError, and leaves the file, if it is a link that leads out of its root, has other
    names, or has changed since it was read.
    """
    target = os.path.realpath(file.path)
    with writing(file.path):
        if os.path.islink(file.path) and not _is_inside(target, file.root):
            raise SourceError(
                f"{file.path}: a link that leads out of {file.root}; name the file that it leads to"
            )
        names = os.stat(target).st_nlink
        if names > 1:
            raise SourceError(
                f"{file.path}: has {names} names (hard links), and only one would be rewritten; "
                "write to another file with -o"
            )
        now = read(target)
        if now not in (before, after):
            raise SourceError(f"{file.path}: changed while it was being rewritten; try again")
        if now != after:
            files.replace(Path(target), after)


def _below(folder: str) -> Iterator[str]:
    """Find every source file below a folder, except in hidden folders and SKIPPED_FOLDERS."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED_FOLDERS and name[0] != "."
        )
        for name in sorted(names):
            file = os.path.join(here, name)
            if name.endswith((".py", NOTEBOOK)) and (os.path.isfile(file) or os.path.islink(file)):
                yield file


def _excluded(file: str, patterns: Sequence[str]) -> bool:
    posix = Path(file).as_posix()
    return any(
        fnmatch.fnmatch(posix, pattern) or fnmatch.fnmatch(Path(file).name, pattern)
        for pattern in patterns
    )


def _is_inside(target: str, root: str) -> bool:
    return Path(target).is_relative_to(os.path.realpath(root))


def shown_path(path: str) -> str:
    """A path relative to the current folder if it lies in there, else the whole path."""
    here = os.getcwd() + os.sep
    for given in (path, os.path.realpath(path)):
        if given.startswith(here):
            return given.removeprefix(here)
    return path
