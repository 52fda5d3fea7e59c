"""Forks in the place of new interpreters for the runs of a program.

A run then takes the time of the program alone. `tests/mixpert_py/execution` tests the interpreters,
and that a fork sees what a new process sees. BLAS has one thread in them, as it has in the tests.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mixpert_py import config
from mixpert_py.execution import executor, fork_server, process
from mixpert_py.execution.executor import _Slot
from mixpert_py.execution.fork_server import ForkServer

if TYPE_CHECKING:
    import pytest

AVAILABLE = fork_server.AVAILABLE


SERVER = "tests.mixpert_py.run_server"  # its forks end sooner

Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]
FREE: list[tuple[Key, ForkServer]] = []  # the one that was used last is the last
MOST = 4
LOCK = threading.Lock()
NEW = _Slot.run_new


class SharedServer:
    """A `JobRunner` whose servers outlive it: the next one takes them."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        others = [name for name in modules if name.partition(".")[0] != "numpy"]
        self._modules = ("numpy.random", *others)
        # pytest names the test in its environment, and a server serves many tests.
        self._environment = {k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST"}

    def start(self) -> None:
        """Start a server, and let it wait for its first job."""
        self._put(ForkServer(self._modules, self._environment, SERVER))

    def run(self, job_file: str, limit: float | None) -> process.Ended | None:
        server = self._take() or ForkServer(self._modules, self._environment, SERVER)
        if (ended := server.run(job_file, limit)) is not None:
            self._put(server)
        return ended

    @property
    def _key(self) -> Key:
        return self._modules, frozenset(self._environment.items())

    def _take(self) -> ForkServer | None:
        with LOCK:
            found = next((pair for pair in FREE if pair[0] == self._key), None)
            if found is not None:
                FREE.remove(found)
            return found and found[1]

    def _put(self, server: ForkServer) -> None:
        with LOCK:
            FREE.append((self._key, server))
            dropped = FREE[:-MOST]
            del FREE[:-MOST]
        for _, one in dropped:
            one.close()


def run_new(self: _Slot, job_file: str, limit: float | None) -> process.Ended:
    """In the place of `_Slot.run_new`."""
    ended = SharedServer((), self._environment).run(job_file, limit)
    return ended or NEW(self, job_file, limit)


def one_thread(workers: int = 1) -> int:
    """In the place of `config.blas_threads`."""
    return 1


def use(patch: "pytest.MonkeyPatch") -> None:
    """Fork for the runs that this process asks for, as long as the patch lasts."""
    if AVAILABLE:
        patch.setattr(_Slot, "run_new", run_new)
        patch.setattr(executor, "ForkServer", SharedServer)
        patch.setattr(config, "blas_threads", one_thread)


def use_here() -> None:
    """Fork for the runs of the processes that this one will fork. They share one server."""
    _Slot.run_new = run_new  # type: ignore[method-assign]
    vars(executor)["ForkServer"] = SharedServer
    vars(config)["blas_threads"] = one_thread
    SharedServer((), config.child_environment(None, None)).start()
    for _, server in FREE:
        server.close.atexit = False  # it is not theirs to end
