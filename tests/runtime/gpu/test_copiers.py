"""Threads that copy parts of an array while others compute."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import staging
from mixpert_py.runtime.gpu.staging import Job

ROOT = Path(__file__).parents[3]
PARTS = 300

COPIERS = staging._Copiers()  # these tests' own


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three of them."""
    monkeypatch.setattr(staging, "_copiers", COPIERS)
    monkeypatch.setattr(processor, "cores", lambda: 4)
    return COPIERS


def counting(counts: list[int]) -> Any:
    def work(parts: Iterator[int]) -> None:
        for part in parts:
            counts[part] += 1

    return work


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize("count", [0, 1, 2, PARTS])
def test_every_part_is_done_once(count: int) -> None:
    counts = [0] * count
    job = Job(counting(counts), range(count))
    job.begin().end()
    assert counts == [1] * count
    job.end()
    job.stop()
    assert counts == [1] * count


@pytest.mark.usefixtures("some")
def test_all_threads_work() -> None:
    together = threading.Barrier(4)

    def work(parts: Iterator[int]) -> None:
        for _ in parts:
            together.wait(timeout=20)

    Job(work, range(4)).begin().end()


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize("who", ["caller", "copier"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_nobody_works_after_an_error(who: str, error: type[BaseException]) -> None:
    caller = threading.current_thread()
    working: list[int] = []
    raised: list[bool] = []

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            working.append(part)
            sleep(0.002)
            working.remove(part)
            if (threading.current_thread() is caller) == (who == "caller") and not raised:
                raised.append(True)
                raise error

    job = Job(work, range(PARTS))
    with pytest.raises(error):
        job.begin().end()
    assert not working
    counts = [0] * PARTS
    Job(counting(counts), range(PARTS)).begin().end()  # the copiers are still there
    assert counts == [1] * PARTS


FORKING = """
import os, threading
from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import staging

processor.cores = lambda: 4

def right():
    counts = [0] * 300
    def work(parts):
        for part in parts:
            counts[part] += 1
    staging.Job(work, range(300)).begin().end()
    here = [t for t in threading.enumerate() if t.name.startswith("copier ")]
    return counts == [1] * 300 and len(here) == 3

assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() and right() else 1)
assert os.waitpid(child, 0)[1] == 0
assert right()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody forks here")
def test_a_fork_has_helpers_of_its_own_and_the_end_waits_for_none() -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], cwd=ROOT, check=True, timeout=60
    )
