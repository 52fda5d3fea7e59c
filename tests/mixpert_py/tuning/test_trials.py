"""Runs are kept as they are made: what is interrupted goes on, and nothing harms a tuning."""

import errno
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from mixpert_py import plan
from mixpert_py.errors import MixPertError, ProgramError
from mixpert_py.launch import launcher
from mixpert_py.runs.run import Run
from mixpert_py.runs.worker import Result, SiteResult
from mixpert_py.tuning import trial_store
from mixpert_py.tuning.limits import Limit, Limits
from mixpert_py.tuning.trial_store import MOST_TUNINGS, SCHEMA, Store
from mixpert_py.tuning.trials import TRIAL, Trials, beside, latest
from mixpert_py.tuning.tuning import Tuned
from mixpert_py.tuning.wish import Wish
from tests.every_check import EVERY_CHECK
from tests.mixpert_py.command import IMPORTABLE, Mixpert
from tests.mixpert_py.tuning.tuned_program import tuned_program

# Counts its runs, so that one that is made twice is seen: beside itself, for it runs in copies of
# its working folder.
PROGRAM = """\
import os, numpy as np
with open(os.path.join(os.path.dirname(__file__), "runs"), "a") as file:
    file.write(".")
rng = np.random.default_rng(0)
a = rng.standard_normal((48, 48))
b = a @ a
c = b.dot(a)
"""
OPTIONS = ("--error", "1e-5", "--backend", "reference")
MANY_RUNS = ("--search", "greedy")
FILES = {"s.py", "s.mixpert.toml", "s.mixpert.trials.db", "runs", "temporary"}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.py"
    path.write_text(PROGRAM)
    return path


def runs(program: Path) -> int:
    counted = program.with_name("runs")
    return counted.stat().st_size if counted.exists() else 0


def database(program: Path) -> Path:
    return program.with_name("s.mixpert.trials.db")


def table(program: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database(program))) as connection:
        return connection.execute(query).fetchall()


def tuned(
    trials: Trials, on_run: Callable[[str], None] = lambda purpose: None, budget: float = 1e-5
) -> Tuned:
    wish = Wish(Limits(Limit(budget)), backend="reference")
    return tuned_program(launcher.script("s.py"), wish, on_run=on_run, trials=trials)


