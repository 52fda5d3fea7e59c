"""Runs are stored as they are made: what is interrupted goes on, and what a bad file costs."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py import plan
from mixpert_py.errors import MixPertError, ProgramError
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.launch.program import script
from mixpert_py.tuning.experiment import RunSettings
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.prepare import prepare
from mixpert_py.tuning.search import TuningResult, tune_each
from mixpert_py.tuning.trials import TRIAL, Trials, latest
from tests.mixpert_py.command import Mixpert
from tests.mixpert_py.tuning.counted import OPTIONS, PROGRAM, RESULT, lines, runs, store, tuned
from tests.mixpert_py.tuning.counted import program as program

VALUES = {
    "file": np.arange(6.0).reshape(2, 3),
    "a/b \\ \udc80": np.float32([np.nan, -0.0, np.inf]),
    "scalar": np.array(1 + 2j),
    "empty": np.zeros((0, 3), np.int8),
    "long": np.array([1], np.longdouble) / 3,
}
RUN = ProgramRun(RESULT, VALUES)


class After:
    """Ctrl-C before the run after so many."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, purpose: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def begun(path: Path, subject: dict[str, Any] | None = None, **options: Any) -> Trials:
    trials = Trials(path, **options)
    trials.begin(subject or {})
    return trials


def test_a_tuning_interrupted_after_every_run_makes_each_once(program: Path) -> None:
    undisturbed = tuned(Trials())
    needed = runs(program)
    assert needed >= 7
    for session in range(needed + 1):
        trials = Trials(store(program), resume=session > 0)
        try:
            found = tuned(trials, After(1))
        except KeyboardInterrupt:
            continue
        plan_file = program.with_name("s.mixpert.toml")
        trials.end(plan_file, {"session": session}, finished=not found.outcome.interrupted)
        if not found.outcome.interrupted:
            break
        assert found.outcome.best.error <= 1e-5
    assert found.plan.schemes() == undisturbed.plan.schemes()
    assert found.outcome.trials == undisturbed.outcome.trials
    assert found.verification.error == undisturbed.verification.error
    assert runs(program) == 2 * needed
    assert latest(program.with_name("s.mixpert.toml")) == {"session": session}


