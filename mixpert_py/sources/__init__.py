"""The project of a program: its folder, its files, and the table `[tool.mixpert]`."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mixpert_py import files
from mixpert_py.errors import SourceError, one_line, writing
from mixpert_py.passes import MAX_BYTES
from mixpert_py.toml_lines import MAX_BYTES as MAX_TOML_BYTES
from mixpert_py.toml_lines import decoded, explained, shown, tables

PROJECT = "pyproject.toml"
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "venv", "site-packages"}
NOTEBOOK = ".ipynb"
# Most of a notebook is pictures, and its code is held to the limits of a source file.
MAX_NOTEBOOK_BYTES = 64 << 20


def folder_of(start: str) -> str:
    """The project of a folder: the folder or parent with pyproject.toml, else the folder itself.

    The user's home and folders above it are not projects: a file left there would make all files
    one project.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    folder = Path(os.path.realpath(start))
    for place in (folder, *folder.parents):
        if Path(home).is_relative_to(place):
            break
        if (place / PROJECT).is_file():
            return str(place)
    return str(folder)


class TuningDefaults(NamedTuple):
    """The options of `mixpert tune` that a project sets, as they would be typed."""

    error: tuple[str, ...] = ()
    criterion: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()


Texts: TypeAlias = str | list[str]


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exclude: list[str] = []
    packages: Texts = []
    error: int | float | str | list[int | float | str] = []
    criterion: Texts = []
    compare: Texts = []
    reproducible: bool = False


class _Tools(msgspec.Struct, frozen=True):
    """The table `[tool]`; other tools have the other keys."""

    mixpert: ProjectSettings = ProjectSettings()


def is_in(file: str, folder: str) -> bool:
    """Return whether a file in a project's folder belongs to the project, not to an environment."""
    if not file.startswith(folder.rstrip(os.sep) + os.sep):
        return False
    return not any(
        part in SKIPPED_FOLDERS or part[0] == "."
        for part in Path(file).relative_to(folder).parts[:-1]
    )


def tuning_defaults(script: str) -> TuningDefaults:
    """`error`, `criterion` and `compare` of a script's project. Raises SourceError."""
    ours = settings(folder_of(os.path.dirname(script)))
    return TuningDefaults(*map(_texts, (ours.error, ours.criterion, ours.compare)))


def packages(start: str | None) -> tuple[str, ...]:
    """`packages` of a folder's project; empty without a folder. Raises SourceError."""
    return () if start is None else _texts(settings(folder_of(start)).packages)


def is_reproducible(start: str | None) -> bool:
    """`[tool.mixpert] reproducible` of a folder's project; see `packages`."""
    return start is not None and settings(folder_of(start)).reproducible


def _texts(value: object) -> tuple[str, ...]:
    """A value, or a list of values, as the words of an option."""
    return tuple(map(str, value if isinstance(value, list) else [value]))


def settings(folder: str) -> ProjectSettings:
    """The table `[tool.mixpert]` of a folder, or its defaults. Raises SourceError in one line."""
    path = Path(folder, PROJECT)
    tools: Any = {}
    try:
        with path.open("rb") as file:
            tools = tables(decoded(file.read(MAX_TOML_BYTES + 1))).get("tool", {})
        return msgspec.convert(tools, _Tools).mixpert
    except FileNotFoundError:
        return ProjectSettings()
    except msgspec.ValidationError as error:
        keys, what = explained(str(error), tools)
        raise SourceError(f"{path}: key {shown(['tool', *keys])!r}: {what}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {one_line(error)}") from None


def files_of_projects(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    """The programs and notebooks that the paths name: named files, and files of named folders.

    `[tool.mixpert] exclude` has globs of names, and of paths relative to pyproject.toml. Raises
    SourceError if that is wrong.
    """
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        root = folder_of(path)
        patterns = settings(root).exclude
        for file in _below(path):
            inside = os.path.relpath(os.path.abspath(file), root)
            if not _excluded(file, exclude) and not _excluded(inside, patterns):
                yield file


def read(path: str) -> bytes:
    """A source file's bytes, at most one more than is accepted; SourceError if unreadable."""
    return read_whole(path, (MAX_NOTEBOOK_BYTES if path.endswith(NOTEBOOK) else MAX_BYTES) + 1)


def read_whole(path: str | Path, max_bytes: int = -1) -> bytes:
    """A file's bytes, or the first `max_bytes`. Raises SourceError, in one line."""
    try:
        with open(path, "rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise SourceError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def write_back(path: str, before: bytes, after: bytes) -> None:
    """Replace a file that was read as `before`. Raises SourceError if it has changed since."""
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
