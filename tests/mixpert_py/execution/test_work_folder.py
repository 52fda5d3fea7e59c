"""Programs that write where they run: their trials leave the user's folder alone."""

import os
from pathlib import Path

import numpy as np
import pytest

from mixpert_py.execution.executor import copy_folder as copy
from mixpert_py.execution.executor import folder_state as state
from mixpert_py.launch.program import script
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.judge import Comparison
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from tests.mixpert_py import forked_runs

WRITES = """\
import numpy as np
np.save("x.npy", np.ones(3))
with open("runs", "a") as file:
    file.write(".")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    forked_runs.use(monkeypatch)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def experiment(text: str) -> Experiment:
    Path("s.py").write_text(text)
    options = TuningOptions(Limits(Limit(1.0, "max")), compare=("x.npy",))
    return Experiment(script("s.py"), options)


# Statements of a program that deletes what it reads, by paths from the folder that it works in.
DELETES = {
    "relative": "os.remove('input')",
    "from above": "os.remove(f'../{os.path.basename(os.getcwd())}/input')",
}


@pytest.mark.parametrize("statement", DELETES.values(), ids=DELETES)
def test_no_run_changes_the_users_folder(folder: Path, statement: str) -> None:
    (folder / "input").write_text("precious")
    made = experiment(f"import os\n{statement}\n{WRITES}")
    before = state(str(folder))
    first = made.native()
    assert first.result.wrote
    assert made.measure({}, first.values).error == 0
    assert made.native("verification", first.values).error == 0
    assert state(str(folder)) == before


def test_what_is_beside_the_folder_is_beside_its_copy(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    (tmp_path.parent / "y").write_text("y")
    reads = "assert open('../data/x').read() == 'x' and open('../../y').read() == 'y'\n"
    made = experiment(f"{reads}{WRITES}")
    reference = made.native().values
    assert made.measure({}, reference).problem is None
    assert not (folder / "runs").exists()


def test_a_run_that_writes_no_file_to_compare_fails(folder: Path) -> None:
    count = str(folder.parent / "count")  # which no run has a copy of
    text = f"open({count!r}, 'a').write('.')\nlen(open({count!r}).read()) > 1 or np.save"
    made = experiment(WRITES.replace("np.save", text))
    np.save(folder / "x.npy", np.ones(3))  # that there is one already is no result
    reference = made.native().values
    assert "x.npy: not written" in (made.measure({}, reference).problem or "")


CHANGES = {
    "a new file": ("open('new', 'w')", True),
    "a longer file": ("open('old', 'a').write('x')", True),
    "a file less": ("os.remove('old')", True),
    "nothing": ("open('old').read()", False),
    "what Python leaves": ("os.mkdir('__pycache__')", False),
    "a hidden folder's": ("open('.cache/new', 'w')", False),
    "elsewhere": ("open('../new', 'w')", False),
}


@pytest.mark.parametrize(("statement", "wrote"), CHANGES.values(), ids=CHANGES)
def test_what_counts_as_writing(statement: str, wrote: bool, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / ".cache").mkdir()
    (folder / "old").write_text("old")
    made = experiment(f"import os\n{statement}\nimport mixpert_py\nmixpert_py.observe('x', 1.0)\n")
    made.comparison = Comparison(made.comparison.limits)
    assert made.native().result.wrote == wrote


def test_links_do_not_lead_back_into_the_folder(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("outside")
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("inside")
    for name, target in {
        "relative": "sub/file",
        "absolute": folder / "sub" / "file",
        "to a folder": "sub",
        "out": "../outside",
        "to itself": ".",
        "to nothing": "none",
    }.items():
        (folder / name).symlink_to(target)
    made = tmp_path / "copy"
    copy(str(folder), str(made))
    for name in ("relative", "absolute", "to a folder/file"):
        (made / name).write_text("changed")
        assert (made / "sub" / "file").read_text() == "changed"
        (made / "sub" / "file").write_text("inside")
    assert (folder / "sub" / "file").read_text() == "inside"
    assert (made / "out").read_text() == "outside"
    assert (made / "to itself").resolve() == made.resolve()
    assert not (made / "to nothing").exists()


def test_what_is_copied(folder: Path, tmp_path: Path) -> None:
    for name in (".git", "venv", "__pycache__", "mixpert-run-1", "plain"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("x")
    (folder / "venv" / "pyvenv.cfg").write_text("")
    os.mkfifo(folder / "pipe")
    copy(str(folder), str(tmp_path / "copy"))
    made = {path.name: path.is_symlink() for path in (tmp_path / "copy").iterdir()}
    assert made == {".git": True, "venv": True, "plain": False}
    assert (tmp_path / "copy" / ".git" / "file").read_text() == "x"