class After:
    """Ctrl-C before the run after so many."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, purpose: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


# ---- one tuning ----


def test_a_tuning_interrupted_after_every_run_makes_each_once(program: Path) -> None:
    undisturbed = tuned(Trials())
    needed = runs(program)
    assert needed >= 7
    for session in range(needed + 1):
        trials = Trials(database(program), resume=session > 0)
        try:
            found = tuned(trials, After(1))
        except KeyboardInterrupt:
            continue
        trials.end({"session": session}, finished=not found.outcome.interrupted)
        if not found.outcome.interrupted:
            break
        assert found.outcome.best.error <= 1e-5
    assert found.plan.schemes() == undisturbed.plan.schemes()
    assert found.outcome.trials == undisturbed.outcome.trials
    assert found.verification.error == undisturbed.verification.error
    assert runs(program) == 2 * needed
    assert latest(program.with_name("s.mixpert.toml")) == {"session": session}


def test_what_is_kept_of_a_run(program: Path) -> None:
    trials = Trials(database(program))
    found = tuned(trials)
    kept = table(program, "SELECT purpose, plan, error, seconds, result, machine FROM run")
    assert len(kept) == runs(program)
    purposes = [row[0] for row in kept]
    assert purposes[:4] == ["native run"] * 3 + ["profile"]
    assert purposes[-2:] == ["verification, native", "verification, planned"]
    trial = next(row for row in kept if row[0] == TRIAL)
    assert json.loads(str(trial[1])).keys() == found.plan.schemes().keys()
    assert trial[2] in [tried.measurement.error for tried in found.outcome.trials]
    assert trial[3] > 0  # type: ignore[operator]
    assert json.loads(str(trial[4]))["sites"].keys() == found.plan.schemes().keys()
    assert json.loads(str(trial[5])).keys() >= {"host", "cpu", "numpy"}


def test_values_are_those_of_the_baseline_once_and_go_when_it_is_finished(program: Path) -> None:
    trials = Trials(database(program))
    tuned(trials)
    assert table(program, "SELECT count(*) FROM content") == [(1,)]
    before = database(program).stat().st_size
    trials.end({}, finished=True)
    assert table(program, "SELECT count(*) FROM content") == [(0,)]
    assert database(program).stat().st_size < before - 48 * 48 * 8


def test_another_tuning_is_not_resumed(program: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(Trials(database(program)), After(2))
    for change in ("budget", "source"):
        said: list[str] = []
        if change == "source":
            program.write_text(PROGRAM + "# changed\n")
        with pytest.raises(KeyboardInterrupt):
            tuned(
                Trials(database(program), resume=True, say=said.append),
                After(0),
                budget=1e-5 if change == "source" else 2e-5,
            )
        assert len(said) == 1
        assert "no unfinished tuning" in said[0]
    program.write_text(PROGRAM)
    with pytest.raises(KeyboardInterrupt):
        tuned(Trials(database(program), resume=True, say=said.append), After(0))
    assert said[1].endswith("runs made: 2")


def test_a_failed_trial_is_a_result_and_a_failed_native_run_is_not(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    trials = Trials(path)
    trials.begin({})
    trials.keep_failure("native run", {}, "it comes before any run that was made")
    assert not path.exists()
    trials.keep("native run", {}, RUN)
    trials.keep_failure("native run", {}, "no memory")
    trials.keep_failure(TRIAL, {"x": "int8x1"}, "no number: \udc80")
    again = Trials(path, resume=True)
    again.begin({})
    assert again.take("native run", {}) is not None
    assert again.take("native run", {}) is None
    with pytest.raises(ProgramError, match="no number"):
        again.take(TRIAL, {"x": "int8x1"})
    assert again.take(TRIAL, {"x": "int8x1"}) is None


SITE = SiteResult(2, 0.1 + 0.2, [(3, 4, 5, 2)], {"native": 2}, {}, {"float64": 2}, {"int8x1": None})
RESULT = Result(1 / 3, {"s:f/matmul~0a#0": SITE}, {}, [])
VALUES = {
    "file": np.arange(6.0).reshape(2, 3),
    "a/b \\ \udc80": np.float32([np.nan, -0.0, np.inf]),
    "scalar": np.array(1 + 2j),
    "empty": np.zeros((0, 3), np.int8),
    "long": np.array([1], np.longdouble) / 3,
}
RUN = Run(RESULT, VALUES)


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    trials = Trials(path)
    trials.begin({"arguments": ["\udcff"]})
    trials.keep("native run", {}, RUN)
    trials.keep(TRIAL, {"x": "int8x1", "a": "native"}, Run(RESULT, {}, 1e-7, "file"))
    trials.keep(TRIAL, {"x": "int8x2"}, Run(RESULT, {}, float("inf")))
    again = Trials(path, resume=True)
    again.begin({"arguments": ["\udcff"]})
    native = again.take("native run", {})
    assert native is not None
    assert native.result == RESULT
    assert list(native.values) == list(VALUES)
    for name, value in VALUES.items():
        assert native.values[name].dtype == value.dtype
        np.testing.assert_array_equal(native.values[name], value)
    judged = again.take(TRIAL, {"a": "native", "x": "int8x1"})
    assert judged == Run(RESULT, {}, 1e-7, "file")
    assert again.take(TRIAL, {"x": "int8x2"}) == Run(RESULT, {}, float("inf"))


def test_values_that_are_too_large_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixpert_py.tuning.trials.MOST_BYTES", 100)
    trials = Trials(tmp_path / "t.db")
    trials.begin({})
    trials.keep("native run", {}, Run(RESULT, {"x": np.zeros(13)}))
    trials.keep("native run", {}, Run(RESULT, {"x": np.zeros(12)}))
    again = Trials(tmp_path / "t.db", resume=True)
    again.begin({})
    taken = again.take("native run", {})
    assert taken is not None
    assert taken.values["x"].size == 12
    assert again.take("native run", {}) is None


def test_old_tunings_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    for number in range(MOST_TUNINGS + 5):
        trials = Trials(path)
        trials.begin({"finished": number})
        trials.keep("native run", {}, Run(RESULT, {"x": np.full(9, number)}))
        trials.end({"number": number}, finished=True)
    for number in range(MOST_TUNINGS + 5):
        trials = Trials(path)
        trials.begin({"unfinished": number})
        trials.keep("native run", {}, Run(RESULT, {"x": np.full(9, number)}))
    with closing(sqlite3.connect(path)) as connection:
        for name, count in (("tuning", 2), ("run", 2), ("content", 1)):
            (found,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
            assert found == count * MOST_TUNINGS
    assert latest(tmp_path / "t.mixpert.toml") == {"number": MOST_TUNINGS + 4}


# ---- the place ----


def test_where_trials_are_kept(tmp_path: Path) -> None:
    assert beside(Path("a/mlp.mixpert.toml")) == Path("a/mlp.mixpert.trials.db")
    assert beside(Path("plan")) == Path("plan.trials.db")
    assert beside(Path("/dev/stdout")) is None
    assert latest(tmp_path / "none.mixpert.toml") is None
    assert latest(Path("/dev/stdout")) is None


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE tuning (mine)")


def newer(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")


def text(path: Path) -> None:
    path.write_text("what the user wrote\n" * 99)


def cut(path: Path) -> None:
    Store(path).close()
    os.truncate(path, 5000)


@pytest.mark.parametrize("make", [foreign, newer, text, cut], ids=lambda make: make.__name__)
def test_what_is_not_ours_is_refused_and_left(
    make: Callable[[Path], None], program: Path, mixpert: Mixpert
) -> None:
    make(database(program))
    before = database(program).read_bytes()
    said = mixpert("tune", *OPTIONS, "s.py")
    assert said.code == 2
    assert "s.mixpert.trials.db: " in said.one_clear_line()
    assert database(program).read_bytes() == before
    assert runs(program) == 0
    with pytest.raises(MixPertError, match=r"s\.mixpert\.trials\.db: "):
        latest(program.with_name("s.mixpert.toml"))


def test_an_empty_file_is_ours(program: Path) -> None:
    database(program).touch()
    assert latest(program.with_name("s.mixpert.toml")) is None
    tuned(Trials(database(program)))
    assert table(program, "SELECT count(*) FROM tuning") == [(1,)]


FAILURES = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    sqlite3.OperationalError("database or disk is full"),
    sqlite3.OperationalError("attempt to write a readonly database"),
    sqlite3.DatabaseError("database disk image is malformed"),
]


@pytest.mark.parametrize("step", ["__init__", "begin", "add", "end"])
@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_file_that_fails_costs_one_line_and_no_run(
    step: str, failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    trials = Trials(tmp_path / "t.db", say=said.append)
    trials.begin({})

    def fail(*arguments: object, **options: object) -> None:
        raise failure

    monkeypatch.setattr(Store, step, fail)
    trials.keep("native run", {}, RUN)
    trials.keep("native run", {}, RUN)
    trials.end({}, finished=True)
    assert len(said) == 1
    assert said[0] == f"{tmp_path / 't.db'}: runs are not kept from here on: {failure}"


def test_a_full_disk_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    trials = Trials(tmp_path / "t.db", say=said.append)
    trials.begin({})
    trials.keep("native run", {}, RUN)
    connect = sqlite3.connect

    def small(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA max_page_count = 1")  # SQLite's least: what is there already
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(trial_store.sqlite3, "connect", small)
    noise = np.random.default_rng(0).random(10**5)
    trials.keep("native run", {}, Run(RESULT, {"x": noise}))
    assert said == [f"{tmp_path / 't.db'}: runs are not kept from here on: "
                    "database or disk is full"]  # fmt: skip
    monkeypatch.undo()
    again = Trials(tmp_path / "t.db", resume=True)
    again.begin({})
    assert again.take("native run", {}) is not None
    assert again.take("native run", {}) is None


def test_a_place_that_cannot_be_written_costs_the_record_only(
    program: Path, mixpert: Mixpert
) -> None:
    database(program).mkdir()
    said = mixpert("tune", *OPTIONS, "s.py")
    assert said.code == 0
    assert "runs are not kept from here on: unable to open" in said.one_clear_line()
    assert plan.load(program.with_name("s.mixpert.toml")).site


def test_a_file_that_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    first = Trials(path)
    first.begin({})
    first.keep("native run", {}, RUN)
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("root may write everything")
    said: list[str] = []
    trials = Trials(path, resume=True, say=said.append)
    trials.begin({})
    assert trials.take("native run", {}) is not None
    trials.keep("native run", {}, RUN)
    assert "readonly" in said[1]


def test_damaged_contents_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    trials = Trials(path)
    trials.begin({})
    for _ in range(2):
        trials.keep("native run", {}, RUN)
    trials.keep(TRIAL, {}, Run(RESULT, {}, 1e-7, "file"))
    with closing(sqlite3.connect(path)) as connection:
        (npz,) = connection.execute("SELECT npz FROM content").fetchone()
        middle = len(npz) // 2
        damaged = npz[:middle] + bytes(9) + npz[middle + 9 :]
        connection.execute("UPDATE content SET npz = ?", (damaged,))
        connection.execute("UPDATE run SET result = '{' WHERE purpose = 'trial'")
        connection.commit()
    again = Trials(path, resume=True)
    again.begin({})
    assert again.take("native run", {}) is None
    assert again.take(TRIAL, {}) is None


# ---- several processes ----

# Each of the processes that it forks is ready at once, and they keep their runs at the same time.
KEEPERS = """\
import os, sys
from pathlib import Path
import numpy as np
from mixpert_py.plan import Criterion, Plan, save
from mixpert_py.tuning.trials import Trials, beside
from tests.mixpert_py.tuning.test_trials import RESULT, Run
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
for number in range(20):
    trials.keep("native run", {"n": str(number)}, Run(RESULT, {"x": np.full(999, number)}))
    save(Plan(criterion=[Criterion(name, "frobenius", 1.0)]), path)
trials.end({"name": name}, finished=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_sixteen_processes_keep_all_their_runs(program: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    subprocess.run([sys.executable, "-c", KEEPERS], env=environment, check=True, timeout=100)
    assert table(program, "SELECT count(*) FROM run") == [(16 * 20,)]
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
    for tuner in tuners:
        code, err = tuner.ended()
        assert (code, err) == (0, "")
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
    interrupted_tunings(program, 4 if EVERY_CHECK else 2, signal.SIGINT)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_twenty_interrupts_at_any_time(program: Path, number: signal.Signals) -> None:
    interrupted_tunings(program, 20, number)
