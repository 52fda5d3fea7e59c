"""The project of a program, and the table `[tool.mixpert]` of its pyproject.toml."""

import os
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mixpert_py.errors import SourceError, one_line
from mixpert_py.toml_lines import MAX_BYTES, decoded, explained, shown, tables

PROJECT = "pyproject.toml"
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "venv", "site-packages"}


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


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[tool.mixpert]`."""

    exclude: list[str] = []
    packages: Texts = []
    error: int | float | str | list[int | float | str] = []
    criterion: Texts = []
    compare: Texts = []


class _Tools(msgspec.Struct, frozen=True):
    """The table `[tool]`; other tools have the other keys."""

    mixpert: Settings = Settings()


def is_in(file: str, folder: str) -> bool:
    """Whether a file in a project's folder belongs to the project, not to an environment."""
    if not file.startswith(folder.rstrip(os.sep) + os.sep):
        return False
    return not any(
        part in SKIPPED_FOLDERS or part[0] == "."
        for part in Path(file).relative_to(folder).parts[:-1]
    )


def tuning_defaults(script: str) -> TuningDefaults:
    """`[tool.mixpert] error`, `criterion` and `compare` of a script's project.

    Raises SourceError if pyproject.toml is wrong.
    """
    ours = settings(folder_of(os.path.dirname(script)))
    return TuningDefaults(*map(_texts, (ours.error, ours.criterion, ours.compare)))


def packages(start: str | None) -> tuple[str, ...]:
    """`[tool.mixpert] packages` of a folder's project; empty without a folder.

    Raises SourceError if pyproject.toml is wrong.
    """
    return () if start is None else _texts(settings(folder_of(start)).packages)


def _texts(value: object) -> tuple[str, ...]:
    """A value, or a list of values, as the words of an option."""
    return tuple(map(str, value if isinstance(value, list) else [value]))


def settings(folder: str) -> Settings:
    """The table `[tool.mixpert]` of a project's folder; the defaults without pyproject.toml.

    Raises SourceError, in one line, if it is wrong.
    """
    path = Path(folder, PROJECT)
    tools: Any = {}
    try:
        with path.open("rb") as file:
            tools = tables(decoded(file.read(MAX_BYTES + 1))).get("tool", {})
        return msgspec.convert(tools, _Tools).mixpert
    except FileNotFoundError:
        return Settings()
    except msgspec.ValidationError as error:
        keys, what = explained(str(error), tools)
        raise SourceError(f"{path}: key {shown(['tool', *keys])!r}: {what}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {one_line(error)}") from None
