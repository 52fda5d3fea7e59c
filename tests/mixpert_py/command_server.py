"""A process that has made its imports and forks one for each command that a test calls.

A fork saves the interpreter's start and the imports, most of what a short command takes. It ends as
an interpreter does that was started for the command, which `runpy` runs as `python -m` would.
"""

import gc
import importlib
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mixpert_py import forked_runs

AVAILABLE = sys.platform == "linux"  # elsewhere a fork must not multiply
PATIENCE = 100.0  # seconds
IMPORTS = (
    "mixpert_py.cli",
    "mixpert_py.commands.tables",
    "mixpert_py.execution.executor",
    "mixpert_py.launch.running",
    "mixpert_py.passes.cross_check",
    "mixpert_py.runtime.api",
    "mixpert_py.runtime.reference.reference",
    "mixpert_py.sources.rewriting",
    "mixpert_py.tuning.search",
    "networkx",
    "numpy.random",
    "tomlkit",
)


@dataclass(frozen=True)
class Request:
    """A command: `python -m MODULE ARGS…`, in a folder, with an environment."""

    module: str
    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]


class CommandServer:
    """The parent's end. environment: what the interpreter and the imports read."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=dict(environment),
        )

    def run(self, request: Request, stdin: str) -> tuple[int, str, str]:
        """The command's exit code (negative for a signal), and what is on its stdout and stderr."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory(prefix="command-") as name:
            folder = Path(name)
            (folder / "stdin").write_text(stdin)
            (folder / "request").write_text(json.dumps(vars(request)))
            self._server.stdin.write(f"{folder}\n".encode())
            self._server.stdin.flush()
            if not select.select([self._server.stdout], [], [], PATIENCE)[0]:
                self.close()
                raise subprocess.TimeoutExpired([request.module, *request.arguments], PATIENCE)
            code = int(self._server.stdout.readline())
            out, err = ((folder / stream).read_text() for stream in ("stdout", "stderr"))
            return code, out, err

    def close(self) -> None:
        """End the server, which the test that started it must do."""
        self._server.kill()
        self._server.communicate()


def _forked_for_each_request() -> Path:
    """The folder of its request, in each process that was forked; the server itself ends here."""
    requests, answers = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "r"), (1, "w")))
    for line in requests:
        pid = os.fork()
        if pid == 0:
            requests.close()
            answers.close()
            return Path(line.rstrip("\n"))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    sys.exit()


def _become(folder: Path) -> Request:
    """Take the request's files for the standard streams, its environment, folder and arguments."""
    request = Request(**json.loads((folder / "request").read_text()))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        descriptor = os.open(folder / name, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    sys.path[0] = request.folder
    sys.argv[1:] = request.arguments
    return request


def main() -> None:
    for name in IMPORTS:
        importlib.import_module(name)
    forked_runs.use_here()
    gc.freeze()  # the collector would copy what the forks share
    request = _become(_forked_for_each_request())
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
