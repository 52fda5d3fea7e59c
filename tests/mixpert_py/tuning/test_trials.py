"""Runs are kept as they are made: what is interrupted goes on."""

import json
from pathlib import Path

import pytest

from mixpert_py.tuning.trials import TRIAL, Trials, latest
from tests.mixpert_py.tuning.counted import PROGRAM, database, runs, table, tuned
from tests.mixpert_py.tuning.counted import program as program


class After:
    """Ctrl-C before the run after so many."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, purpose: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


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
    assert database(program).stat().st_size < before - 48 * 48 * 4  # of c, compressed


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
