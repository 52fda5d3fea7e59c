"""What a command line left behind."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mixpert_py.command_server import AVAILABLE, CommandServer, Request

ROOT = Path(__file__).parent.parent.parent
# For child processes: this checkout first, then whatever this process was given.
IMPORTABLE = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

# Variables that are not read when an interpreter or a library starts.
LATE = ("COLUMNS", "CUDA_VISIBLE_DEVICES", "TMPDIR")


@dataclass(frozen=True)
class Said:
    """What a command left."""

    code: int
    out: str
    err: str

    def one_clear_line(self) -> str:
        """The only line on stderr, which is no traceback."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        assert lines[0].startswith("mixpert: ")
        return lines[0]


Mixpert = Callable[..., Said]


def called(
    program: str, *arguments: str, folder: Path, stdin: str = "", **environment: str
) -> Said:
    """What a module, or a script (*.py), leaves, run in a folder by a new interpreter."""
    words = [program] if program.endswith(".py") else ["-m", program]
    done = subprocess.run(
        [sys.executable, *words, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=100,
        env=child_environment(**environment),
    )
    return Said(done.returncode, done.stdout, done.stderr)


def forked(
    program: str,
    *arguments: str,
    folder: Path,
    stdin: str = "",
    importable: tuple[str, ...] = (),
    **environment: str,
) -> Said:
    """As `called`, but by a fork of a process that has made the imports, if that can be done.

    importable: folders that PYTHONPATH has as well.
    """
    late = all(name.startswith("MIXPERT_") or name in LATE for name in environment)
    if importable:
        environment["PYTHONPATH"] = os.pathsep.join((IMPORTABLE, *importable))
    if not AVAILABLE or not late:
        return called(program, *arguments, folder=folder, stdin=stdin, **environment)
    request = Request(program, arguments, str(folder), child_environment(**environment), importable)
    return Said(*_server().run(request, stdin))


@cache
def _server() -> CommandServer:
    return CommandServer("tests.mixpert_py.mixpert_server", child_environment())


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a command: this process's, without our variables, and some more.

    Without pytest's as well, which name the test: those of all tests are to be the same.
    """
    ours = ("MIXPERT_", "PYTEST_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**clean, "PYTHONPATH": IMPORTABLE, "COLUMNS": "120", **more}
