"""Runs of programs that break: each breaks that run only, forked or in a process of its own."""

import json
import os
import time
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.execution import process
from mixpert_py.launch import launcher
from mixpert_py.passes.pipeline import analyze
from mixpert_py.tuner.records import Reason
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from tests.every_check import some
from tests.mixpert_py import forked_runs
from tests.mixpert_py.execution.test_process import alive
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program

pytestmark = pytest.mark.skipif(not process.AVAILABLE, reason="forks")

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


@pytest.fixture(params=["forked", "new"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How trials are run."""
    way: str = request.param
    if way == "new":
        monkeypatch.setattr(process, "AVAILABLE", False)
    else:
        forked_runs.use(monkeypatch)  # the server that forked what broke takes the next one's jobs
    return way


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# New processes are slower, and differ less from what a program is used to.
CASES = [*((fault, "forked") for fault in FAULTS), *((fault, "new") for fault in some(FAULTS, 6))]


@pytest.mark.parametrize(("fault", "way"), CASES, indirect=["way"])
def test_a_fault_breaks_its_run_only(fault: str, way: str, folder: Path) -> None:
    statement, word = FAULTS[fault]
    (folder / "s.py").write_text(PROGRAM.replace("{fault}", statement))
    program = launcher.script("s.py")
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
    ("fault", "reason"), [("segfault", Reason.FAILED), ("not a number", Reason.OVER_BUDGET)]
)
def test_a_fault_rejects_its_plan_only(
    fault: str, reason: Reason, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked_runs.use(monkeypatch)
    (folder / "s.py").write_text(PROGRAM.replace("{fault}", FAULTS[fault][0]))
    options = TuningOptions(Limits(Limit(1e-4)), compare=("c",))
    tuned = tuned_program(launcher.script("s.py"), options, cost=float32_is_faster)
    schemes = {site.partition("/")[2][:3]: name for site, name in tuned.plan.schemes().items()}
    assert schemes == {"mat": "float32", "dot": "native"}
    broken = [trial for trial in tuned.outcome.trials if trial.plan != tuned.plan.schemes()][1:]
    assert broken
    assert {trial.reason for trial in broken} == {reason}


def experiment(text: str) -> Experiment:
    """Of a program that compares what it observes."""
    Path("s.py").write_text(text)
    return Experiment(launcher.script("s.py", ("x",)), TuningOptions(Limits(Limit(1.0, "max"))))


FACTS = """\
import gc, json, os, resource, signal, sys, threading
import numpy as np
facts = {
    "arguments": sys.argv,
    "name": [__name__, __file__, sys.modules["__main__"].__dict__ is globals()],
    "names": sorted(globals()),
    "path": sys.path,
    "flags": list(sys.flags),
    "environment": {k: v for k, v in os.environ.items()},
    "folder": os.getcwd(),
    "input": sys.stdin.read(),
    "files": sorted(os.listdir("/proc/self/fd")),
    "group": os.getpgrp() == os.getpid(),
    "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
    "main thread": threading.current_thread() is threading.main_thread(),
    "signals": [str(signal.getsignal(n)) for n in range(1, 30)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "limits": resource.getrlimit(resource.RLIMIT_AS),
    "mask": os.umask(0o22),
    "collector": gc.get_threshold(),
    "errors": np.geterr(),
    "output": [sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.write_through],
}
np.seterr(all="ignore")
os.environ["LEFT"] = "behind"
with open(f"{os.path.dirname(__file__)}/facts", "w") as file:
    json.dump({"parent": os.getppid(), "facts": facts}, file)
import mixpert_py
mixpert_py.observe("x", 1.0)
"""


def told() -> tuple[int, dict[str, Any]]:
    """The parent of the run before, and what it saw."""
    found = json.loads(Path("facts").read_text())
    return found["parent"], found["facts"]


@pytest.mark.usefixtures("folder")
def test_a_fork_sees_what_a_new_process_sees() -> None:
    made = experiment(FACTS)
    reference = made.native().values
    parent, facts = told()
    assert parent == os.getpid()
    servers = set()
    for _ in range(2):  # and the second one nothing of the first
        assert made.measure({}, reference).problem is None
        server, in_fork = told()
        servers.add(server)
        # The first run showed that the program writes where it runs.
        assert in_fork.pop("folder") != facts["folder"]
        assert in_fork == {name: fact for name, fact in facts.items() if name != "folder"}
    (server,) = servers
    assert server != parent
    assert made.profile(()).result.sites == {}
    assert told()[0] == server
    made.planned({}, reference, "verification, planned")
    assert told()[0] == parent

    del made
    assert not alive(server)


KILLS_ITS_PARENT = """\
import os, signal, time, mixpert_py
mixpert_py.observe("x", 1.0)
with open(f"/proc/{os.getppid()}/cmdline") as file:
    if "run_server" in (it := file.read()) or "execution.process" in it:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
"""


@pytest.mark.usefixtures("folder")
def test_a_job_is_run_again_if_its_server_is_lost() -> None:
    made = experiment(KILLS_ITS_PARENT)
    reference = made.native().values
    start = time.monotonic()
    assert [made.measure({}, reference).error for _ in range(2)] == [0, 0]
    assert time.monotonic() - start < 50
