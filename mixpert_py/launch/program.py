"""A Python program to run: a script, a module or a notebook, and its rewritten code."""

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from mixpert_py import config, sources
from mixpert_py.errors import RefusedProgramError, SourceError, named
from mixpert_py.sources import in_memory
from mixpert_py.sources.modules import spec_without_imports


class Program(NamedTuple):
    """A program to run: its source, and the facts about it that `python` would have set.

    argv: sys.argv. module: the first part of its site ids. path: the future sys.path[0]; for a
    module "" if there is no such entry. spec: for `-m`, else None.
    """

    source: bytes
    filename: str
    argv: tuple[str, ...]
    module: str
    path: str
    spec: ModuleSpec | None = None

    @property
    def is_notebook(self) -> bool:
        return self.filename.endswith(sources.NOTEBOOK)


def script(path: str, arguments: tuple[str, ...] = ()) -> Program:
    """Load `python path arguments…`. Raises SourceError if there is no such file."""
    source = sources.read_whole(Path(path))
    folder = os.path.dirname(os.path.realpath(path))
    return Program(
        source,
        path if os.path.isabs(path) else os.path.join(os.getcwd(), path),
        (path, *arguments),
        config.module_name(Path(path)),
        folder,
    )


def notebook(path: str, arguments: tuple[str, ...] = ()) -> Program:
    """The code cells of a notebook as one program, without IPython's lines and most `%%` cells.

    The text under magics that run it once, unchanged, stays. Raises SourceError if there is no such
    file, or it is not a notebook.
    """
    from mixpert_py.sources import notebook_file  # not above: a script needs no part of it

    raw = sources.read_whole(Path(path))
    try:
        source = notebook_file.notebook_text(raw)
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from None
    place = os.path.realpath(path)
    argv = (path, *arguments)
    return Program(source, place, argv, config.module_name(Path(path)), os.path.dirname(place))


def module(name: str, arguments: tuple[str, ...] = ()) -> Program:
    """Load `python -m name arguments…`, unrun. Raises SourceError if there is no such module."""
    folder, path = current_folder() or "", list(sys.path)
    if folder and not sys.flags.safe_path:
        sys.path.insert(0, folder)
    try:
        spec = spec_without_imports(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = spec_without_imports(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise SourceError(f"-m {name}: {error}") from None
    finally:
        sys.path[:] = path
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise SourceError(f"-m {name}: no such module with Python source")
    source = sources.read_whole(spec.origin)
    return Program(source, spec.origin, (spec.origin, *arguments), spec.name, folder, spec)


def current_folder() -> str | None:
    """The current folder, or None if it was removed: programs that need none still run there."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def compiled(program: Program) -> CodeType:
    """The rewritten code, or the original with a warning. Raises RefusedProgramError."""
    name, why = program.argv[0], ""
    try:
        with named(name, program.module):
            made = in_memory.rewritten(program.source, program.module, program.filename)
        if made is not None:
            return made.code
    except SourceError as error:
        why = str(error)
    try:
        original = compile(program.source, program.filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1  # none is named where a byte is NUL
        what = f"{name}: line {line}: {getattr(error, 'msg', error)}"
        raise RefusedProgramError(why or what) from None
    if why:
        in_memory.warn_that_it_runs_as_it_is(program.filename, why.removeprefix(f"{name}: "))
    return original


def project_folder(program: Program) -> str | None:
    """The folder of a program's project; for a module, that of the current folder."""
    return folder_of_project(program.filename if program.spec is None else None)


def folder_of_project(script: str | None) -> str | None:
    """The folder of a script's project; None: that of the current folder, if it is there."""
    start = current_folder()
    if script is not None and (start is not None or os.path.isabs(script)):
        place = os.path.realpath(script)
        start = place if os.path.isdir(place) else os.path.dirname(place)
    return None if start is None else sources.folder_of(start)
