"""A process that has made its imports and forks one for each command that a test calls.

A fork saves the interpreter's start and the imports, most of what a short command takes. It ends as
an interpreter does that was started for the command, which `runpy` runs as `python` would.
"""

import atexit
import gc
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mixpert_py.fork_end import known_code

AVAILABLE = sys.platform == "linux"  # elsewhere a fork must not multiply
PATIENCE = 100.0  # seconds


@dataclass(frozen=True)
class Request:
    """A command: `python -m MODULE ARGS…`, or `python SCRIPT.py ARGS…`.

    folder: in which it runs. importable: folders whose modules come before all others.
    """

    program: str
    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    importable: Sequence[str] = field(default=())


class CommandServer:
    """The parent's end; the server ends with this process.

    module: makes the imports and calls `serve`. flags: of its interpreter.
    """

    def __init__(self, module: str, environment: Mapping[str, str], *flags: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, *flags, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
        )
        atexit.register(self._close)

    def _close(self) -> None:
        """At the end of its input the server ends."""
        with self._server:
            pass

    def run(self, request: Request, stdin: str = "") -> tuple[int, str, str]:
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
                self._server.kill()
                raise subprocess.TimeoutExpired([request.program, *request.arguments], PATIENCE)
            code = int(self._server.stdout.readline())
            out, err = ((folder / stream).read_text() for stream in ("stdout", "stderr"))
            return code, out, err


def serve() -> None:
    """Run one request in each process that is forked; the server itself ends here.

    The module that calls this has made the imports.
    """
    gc.freeze()  # a collection in a fork would copy all that it shares with the server
    requests, answers = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "r"), (1, "w")))
    for line in requests:
        pid = os.fork()
        if pid == 0:
            requests.close()
            answers.close()
            return _run(Path(line.rstrip("\n")))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return None


def _run(folder: Path) -> None:
    """Take the request's files for the standard streams and all else that it says, and run it."""
    request = Request(**json.loads((folder / "request").read_text()))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        descriptor = os.open(folder / name, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    script = request.program.endswith(".py")
    sys.argv = [request.program, *request.arguments]
    sys.path[0] = str(Path(request.program).parent) if script else request.folder
    sys.path[1:1] = request.importable
    with known_code():
        if script:
            runpy.run_path(request.program, run_name="__main__")
        else:
            runpy.run_module(request.program, run_name="__main__", alter_sys=True)
