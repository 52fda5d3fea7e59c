"""A process that has made its imports and forks one for each command that a test calls."""

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

KEPT: dict[str, ModuleType] = {}


class _End:
    """An attribute of `sys` that ends the process when the interpreter clears that module.

    `sys` is cleared last but one, after all that the program can notice. What follows frees every
    interned string, which a fork would have to copy first.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._streams = sys.stdout, sys.stderr

    def __del__(self) -> None:
        for stream in self._streams:
            with suppress(Exception):
                stream.flush()
        os._exit(self._code & 255)


@contextmanager
def known_code() -> Iterator[None]:
    """Run what a fork is for, and let it end sooner where its exit code is a number."""
    code: object = 0
    try:
        yield
    except SystemExit as stop:
        code = stop.code or 0
        raise
    except BaseException:
        code = None
        raise
    finally:
        if isinstance(code, int) and _can_flush():  # any other is to be printed
            vars(sys)["end_of_fork"] = _End(code)


def _can_flush() -> bool:
    """Whether stdout is flushed at the end; where that fails, Python makes another exit code."""
    try:
        sys.stdout.flush()
    except Exception:  # the program may have put anything in the place of stdout
        return False
    return sys.stdout is sys.__stdout__


def keep_imported() -> None:
    """Leave the modules that are imported before a fork as they are when the fork ends.

    To be called before they are imported: of what is to run at the end, the first comes last. What
    a fork imports and makes itself ends as in any interpreter: files are closed, for instance.
    """
    atexit.register(_forget)
    os.register_at_fork(before=_keep)


def _keep() -> None:
    for name, module in sys.modules.items():
        if KEPT.get(name) is not module and name != "__main__":
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
            KEPT[name] = module


def _forget() -> None:
    for name, module in KEPT.items():
        if sys.modules.get(name) is module and name not in ("sys", "builtins"):
            del sys.modules[name]


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