def test_a_line_that_is_torn_is_dropped(program: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(Trials(store(program)), After(3))
    whole = store(program).read_bytes()
    store(program).write_bytes(whole + b'{"type": "run", "purpose": "tri')
    said: list[str] = []
    assert not tuned(Trials(store(program), True, said.append)).outcome.interrupted
    assert said[0].endswith("UTC goes on; runs made: 3")
    assert store(program).read_bytes().startswith(whole)
    assert len(lines(program, "run")) == runs(program)


def test_a_tuning_of_several_budgets_goes_on_in_the_second(program: Path) -> None:
    options = TuningOptions(Limits(Limit(1e-3)), backend="reference", stricter=(1e-5,))

    def each(trials: Trials, count: int) -> list[dict[str, str]]:
        settings = RunSettings(After(count), trials=trials)
        prepared = prepare(script("s.py"), options, settings=settings)
        assert not isinstance(prepared, str)
        found = [it for it in tune_each(prepared) if isinstance(it, TuningResult)]
        return [it.plan.schemes() for it in found if not it.outcome.interrupted]

    undisturbed = each(Trials(), 99)
    needed = runs(program)
    assert each(Trials(store(program)), needed - 2) == undisturbed[:1]
    assert each(Trials(store(program), resume=True), 2) == undisturbed
    assert runs(program) == 2 * needed


def test_another_tuning_is_not_resumed(program: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(Trials(store(program)), After(2))
    for change in ("budget", "source"):
        said: list[str] = []
        if change == "source":
            program.write_text(PROGRAM + "# changed\n")
        budget = 1e-5 if change == "source" else 2e-5
        with pytest.raises(KeyboardInterrupt):
            tuned(Trials(store(program), resume=True, say=said.append), After(0), budget=budget)
        assert len(said) == 1
        assert "no unfinished tuning" in said[0]
    program.write_text(PROGRAM)
    with pytest.raises(KeyboardInterrupt):
        tuned(Trials(store(program), resume=True, say=said.append), After(0))
    assert said[1].endswith("runs made: 2")


def test_a_failed_trial_is_a_result_and_a_failed_native_run_is_not(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    trials = begun(path)
    trials.store_failure("native run", {}, "it comes before any run that was made")
    assert not path.exists()
    trials.store("native run", {}, RUN)
    trials.store_failure("native run", {}, "no memory")
    trials.store_failure(TRIAL, {"x": "int8x1"}, "no number: \udc80")
    again = begun(path, resume=True)
    assert again.take("native run", {}) is not None
    assert again.take("native run", {}) is None
    with pytest.raises(ProgramError, match="no number"):
        again.take(TRIAL, {"x": "int8x1"})
    assert again.take(TRIAL, {"x": "int8x1"}) is None


def test_a_new_tuning_keeps_the_record_of_the_plan_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.jsonl"
    for number in range(3):
        trials = begun(path, {"n": number})
        trials.store("native run", {}, RUN)
        assert latest(tmp_path / "t.mixpert.toml") == ({"n": number - 1} if number else None)
        trials.end(tmp_path / "t.mixpert.toml", {"n": number}, finished=number != 1)
        assert latest(tmp_path / "t.mixpert.toml") == {"n": number}
    assert path.read_text().count("\n") == 1  # the runs of a finished tuning are dropped


RECORD = '{"type": "record", "finished": true, "record": {}}\n'
TUNING = '{"type": "tuning", "version": 1, "subject": "", "begun": ""}\n'
STRANGERS: dict[str, bytes] = {
    "noise": b"\xff\x00\n" * 500,
    "a line in the middle": (TUNING + '{"type": "ru\n' + RECORD).encode(),
    "another kind": b'{"type": "other"}\n',
    "a newer version": TUNING.replace("1", "2").encode(),
    "deep": RECORD.replace("{}", "[" * 100_000).encode(),
}


@pytest.mark.parametrize("content", STRANGERS.values(), ids=STRANGERS)
def test_what_is_not_ours_is_refused_and_left(
    content: bytes, program: Path, mixpert: Mixpert
) -> None:
    store(program).write_bytes(content)
    for more in ((), ("--resume",)):
        said = mixpert("tune", *OPTIONS, *more, "s.py")
        assert said.code == 2
        line = said.one_clear_line()
        assert "s.mixpert.trials.jsonl: not a file of trials" in line
        assert len(line) < 500
    assert store(program).read_bytes() == content
    assert runs(program) == 0
    with pytest.raises(MixPertError, match=r"s\.mixpert\.trials\.jsonl: not a file of trials"):
        latest(program.with_name("s.mixpert.toml"))


def test_an_empty_file_is_ours(program: Path) -> None:
    store(program).touch()
    assert latest(program.with_name("s.mixpert.toml")) is None
    begun(store(program)).store("native run", {}, RUN)
    assert len(lines(program, "run")) == 1


def pipe(path: Path) -> None:
    os.mknod(path, stat.S_IFIFO | 0o600)


def folder_there(path: Path) -> None:
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere" / "t.jsonl")


@pytest.mark.parametrize("make", [pipe, folder_there, link_to_nothing], ids=lambda x: x.__name__)
@pytest.mark.parametrize("resume", [False, True])
def test_a_place_of_no_use_costs_one_line(
    make: Callable[[Path], None], resume: bool, program: Path, mixpert: Mixpert
) -> None:
    make(store(program))
    said = mixpert("tune", *OPTIONS, *(["--resume"] if resume else []), "s.py")
    assert said.code == 0
    assert "runs are not kept from here on: it is no regular file" in said.one_clear_line()
    assert plan.load(program.with_name("s.mixpert.toml")).site
    assert latest(program.with_name("s.mixpert.toml")) is None


def test_a_file_that_fails_costs_one_line_and_no_run(tmp_path: Path) -> None:
    path = tmp_path / "t.trials.jsonl"
    said: list[str] = []
    trials = begun(path, say=said.append)
    trials.store("native run", {}, RUN)
    kept = tmp_path / "kept"
    path.rename(kept)
    path.mkdir()
    for _ in range(2):
        trials.store("native run", {}, RUN)
    trials.end(tmp_path / "t.toml", {}, finished=True)
    assert len(said) == 1
    assert said[0].startswith(f"{path}: runs are not kept from here on: ")
    assert begun(kept, resume=True).take("native run", {}) is not None
