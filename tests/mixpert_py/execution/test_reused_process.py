"""Jobs one after the other in one process: none sees the one before; what breaks is replaced."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.execution import fork_server, reused_process
from mixpert_py.execution.executor import Executor
from mixpert_py.launch import launcher
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from tests.mixpert_py import forked_runs
from tests.mixpert_py.execution.test_process import alive

pytestmark = pytest.mark.skipif(not fork_server.AVAILABLE, reason="packets between processes")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(text: str) -> Experiment:
    """Of a program that compares what it observes, and whose trials reuse a process."""
    Path("s.py").write_text(text)
    executor = Executor()
    executor.warm_start = reused_process.ReusedProcess
    options = TuningOptions(Limits(Limit(1.0, "max")))
    return Experiment(launcher.script("s.py", ("x",)), options, executor=executor)


TELLS = """\
import json, os
with open(os.path.join(os.path.dirname(__file__), "told"), "a") as file:
    print(json.dumps({"pid": os.getpid(), "facts": facts}), file=file)
import mixpert_py
mixpert_py.observe("x", 1.0)
"""


def told() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("told").read_text().splitlines()]


def runs_of(text: str, count: int = 3) -> list[dict[str, Any]]:
    """What a native run and trials told."""
    made = experiment(text + TELLS)
    reference = made.native().values
    for _ in range(count):
        assert made.measure({}, reference).problem is None
    return told()


FACTS = """\
import gc, os, random, signal, sys, threading, warnings
import numpy as np
import mine
facts = {
    "arguments": sys.argv,
    "name": [__name__, __file__, sys.modules["__main__"].__dict__ is globals()],
    "names": sorted(globals()),
    "path": sys.path,
    "environment": {k: v for k, v in os.environ.items()},
    "folder": os.getcwd(),
    "input": sys.stdin.read(),
    "group": os.getpgrp() == os.getpid(),
    "threads": threading.active_count(),
    "signals": [str(signal.getsignal(n)) for n in range(1, 30)],
    "limit": gc.get_threshold(),
    "errors": np.geterr(),
    "printing": str(np.get_printoptions()),
    "filters": [str(f[2]) for f in warnings.filters],
    "output": [sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.write_through],
    "hook": sys.excepthook is sys.__excepthook__,
    "mine": mine.seen,
}
mine.seen += 1
left = "behind"
sys.path.append("/left")
sys.argv.append("left")
os.environ["LEFT"] = "behind"
os.chdir("/")
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
np.seterr(all="ignore")
np.set_printoptions(precision=3)
warnings.simplefilter("error")
sys.excepthook = print
sys.stdout = sys.stderr
"""


def test_a_job_sees_what_a_new_process_sees(folder: Path) -> None:
    (folder / "mine.py").write_text("seen = 0\n")
    first, *others = runs_of(FACTS)
    # The first run had a copy, and showed that the program does not write where it runs.
    assert first["facts"].pop("folder") != str(folder)
    assert len({run["pid"] for run in others}) == 1
    assert first["pid"] != others[0]["pid"]
    for run in others:
        assert run["facts"].pop("folder") == str(folder)
        assert run["facts"] == first["facts"]


def test_jobs_are_seeded_apart() -> None:
    runs = runs_of(
        "import random, numpy as np\n"
        "facts = [random.random(), np.random.rand(), np.random.default_rng().random()]\n"
        "random.seed(0); np.random.seed(0)\n"
    )
    assert len({run["pid"] for run in runs[1:]}) == 1
    for column in zip(*(run["facts"] for run in runs), strict=True):
        assert len(set(column)) == len(runs)


# What cannot be put back: the next job gets a new process.
LEAVES = {
    "a thread": "import threading; threading.Thread(target=threading.Event().wait, "
    "daemon=True).start()",
    "a child": "import subprocess; subprocess.Popen(['sleep', '600'])",
    "something to do at its end": "import atexit; atexit.register(print)",
    "a limit": "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
    " if resource.getrlimit(resource.RLIMIT_CORE)[0] else resource.setrlimit("
    "resource.RLIMIT_NOFILE, (99, 99))",
    "a closed stream": "import sys; sys.stdout.close()",
    "a mask": "import os; os.umask(0o77)",
    "more memory": "import numpy; left = numpy.ones(300 << 20, 'b'); "
    "numpy.left = [*getattr(numpy, 'left', ()), left]",
}


@pytest.fixture
def forked_natives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are not trials are forks, which take less time than new processes."""
    forked_runs.use(monkeypatch)


@pytest.mark.usefixtures("forked_natives")
@pytest.mark.parametrize("left", LEAVES)
def test_what_stays_behind_stays_with_its_process(left: str) -> None:
    # Memory that the first job left may be that of libraries.
    count = 3 if left == "more memory" else 2
    pids = [run["pid"] for run in runs_of(f"{LEAVES[left]}\nfacts = 0\n", count)[1:]]
    assert len(set(pids)) == 2
    assert not alive(pids[0])


def test_a_process_ends_after_some_jobs() -> None:
    pids = [run["pid"] for run in runs_of("facts = 0\n", reused_process.MOST_JOBS + 1)[1:]]
    assert pids.count(pids[0]) == reused_process.MOST_JOBS
    assert pids[-1] != pids[0]


FAILS = """\
import os, sys, mixpert_py, numpy as np
mixpert_py.observe("x", 1.0)
print("this is said")
if os.path.exists(os.path.join(os.path.dirname(__file__), "fail")):
    {fault}
"""
FAULTS = {
    "a segfault": ("import ctypes; ctypes.string_at(0)", "killed by signal 11"),
    "an exception": ("raise ValueError('as it is')", "ended with exit code 1"),
    "leaves": ("os._exit(3)", "ended with exit code 3"),
    "leaves without a code": ("os._exit(0)", "left before its end"),
    "hangs": ("import time; time.sleep(600)", "still running after 2 s"),
    "kills its group": ("os.killpg(0, 15)", "killed by signal 15"),
    "a text": ("sys.exit('enough')", "exit code 1; its last lines:\nthis is said\nenough"),
}


@pytest.mark.usefixtures("forked_natives")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_that_breaks_takes_its_own_process_only(fault: str, folder: Path) -> None:
    statement, word = FAULTS[fault]
    it = experiment(FAILS.replace("{fault}", statement))
    reference = it.native().values
    it.time_limit = 2.0 if "2 s" in word else None
    assert it.measure({}, reference).error == 0
    (folder / "fail").touch()
    assert word in str(it.measure({}, reference).problem)
    (folder / "fail").unlink()
    assert it.measure({}, reference).error == 0


def test_it_ends_with_its_experiment() -> None:
    Path("told").touch()
    it = experiment("facts = 0\n" + TELLS)
    it.measure({}, {"x": np.ones(())})
    (run,) = told()
    assert alive(run["pid"])
    del it
    assert not alive(run["pid"])
