"""Finds the program's line from which a product of a library was called."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter

from mixpert_py.launch.launcher import Program
from mixpert_py.plan import module_of
from mixpert_py.sources import project
from mixpert_py.sources.packages import matches

Shown = Callable[[str], str | None]
"""The file of some code → the file as a person writes it; None where it is not the program's."""


class Callers:
    """Finds the innermost line of the program around a library's product while it runs.

    packages: the rewritten packages. seconds: the time spent on finding the lines.
    """

    def __init__(self, shown: Shown, packages: Sequence[str]) -> None:
        self._shown = cache(shown)
        self._packages = packages
        self.seconds = 0.0

    def __call__(self, site: str) -> str | None:
        """`file:line` of the program's call; None for its own products, and in other threads."""
        start = perf_counter()
        line = self._line() if matches(module_of(site), self._packages) else None
        self.seconds += perf_counter() - start
        return line

    def _line(self) -> str | None:
        frame = sys._getframe(2)
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            file = self._shown(frame.f_code.co_filename)
            if file is not None and not matches(name, ("mixpert_py", *self._packages)):
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return None


def files_of(program: Program, folder: str | None) -> Shown:
    """A test for files of the program. folder: of its project; None without one."""

    def shown(file: str) -> str | None:
        if file == program.filename:
            return program.argv[0]
        is_own = folder is not None and project.is_in(file, folder)
        return os.path.relpath(file, folder) if is_own else None

    return shown
