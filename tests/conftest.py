"""Tests that need a GPU are skipped, with the reason, where none can be used.

With `-n`, a process that has no tests left takes some from another. Signals that are ignored where
the tests are started (SIGINT by a shell's `&`, SIGHUP by nohup) are heeded again: tests send them,
and wait for what comes of it.

BLAS has one thread, here and in the processes that tests start: it takes two test processes' BLAS
several times as long to hand small products to threads on the same processors.

Temporary files are in memory where there is room: to make and remove as many as the tests do takes
a disk's file system a quarter of the time that all their processes take.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

# BLAS reads these when NumPy is first imported: so nothing above, and no plugin, may import it.
for _threads in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

# Tests start hundreds of interpreters, each of which would compile our modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; a container's is often 64 MiB


def _folder_in_memory() -> str | None:
    """A new one, for this process and those that it starts, unless TMPDIR says where."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    if shutil.disk_usage(MEMORY).free < ROOM:
        return None
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-", dir=MEMORY)
    return tempfile.tempdir


IN_MEMORY = _folder_in_memory()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus: int) -> None:
    """What a test that failed has left is kept."""
    if IN_MEMORY is not None and exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(IN_MEMORY, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many `-n auto` stands for."""
    usable = getattr(os, "sched_getaffinity", None)
    return 1 + (len(usable(0)) if usable else os.cpu_count() or 1)


def pytest_configure() -> None:
    for number in ("SIGINT", "SIGTERM", "SIGHUP"):
        one = getattr(signal, number, None)  # Windows has no SIGHUP
        if one is not None and signal.getsignal(one) is signal.SIG_IGN:
            handler = signal.default_int_handler if number == "SIGINT" else signal.SIG_DFL
            signal.signal(one, handler)


# Tests of five seconds and more begin first: the last one to end would keep one process busy.
LONG = ("test_kernels_compile", "in_the_simulator", "test_dask.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONG))
    from mixpert_py.runtime.gpu.device import Absent, find

    wanting = [item for item in items if item.get_closest_marker("gpu")]
    found = find() if wanting else None
    if isinstance(found, Absent):
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=found.sentence))


def pytest_collection_finish() -> None:
    """Let no later collection of garbage go through thousands of collected tests."""
    gc.collect()
    gc.freeze()


class _Last:
    """The file of the test that ran last."""

    path: Path | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test's devices are its own, and what the last one knew of calls is not so here.

    As a fixture this took a tenth of what a short test takes. Collections of garbage leave alone
    what earlier files' tests have made: IPython, for one, asks for a whole collection each time.
    """
    from mixpert_py.runtime.context import INITIAL

    INITIAL.known.clear()
    if item.path != _Last.path:
        _Last.path = item.path
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import WorkStealingScheduling

    # xdist's own deals the first quarter at once: nearly all that take long, to one process.
    return WorkStealingScheduling(config, log)
