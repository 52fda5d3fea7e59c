"""Runs of programs that break: each breaks that run only."""

import sys
from math import isnan
from pathlib import Path

import pytest

from mixpert_py.launch.program import script
from mixpert_py.passes.pipeline import analyze
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from tests.mixpert_py import forked_runs
from tests.mixpert_py.execution.test_process import alive
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="faults by signals and limits of memory, as Linux has them"
)

# Breaks where the second product has lost digits. `exact` is made without a product.
PROGRAM = """\
import ctypes, os, resource, signal, subprocess, sys, threading, time
import numpy as np
a = np.random.default_rng(0).standard_normal((160, 160))
b = a @ a
c = a.dot(b)
exact = (a[:, :, None] * b).sum(1)
if abs(c - exact).max() > 1e-9:
    {fault}
"""

SLEEPERS = """\
children = [subprocess.Popen(["sleep", "600"]) for _ in range(8)]
    with open(os.path.join(os.path.dirname(__file__), "pids"), "w") as file:
        print(*(child.pid for child in children), file=file)
    sys.exit(1)"""

FAULTS = {
    "segfault": ("ctypes.string_at(0)", "killed by signal 11"),
    "leaves": ("os._exit(0)", "left before its end"),
    "exits with a text": ("sys.exit('enough')", "ended with exit code 1"),
    "never ends": ("time.sleep(600)", "still running after 3 s"),
    "a thread never ends": (
        "threading.Thread(target=time.sleep, args=(600,)).start()",
        "still running after 3 s",
    ),
    "leaves children": (SLEEPERS, "ended with exit code 1"),
    "runs out of memory": (
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31,) * 2); x = [b'']\n"
        "    while True: x.append(bytes(1 << 24))",
        "ended with exit code 1",
    ),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
    "kills its group": ("os.killpg(0, signal.SIGTERM)", "killed by signal 15"),
    "not a number": ("c[0, 0] = np.nan", None),
    "leaves no result": ("del c", "has no numeric value for c"),
    "floods": (
        "for _ in range(300): os.write(1, bytes(1 << 20))\n    sys.exit(1)",
        "ended with exit code 1",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_its_run_only(fault: str, folder: Path) -> None:
    statement, word = FAULTS[fault]
    (folder / "s.py").write_text(PROGRAM.replace("{fault}", statement))
    program = script("s.py")
    (dot,) = (site.id for site in analyze(program.source, program.module) if "/dot~" in site.id)
    made = Experiment(program, TuningOptions(Limits(Limit(1e-4)), compare=("c",)))
    reference = made.native().values
    made.time_limit = 3.0 if word and "3 s" in word else None
    broken = made.measure({dot: "float32"}, reference)
    if word is None:
        assert (broken.problem, isnan(broken.error)) == (None, True)
    else:
        assert word in str(broken.problem)
    made.time_limit = None
    assert made.measure({}, reference).error == 0
    pids = (folder / "pids").read_text().split() if fault == "leaves children" else []
    assert len(pids) == (8 if fault == "leaves children" else 0)
    assert not any(alive(int(pid)) for pid in pids)


@pytest.mark.parametrize(
    ("fault", "reason"), [("segfault", StopReason.FAILED), ("not a number", StopReason.OVER_BUDGET)]
)
def test_a_fault_rejects_its_plan_only(
    fault: str, reason: StopReason, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked_runs.use(monkeypatch)
    (folder / "s.py").write_text(PROGRAM.replace("{fault}", FAULTS[fault][0]))
    options = TuningOptions(Limits(Limit(1e-4)), compare=("c",))
    tuned = tuned_program(script("s.py"), options, cost=float32_is_faster)
    schemes = {site.partition("/")[2][:3]: name for site, name in tuned.plan.schemes().items()}
    assert schemes == {"mat": "float32", "dot": "native"}
    broken = [trial for trial in tuned.outcome.trials if trial.plan != tuned.plan.schemes()][1:]
    assert broken
    assert {trial.reason for trial in broken} == {reason}
