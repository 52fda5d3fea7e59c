"""What a command line left behind."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mixpert_py.fork_server import AVAILABLE, Request, Server

ROOT = Path(__file__).parent.parent.parent
# For child processes: this checkout first, then whatever this process was given.
IMPORTABLE = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

# Variables that are not read when an interpreter or a library starts.
LATE = ("COLUMNS", "CUDA_VISIBLE_DEVICES", "TMPDIR")


@dataclass(frozen=True)
class Said:
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
Words = str | tuple[str, ...]  # see `Shell`


def says(text: str, wanted: Words | None) -> bool:
    """Whether a stream holds what it is to hold: all of it if that ends a line or is empty."""
    if isinstance(wanted, tuple):
        return all(part in text for part in wanted)
    whole = wanted is not None and (wanted == "" or wanted.endswith("\n"))
    return wanted is None or (text == wanted if whole else wanted in text)


@dataclass(frozen=True)
class Shell:
    """A folder, and command lines of `mixpert` in it, each with what it is to leave.

    out, err: the whole stream where the text is empty or ends with a newline, else a part of it, or
    several parts.
    """

    folder: Path
    mixpert: Mixpert

    def __call__(
        self,
        line: str,
        code: int = 0,
        out: Words | None = None,
        err: Words | None = None,
        stdin: str = "",
        **environment: str,
    ) -> Said:
        said = self.mixpert(*shlex.split(line), stdin=stdin, **environment)
        assert said.code == code, said
        assert says(said.out, out), said
        assert says(said.err, err), said
        return said

    def write(self, files: Mapping[str, str | bytes]) -> Path:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.folder

    def read(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def json(self, line: str, code: int = 0) -> Any:
        return json.loads(self(line, code).out)

    def profile(self, line: str, code: int = 0) -> list[dict[str, Any]]:
        """The profile of `mixpert run --json` with these words."""
        self(f"run --json p.json {line}", code)
        found: list[dict[str, Any]] = json.loads(self.read("p.json"))
        return found


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
    return Said(*request.ask(_server(), stdin))


@cache
def _server() -> Server:
    command = [sys.executable, "-m", "tests.mixpert_py.mixpert_server"]
    return Server(command, child_environment())


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a command: this process's, without our variables, and some more.

    Without pytest's as well, which name the test: those of all tests are to be the same.
    """
    ours = ("MIXPERT_", "PYTEST_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**clean, "PYTHONPATH": IMPORTABLE, "COLUMNS": "120", **more}
