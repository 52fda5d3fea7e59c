"""Many processes keep their runs in one file, and tunings that are ended go on."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.tuning.trials import Trials, latest
from tests.every_check import EVERY_CHECK
from tests.mixpert_py.command import IMPORTABLE
from tests.mixpert_py.tuning.counted import FILES, MANY_RUNS, OPTIONS, runs, table, tuned
from tests.mixpert_py.tuning.counted import program as program

# Each of the processes that it forks is ready at once, and they keep their runs at the same time.
KEEPERS = """\
import os, sys
from pathlib import Path
import numpy as np
from mixpert_py.plan import Criterion, Plan, save
from mixpert_py.tuning.trials import Trials, beside
from mixpert_py.execution.executor import ProgramRun
from tests.mixpert_py.tuning.counted import RESULT
codes, path, name = [], Path("s.mixpert.toml"), ""
for number in range(16):
    if not os.fork():
        name = str(number)
        break
else:
    codes = [os.wait()[1] for _ in range(16)]
    sys.exit(any(codes))
trials = Trials(beside(path), say=sys.exit)
trials.begin({"name": name})
for number in range(int(sys.argv[1])):
    trials.store("native run", {"n": str(number)}, ProgramRun(RESULT, {"x": np.full(999, number)}))
    save(Plan(criterion=[Criterion(name, "frobenius", 1.0)]), path)
trials.end({"name": name}, finished=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_sixteen_processes_keep_all_their_runs(program: Path) -> None:
    each = 20 if EVERY_CHECK else 6
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    command = [sys.executable, "-c", KEEPERS, str(each)]
    subprocess.run(command, env=environment, check=True, timeout=100)
    assert table(program, "SELECT count(*) FROM run") == [(16 * each,)]
    assert table(program, "SELECT count(*) FROM tuning WHERE finished NOT NULL") == [(16,)]
    assert table(program, "PRAGMA integrity_check") == [("ok",)]
    last = latest(program.with_name("s.mixpert.toml"))
    assert last is not None
    written = plan.load(program.with_name("s.mixpert.toml"))
    assert {last["name"], written.criterion[0].name} <= {str(n) for n in range(16)}
    assert set(os.listdir(program.parent)) <= FILES


@pytest.mark.slow
def test_sixteen_tuners_of_one_plan_file(program: Path) -> None:
    tuners = [Tuning(program.parent) for _ in range(16)]
    ended = [tuner.ended() for tuner in tuners]
    assert {code for code, _ in ended} == {0}
    assert {err.count("\n") for _, err in ended} <= {0, 1}
    assert all("another tuning of it is running" in err for _, err in ended if err)
    assert table(program, "SELECT count(*) FROM tuning WHERE finished NOT NULL") == [(16,)]
    assert table(program, "SELECT count(*) FROM run") == [(runs(program),)]
    assert table(program, "PRAGMA integrity_check") == [("ok",)]
    assert set(os.listdir(program.parent)) == FILES
    found = plan.load(program.with_name("s.mixpert.toml")).schemes()
    assert found == tuned(Trials()).plan.schemes()


class Tuning:
    """`mixpert tune` in a process; what descends from it can be told by its environment."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.mark = f"MIXPERT_TEST={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        (folder / "temporary").mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": IMPORTABLE, name: value}
        environment["TMPDIR"] = str(folder / "temporary")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mixpert_py", "tune", *OPTIONS, *options, "s.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=200)
        return self.process.returncode, err

    def left(self) -> list[str]:
        """Processes of this tuning that still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:  # gone, or somebody else's
                continue
        return found


def interrupted_tunings(program: Path, instants: int, number: signal.Signals) -> None:
    """Interrupt and resume until so many interrupts have hit; every end is the undisturbed one."""
    code, err = Tuning(program.parent, *MANY_RUNS).ended()
    assert code == 0, err
    path = program.with_name("s.mixpert.toml")
    undisturbed = plan.load(path).schemes()
    needed = runs(program)
    ends, hits, done, delay = 1, 0, True, random.Random(5)
    while hits < instants or not done:
        if done:
            path.unlink()
        tuning = Tuning(program.parent, *MANY_RUNS, "--resume")
        if hits < instants:
            # What comes while the interpreter itself starts or ends is Python's to answer.
            time.sleep(0.3 + delay.uniform(0, 2.5))
            tuning.process.send_signal(number)
        code, err = tuning.ended()
        assert code in (0, 130, -number), err
        assert code < 0 or "Traceback" not in err
        assert tuning.left() == []
        assert os.listdir(program.parent / "temporary") == []
        assert set(os.listdir(program.parent)) <= FILES
        hits += code == 130
        done = path.exists() and is_finished(program)
        if path.exists():
            # The best plan, or one on the way to it that was really run.
            found = plan.load(path)
            assert found.criterion[0].achieved <= 1e-5
            was_run = {str(row[0]) for row in table(program, "SELECT plan FROM run")}
            assert json.dumps(found.schemes(), sort_keys=True) in was_run
        if done:
            assert code != 130
            assert plan.load(path).schemes() == undisturbed
            ends += 1
    # A run is made again only where it was itself interrupted.
    assert runs(program) <= ends * needed + hits


def is_finished(program: Path) -> bool:
    """Whether the newest tuning is."""
    query = "SELECT finished NOT NULL FROM tuning ORDER BY id DESC LIMIT 1"
    return table(program, query) == [(1,)]


posix = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="sends signals")


@posix
def test_ctrl_c_and_resume_end_with_the_same_plan(program: Path) -> None:
    interrupted_tunings(program, 4 if EVERY_CHECK else 1, signal.SIGINT)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_twenty_interrupts_at_any_time(program: Path, number: signal.Signals) -> None:
    interrupted_tunings(program, 20, number)
