"""Forks in the place of new interpreters for the runs of a program.

A run then takes the time of the program alone. `tests/mixpert_py/execution` tests the interpreters.
BLAS has one thread in the forks, as it has in the tests.
"""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from mixpert_py import config, execution
from tests.mixpert_py.fork_server import ANSWER, AVAILABLE, Server

if TYPE_CHECKING:
    import pytest

MOST = 4
LOCK = threading.Lock()

Key = frozenset[tuple[str, str]]
start_new = execution.start


FREE: list[tuple[Key, Server]] = []  # the one that was used last is the last


class Forked:
    """A process that a server forked, as `subprocess.Popen` shows one. It frees the server."""

    def __init__(self, key: Key, job_file: str) -> None:
        self._key, self._server = key, _take(key) or _server(key)
        read_end, write_end = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(read_end, "rb")
        self._code = bytearray(ANSWER)
        self.pid = self._server.fork(job_file, [write_end, write_end])
        os.close(write_end)

    def wait(self, timeout: float | None = None) -> int:
        is_new = not any(self._code)
        try:
            code = self._server.receive(self._code, timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("", timeout or 0.0) from None
        if is_new:
            _put(self._key, self._server)
        return code


def _server(key: Key) -> Server:
    return Server(execution.python("tests.mixpert_py.run_server"), dict(key))


def _take(key: Key) -> Server | None:
    with LOCK:
        found = next((pair for pair in FREE if pair[0] == key), None)
        if found is not None:
            FREE.remove(found)
        return found and found[1]


def _put(key: Key, server: Server) -> None:
    with LOCK:
        FREE.append((key, server))
        dropped = FREE[:-MOST]
        del FREE[:-MOST]
    for _, one in dropped:
        one.close()


def _key(environment: Mapping[str, str]) -> Key:
    """pytest names the test in its environment, and a server serves many tests."""
    return frozenset((k, v) for k, v in environment.items() if k != "PYTEST_CURRENT_TEST")


def start(command: Sequence[str], environment: Mapping[str, str]) -> Any:
    """In the place of `execution.start`: a fork, where the command is a run."""
    if command[-2:-1] == [execution.WORKER]:
        return Forked(_key(environment), command[-1])
    return start_new(command, environment)


def one_thread() -> int:
    return 1


def use(patch: "pytest.MonkeyPatch") -> None:
    """Fork for the runs that this process asks for, as long as the patch lasts."""
    if AVAILABLE:
        patch.setattr(execution, "start", start)
        patch.setattr(config, "blas_threads", one_thread)


def use_here() -> None:
    """Fork for the runs of the processes that this one will fork. They share one server."""
    vars(execution)["start"] = start
    vars(config)["blas_threads"] = one_thread
    key = _key(config.child_environment())
    server = _server(key)
    server.close.atexit = False  # it is not theirs to end
    _put(key, server)
