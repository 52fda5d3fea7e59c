"""The project of a program, and the table `[tool.mixpert]` of its pyproject.toml."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from mixpert_py.errors import SourceError, one_line, short
from mixpert_py.toml_lines import MAX_BYTES, decoded, tables

PROJECT = "pyproject.toml"
TUNING = ("error", "criterion", "compare")
KEYS = frozenset({"exclude", "packages", *TUNING})
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

    Each is a value or a list of values. Raises SourceError if pyproject.toml is wrong.
    """
    path = Path(folder_of(os.path.dirname(script)), PROJECT)
    ours = table(path)
    return TuningDefaults(*(_texts(path, key, ours.get(key, [])) for key in TUNING))


def packages(start: str | None) -> tuple[str, ...]:
    """`[tool.mixpert] packages` of a folder's project; empty without a folder.

    Raises SourceError if pyproject.toml is wrong.
    """
    if start is None:
        return ()
    path = Path(folder_of(start), PROJECT)
    return _texts(path, "packages", table(path).get("packages", []))


def _texts(path: Path, key: str, value: object) -> tuple[str, ...]:
    """A value, or a list of values, as the words of an option; only `error` may be a number."""
    accepted = (str, int, float) if key == "error" else (str,)
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, accepted) and not isinstance(one, bool) for one in values):
        wanted = "a number or a text" if key == "error" else "a text"
        raise SourceError(f"{path}: [tool.mixpert] {key} is {wanted}, or a list of them")
    return tuple(map(str, values))


def excluded(folder: str) -> list[str]:
    """`[tool.mixpert] exclude` of a project's folder. Raises SourceError if it is wrong."""
    path = Path(folder, PROJECT)
    globs = table(path).get("exclude", [])
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise SourceError(f"{path}: [tool.mixpert] exclude is a list of globs")
    return globs


def table(path: Path) -> dict[str, Any]:
    """The table `[tool.mixpert]` of a project's file; empty without such a file.

    Raises SourceError, in one line, if it is wrong.
    """
    try:
        tools: Any = tables(decoded(_read(path))).get("tool", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {one_line(error)}") from None
    if not isinstance(tools, dict):
        raise SourceError(f"{path}: [tool] has to be a table")
    ours = tools.get("mixpert", {})
    if not isinstance(ours, dict):
        raise SourceError(f"{path}: [tool.mixpert] has to be a table")
    if unknown := sorted(ours.keys() - KEYS):
        known = ", ".join(map(repr, sorted(KEYS)))
        raise SourceError(f"{path}: [tool.mixpert] has no {short(unknown[0])!r}; it has {known}")
    return ours


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
