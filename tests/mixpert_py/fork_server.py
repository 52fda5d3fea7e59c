"""A process that has made its imports and forks one for each command or run that a test asks for.

A fork saves the interpreter's start and the imports, most of what a short command takes. It ends as
an interpreter does that was started for the command, which `runpy` runs as `python` would.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
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


# Elsewhere a fork must not multiply, and a socket does not keep the bounds of packets.
AVAILABLE = sys.platform == "linux"
ANSWER = 64  # bytes
LONGEST = 1 << 17  # bytes of a request
PATIENCE = 60.0  # seconds for the server's imports and a fork


class Server:
    """The parent's end of a server, which ends with this object.

    command: starts the server, and is followed by the descriptor that `forked` takes.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            child = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.close = weakref.finalize(self, _end, self._socket, child)

    def fork(self, request: str, streams: Sequence[int]) -> int:
        """Fork for a request, and return the fork's number. streams: its stdout and stderr, or its
        stdin, too.
        """
        socket.send_fds(self._socket, [os.fsencode(request)], streams)
        return self.receive(bytearray(ANSWER), PATIENCE)

    def receive(self, answer: bytearray, timeout: float | None) -> int:
        """Receive the server's next answer, unless `answer` holds it already; return its number.

        answer: a buffer of zeros, which receives the answer: Ctrl-C could lose a returned value.
        """
        if not any(answer):
            self._socket.settimeout(timeout)
            if not self._socket.recv_into(answer):
                raise EOFError
        return int(answer.rstrip(b"\0"))


def _end(parent: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    parent.close()
    server.kill()
    server.wait()


def forked(descriptor: str) -> str | None:
    """Serve: returns the request in each process that was forked, and at the end None in the
    server. The answers are the process's number, then its exit code, each in one packet.
    """
    gc.freeze()  # a collection in a fork would copy all that it shares with the server
    parent = socket.socket(fileno=int(descriptor))
    while True:
        request, streams, _, _ = socket.recv_fds(parent, LONGEST, 3)
        if not request:
            return None
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            for number, stream in zip(range(3 - len(streams), 3), streams, strict=True):
                os.dup2(stream, number)
                os.close(stream)
            parent.close()
            return os.fsdecode(request)
        os.setpgid(pid, pid)  # the group must exist when the parent learns its number
        for stream in streams:
            os.close(stream)
        parent.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        parent.send(str(os.waitstatus_to_exitcode(status)).encode())


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

    def ask(self, server: Server, stdin: str = "", patience: float = 100.0) -> tuple[int, str, str]:
        """The command's exit code (negative for a signal), and what is on its stdout and stderr."""
        with ExitStack() as stack:
            files = [stack.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            server.fork(json.dumps(vars(self)), [file.fileno() for file in files])
            try:
                code = server.receive(bytearray(ANSWER), patience)
            except TimeoutError:
                server.close()
                raise
            for file in files[1:]:
                file.seek(0)
            return code, files[1].read(), files[2].read()


def serve() -> None:
    """Run one request in each process that is forked; the server itself ends here.

    The module that calls this has made the imports.
    """
    with known_code():
        given = forked(sys.argv[-1])
        if given is None:
            return
        request = Request(**json.loads(given))
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        is_script = request.program.endswith(".py")
        sys.argv = [request.program, *request.arguments]
        sys.path[0] = str(Path(request.program).parent) if is_script else request.folder
        sys.path[1:1] = request.importable
        if is_script:
            runpy.run_path(request.program, run_name="__main__")
        else:
            runpy.run_module(request.program, run_name="__main__", alter_sys=True)
