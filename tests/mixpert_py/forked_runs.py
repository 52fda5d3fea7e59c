"""Forks in the place of new interpreters for the runs of a program.

A run then takes the time of the program alone. `tests/mixpert_py/execution` tests the interpreters,
and that a fork sees what a new process sees. BLAS has one thread in them, as it has in the tests.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mixpert_py import config
from mixpert_py.execution import executor, process
from mixpert_py.execution.executor import Executor
from mixpert_py.execution.process import ForkServer

if TYPE_CHECKING:
    import pytest

AVAILABLE = process.AVAILABLE


SERVER = "tests.mixpert_py.run_server"  # its forks end sooner

Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]
FREE: list[tuple[Key, ForkServer]] = []  # the one that was used last is the last
MOST = 4
LOCK = threading.Lock()


class SharedServer:
    """A `ForkServer` whose servers outlive it: the next one takes them."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        others = [name for name in modules if name.partition(".")[0] != "numpy"]
        self._modules = ("numpy.random", *others)
        # pytest names the test in its environment, and a server serves many tests.
        self._environment = {k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST"}

    def begin(self) -> None:
        """Start a server, and let it wait for its first job."""
        self._put(self._new())

    def start(self, job_file: str) -> process.Child:
        server = self._take() or self._new()
        return _Child(server.start(job_file), partial(self._put, server))

    def close(self) -> None:
        """The servers stay for the next one."""

    def _new(self) -> ForkServer:
        return ForkServer(self._modules, self._environment, SERVER)

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


class _Child:
    """A process whose server is free when it has ended."""

    def __init__(self, child: process.Child, free: Callable[[], None]) -> None:
        self.pid, self.stdout = child.pid, child.stdout
        self._child, self._free = child, free
        self._is_free = False

    def wait(self, timeout: float | None = None) -> int:
        code = self._child.wait(timeout)
        if not self._is_free:
            self._is_free = True
            self._free()
        return code


def start_new(self: Executor, job_file: str) -> process.Child:
    """In the place of `Executor.start_new`."""
    return SharedServer((), config.child_environment()).start(job_file)


def one_thread() -> int:
    """In the place of `config.blas_threads`."""
    return 1


def use(patch: "pytest.MonkeyPatch") -> None:
    """Fork for the runs that this process asks for, as long as the patch lasts."""
    if AVAILABLE:
        patch.setattr(Executor, "start_new", start_new)
        patch.setattr(executor, "ForkServer", SharedServer)
        patch.setattr(config, "blas_threads", one_thread)


def use_here() -> None:
    """Fork for the runs of the processes that this one will fork. They share one server."""
    Executor.start_new = start_new  # type: ignore[method-assign]
    vars(executor)["ForkServer"] = SharedServer
    vars(config)["blas_threads"] = one_thread
    SharedServer((), config.child_environment()).begin()
    for _, server in FREE:
        server.close.atexit = False  # it is not theirs to end
