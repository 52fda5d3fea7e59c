"""Benchmarks that are ended half-way: what was measured stays, and nothing goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mixpert_py.command import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")

SECONDS = 60.0  # to wait at most
STARTED = """
import sys, time
from mixpert_py.bench.apps.process import end_with_parent
end_with_parent()
print("ready", flush=True)
time.sleep(60)
"""
STARTS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
REHEARSES = """
from math import inf
from mixpert_py.bench.apps import run
def python(module, *arguments):
    import sys
    return [sys.executable, "-c", "import time; time.sleep(60)"]
run.process.python = python
print("ready", flush=True)
run._rehearse(run.chosen([]), run.Options("small", 1e-4, "samples", "reference"), inf)
"""


def started(*command: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_what_was_measured_before_a_signal_is_kept_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "apps.json"
    arguments = ("bench", "apps", "--size", "small", "--backend", "reference", "--json", str(path))
    ended = started("-m", "mixpert_py", *arguments)
    wait_until(lambda: path.exists() and bool(children(ended.pid)))
    below = children(ended.pid)
    ended.send_signal(signal.SIGTERM)
    out, err = ended.communicate(timeout=SECONDS)
    assert ended.returncode == 130
    assert "Traceback" not in err
    names = [record["name"] for record in json.loads(path.read_text("utf-8"))["apps"]]
    assert names[0] == "knn"
    assert "geometric mean" in out
    wait_until(lambda: all(map(gone, below)))


def test_a_signal_ends_a_rehearsal_with_all_its_processes() -> None:
    ended = started("-c", REHEARSES)
    assert ended.stdout is not None
    ended.stdout.readline()
    wait_until(lambda: len(children(ended.pid)) >= 2)
    below = children(ended.pid)
    ended.send_signal(signal.SIGTERM)
    _, err = ended.communicate(timeout=SECONDS)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    wait_until(lambda: all(map(gone, below)))


def test_a_process_ends_with_the_one_that_started_it() -> None:
    parent = started("-c", STARTS, STARTED)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate(timeout=SECONDS)
    wait_until(lambda: gone(child))
