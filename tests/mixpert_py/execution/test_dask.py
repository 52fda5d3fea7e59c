"""Trials on a Dask cluster of two worker processes on this machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.errors import MixPertError
from mixpert_py.execution import dask
from mixpert_py.launch import launcher
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from tests.mixpert_py import forked_runs
from tests.mixpert_py.command import IMPORTABLE
from tests.mixpert_py.execution.test_process import alive
from tests.mixpert_py.tuning.tuned_program import tuned_program

distributed = pytest.importorskip("distributed", reason="Dask is not installed")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

PROGRAM = """\
import os, sys, time, numpy as np
from mine import SCALE
a = np.random.default_rng(0).standard_normal((48, 48)) * SCALE
b = a @ a
c = b.dot(np.load("matrix.npy"))
d = np.tanh(c)
with open({seen!r}, "a") as file:
    print(os.getpid(), os.getcwd(), os.path.dirname(__file__), file=file)
{more}
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", IMPORTABLE)
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    forked_runs.use(monkeypatch)  # for those that are made here
    (folder / "mine.py").write_text("SCALE = 1\n")
    import numpy as np

    np.save(folder / "matrix.npy", np.eye(48))
    return folder


def program(folder: Path, more: str = "") -> launcher.Program:
    (folder / "s.py").write_text(PROGRAM.format(seen=str(folder.parent / "seen"), more=more))
    return launcher.script("s.py")


def seen(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder.parent / "seen").read_text().splitlines()]


OPTIONS = TuningOptions(Limits(Limit(1e-4)), backend="reference")


def tuned(program: launcher.Program, options: TuningOptions) -> TuningResult:
    return tuned_program(program, options)


def test_it_finds_what_it_finds_here(address: str, folder: Path) -> None:
    it = program(folder)
    here = tuned(it, OPTIONS)
    (folder.parent / "seen").unlink()
    there = tuned(it, replace(OPTIONS, dask=address))
    assert there.plan.schemes() == here.plan.schemes()
    assert there.outcome.trials == here.outcome.trials
    first, *rows = seen(folder)
    assert first[1] != str(folder)  # a copy, in which it did not write
    places = [place for _, place, _ in rows]
    assert places[:2] + places[-2:] == [str(folder)] * 4
    away = [row for row in rows if row[1] != str(folder)]
    assert len(away) >= len(there.outcome.trials) - 1
    assert all(place == own for _, place, own in away)  # the program lies where it runs


def test_a_trial_that_fails_there_keeps_its_message(address: str, folder: Path) -> None:
    it = program(folder, "if abs(c - b).max() > 1e-9: print('so it is'); sys.exit(3)")
    found = tuned(it, replace(OPTIONS, dask=address))
    problems = [trial.measurement.problem for trial in found.outcome.trials]
    assert any("exit code 3; its last lines:\nso it is" in (said or "") for said in problems)


def workers(address: str) -> dict[str, int]:
    """Their processes."""
    with distributed.Client(address, set_as_default=False) as client:
        found: dict[str, int] = client.run(os.getpid)
        return found


def test_ctrl_c_ends_what_runs_there_but_the_workers(address: str, folder: Path) -> None:
    before = workers(address)
    program(folder, f"if os.getcwd() != {str(folder)!r}: time.sleep(600)")
    started = subprocess.Popen(
        [sys.executable, "-m", "mixpert_py", "tune", "--error", "1e-4", "--backend", "reference",
         "--dask", address, "s.py"],
        env={**os.environ, "PYTHONPATH": IMPORTABLE},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    pids: list[int] = []
    for _ in range(600):
        if (folder.parent / "seen").exists():
            pids = [int(pid) for pid, place, _ in seen(folder) if place != str(folder)]
        if pids:
            break
        time.sleep(0.1)
    assert pids
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "interrupted" in said
    for _ in range(200):
        if not any(alive(pid) for pid in pids):
            break
        time.sleep(0.1)
    assert not any(alive(pid) for pid in pids)
    assert workers(address) == before


def test_nobody_at_the_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "PATIENCE", 0.2)
    with pytest.raises(MixPertError, match=r"127\.0\.0\.1:9: no scheduler answers there"):
        tuned(program(folder), replace(OPTIONS, dask="tcp://127.0.0.1:9"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "measured times": ({"backend": None}, "let them be predicted"),
    "written files": ({"compare": ("x.npy",)}, "stay there"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_cluster_cannot_do(case: str, folder: Path) -> None:
    changes, word = REFUSED[case]
    with pytest.raises(MixPertError, match=word):
        tuned(program(folder), replace(OPTIONS, dask="tcp://127.0.0.1:9", **changes))
