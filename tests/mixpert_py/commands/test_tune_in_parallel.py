"""Several runs at a time: what a tuning finds is what it finds alone, whatever breaks."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mixpert_py import config, plan
from mixpert_py.execution import fork_server
from mixpert_py.launch import launcher
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from mixpert_py.tuning.trials import Trials
from tests.every_check import some
from tests.mixpert_py.command import IMPORTABLE, Mixpert
from tests.mixpert_py.execution.test_process import alive
from tests.mixpert_py.tuning.tuned_program import tuned_program

pytestmark = pytest.mark.skipif(not fork_server.AVAILABLE, reason="reads processes from /proc")

# Notes who runs it, and how many others do meanwhile: where there may be any, it takes longer.
CHAIN = """\
import os, time, numpy as np
here = os.path.dirname(__file__)
mine = os.path.join(here, f"running-{os.getpid()}")
open(mine, "w").close()
with open(os.path.join(here, "seen"), "a") as file:
    others = [name for name in os.listdir(here) if name.startswith("running-")]
    print(len(others), os.environ["OPENBLAS_NUM_THREADS"], file=file)
rng = np.random.default_rng(0)
a = rng.standard_normal((48, 48))
b = a @ a
c = b.dot(a)
d = np.tanh(c) @ b
time.sleep({"1": 0.2}.get(os.environ["OPENBLAS_NUM_THREADS"], 0))
os.remove(mine)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name)  # those of these tests
    monkeypatch.setattr(config, "blas_threads", lambda workers=1: max(1, 2 // workers))
    return tmp_path


def tuned(options: TuningOptions, trials: Trials | None = None) -> TuningResult:
    return tuned_program(launcher.script("s.py"), options, trials=trials)


def seen(folder: Path) -> list[list[str]]:
    """Of every run since the last question: how many there were then, and BLAS threads."""
    file = folder / "seen"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


@pytest.mark.parametrize("search", some(["predictive", "greedy"]))
def test_it_finds_what_it_finds_alone(search: str, folder: Path) -> None:
    (folder / "s.py").write_text(CHAIN)
    options = TuningOptions(Limits(Limit(1e-4)), backend="reference", search=search)
    alone = tuned(options)
    assert all(others == ["1", "2"] for others in seen(folder))
    together = tuned(replace(options, workers=2))
    assert together.plan.schemes() == alone.plan.schemes()
    assert together.outcome.trials == alone.outcome.trials
    runs = seen(folder)
    assert {threads for _, threads in runs} == {"1"}
    assert max(int(others) for others, _ in runs) == 2
    assert [others for others, _ in runs[:4] + runs[-2:]] == ["1"] * 6  # natives, verification


def test_times_are_not_measured_beside_other_runs(mixpert: Mixpert, folder: Path) -> None:
    (folder / "s.py").write_text(CHAIN)
    said = mixpert("tune", "--error", "1", "--workers", "2", "s.py")
    assert said.code == 2
    assert "--workers 2: runs at the same time would disturb" in said.one_clear_line()
    assert not (folder / "seen").exists()


@pytest.mark.parametrize("number", ["0", "two"])
def test_numbers_of_workers(number: str, mixpert: Mixpert, folder: Path) -> None:
    (folder / "s.py").write_text(CHAIN)
    said = mixpert("tune", "--error", "1", f"--workers={number}", "s.py")
    assert said.code == 2
    assert "--workers is a number of at least 1, or gpus" in said.err


def test_workers_for_gpus_that_are_not_there(mixpert: Mixpert, folder: Path) -> None:
    (folder / "s.py").write_text(CHAIN)
    said = mixpert("tune", "--error", "1", "--backend", "reference", "--workers", "gpus", "s.py")
    assert said.code == 2
    assert "there is no GPU that runs could use" in said.one_clear_line()


def descendants(pid: int) -> set[int]:
    """Of a process, at this moment."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.parametrize("seed", some(range(3)))
def test_ctrl_c_with_four_workers_leaves_a_plan_and_no_process(seed: int, folder: Path) -> None:
    (folder / "s.py").write_text(CHAIN)
    options = ["--error", "1e-4", "--backend", "reference", "--search", "greedy", "--workers", "4"]

    def tune(*more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "mixpert_py", "tune", *options, *more, "s.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": IMPORTABLE},
            start_new_session=True,
        )

    started = tune()
    wait_for_trials(folder)
    time.sleep(random.Random(seed).uniform(0, 1.5))
    before = descendants(started.pid)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode in (0, 130), said
    assert before
    end = time.monotonic() + 5  # a killed process takes a moment to be gone
    while any(alive(pid) for pid in before) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in before)
    if started.returncode == 130:
        assert "--resume goes on from here" in said
        again = tune("--resume")
        _, said = again.communicate(timeout=100)
        assert again.returncode == 0, said
    assert achieved(folder) <= 1e-4


def wait_for_trials(folder: Path) -> None:
    """Until runs are made at the same time."""
    for _ in range(600):
        file = folder / "seen"
        if file.exists() and any(not line.startswith("1") for line in file.open()):
            return
        time.sleep(0.05)
    raise AssertionError("no two runs at the same time")


def achieved(folder: Path) -> float:
    """The largest error that the plan has, as it was written."""
    return max(row.achieved for row in plan.load(folder / "s.mixpert.toml").criterion)
