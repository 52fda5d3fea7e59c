"""The program's own line by which it came to a product of a library."""

import os
import sys
from collections.abc import Sequence

from mixpert_py.launch.launcher import Program
from mixpert_py.plan import module_of
from mixpert_py.sources import project
from mixpert_py.sources.packages import matches


class Callers:
    """Finds, while a product of a library is made, the innermost line of the program around it.

    folder: of the program's project; None: it has none. packages: those that are rewritten.
    """

    def __init__(self, program: Program, folder: str | None, packages: Sequence[str]) -> None:
        self._folder = folder
        self._packages = packages
        self._known: dict[str, str | None] = {program.filename: program.argv[0]}

    def __call__(self, site: str) -> str | None:
        """`file:line` of the program's call; None of its own products, and in threads of others."""
        if not matches(module_of(site), self._packages):
            return None
        frame = sys._getframe(1)
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            file = self._shown(frame.f_code.co_filename)
            if file is not None and not matches(name, ("mixpert_py", *self._packages)):
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def _shown(self, file: str) -> str | None:
        """A file of the program as a person writes it; None of any other file."""
        if file not in self._known:
            is_own = self._folder is not None and project.is_in(file, self._folder)
            self._known[file] = os.path.relpath(file, self._folder) if is_own else None
        return self._known[file]
