"""`mixpert report`: what a tuning did, from what was kept beside the plan."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mixpert_py import plan as plan_file
from tests.mixpert_py.command import Mixpert

PROGRAM = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((40, 40))
text = "</script><b>"
b = a @ a
c = np.dot(b, a)
"""


@pytest.fixture(scope="module")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture
def tuned(tmp_path: Path, tuned_folder: Path, mixpert: Mixpert) -> Path:
    """A folder with a tuned program; it is tuned once."""
    if not any(tuned_folder.iterdir()):
        (tmp_path / "m.py").write_text(PROGRAM)
        done = mixpert("tune", "m.py", "--error", "1e-3", "--backend", "reference")
        assert done.code == 0, done.err
        shutil.copytree(tmp_path, tuned_folder, dirs_exist_ok=True)
    shutil.copytree(tuned_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_page_of_a_tuning(tuned: Path, mixpert: Mixpert) -> None:
    done = mixpert("report", "m.mixpert.toml", "--html", "new/page")
    assert (done.code, done.out, done.err) == (0, "report written to new/page/index.html\n", "")
    assert [path.name for path in (tuned / "new/page").iterdir()] == ["index.html"]
    text = (tuned / "new/page/index.html").read_text()
    assert "np.dot(b, a)" in text
    assert text.count('role="note"') == 2
    assert (
        'role="note">Compared: c. Not compared, since compared values are computed from them: b.'
        in text
    )


def test_json_goes_to_stdout_or_a_file(tuned: Path, mixpert: Mixpert) -> None:
    done = mixpert("report", "m.mixpert.toml", "--json")
    record = json.loads(done.out)
    assert record["plan_file"] == "m.mixpert.toml"
    assert record["provenance"]["source"] == "m.py"
    assert len(record["operators"]) == 2
    written = mixpert("report", "m.mixpert.toml", "--json", "-o", "report.json")
    assert (written.code, written.out) == (0, "")
    assert (tuned / "report.json").read_text() == done.out


def test_a_plan_that_was_changed_by_hand(tuned: Path, mixpert: Mixpert) -> None:
    path = tuned / "m.mixpert.toml"
    plan = plan_file.load(path)
    path.write_text(path.read_text().replace(f'"{plan.site[0].scheme}"', '"native"'))
    said = mixpert("report", "m.mixpert.toml").out
    assert "The plan file has changed since: this is what the tuning found." in said


@pytest.mark.parametrize("width", [60])
def test_without_a_form_a_summary_is_printed(tuned: Path, mixpert: Mixpert, width: int) -> None:
    done = mixpert("report", "m.mixpert.toml", COLUMNS=str(width))
    assert (done.code, done.err) == (0, "")
    text = " ".join(done.out.split())
    assert "No measurable gain" in text or "Program: " in text or "Predicted: " in text
    assert "np.dot(b, a)" in text
    assert "1 nothing" in text
    assert ", chosen" in text
    assert (
        "over budget: In a run the program's error exceeded the budget, or its used part." in text
    )
    assert all(len(line) <= width for line in done.out.splitlines())


@pytest.mark.parametrize(
    "options", [("-o", "y"), ("--html", "x", "--json"), ("--html", "x", "-o", "y")]
)
def test_one_form_is_wanted(mixpert: Mixpert, options: tuple[str, ...]) -> None:
    done = mixpert("report", "m.mixpert.toml", *options)
    assert done.code == 2
    assert done.err.startswith("Usage: ")


def recorded(folder: Path) -> dict[str, Any]:
    """The record that the file of trials ends with."""
    *_, last = (folder / "m.mixpert.trials.jsonl").read_text().splitlines()
    record: dict[str, Any] = json.loads(last)["record"]
    return record


def put(folder: Path, record: dict[str, Any]) -> None:
    """Make a record the only line of the file of trials."""
    line = json.dumps({"type": "record", "finished": True, "record": record})
    (folder / "m.mixpert.trials.jsonl").write_text(line + "\n")


@pytest.mark.parametrize(
    ("part", "key"),
    [("operators", "after"), ("trials", "plan")],
)
def test_a_scheme_that_there_is_not(tuned: Path, mixpert: Mixpert, part: str, key: str) -> None:
    record = recorded(tuned)
    entry = record[part][0] if part else record
    entry[key] = "nope" if isinstance(entry[key], str) else dict.fromkeys(entry[key], "nope")
    put(tuned, record)
    for form in (["--html", "out"], []):
        done = mixpert("report", "m.mixpert.toml", *form)
        assert done.code == 2
        assert "unknown scheme 'nope'" in done.one_clear_line()


@pytest.mark.parametrize("number", [float("nan"), -1.0])
def test_numbers_that_no_tuning_has(tuned: Path, mixpert: Mixpert, number: float) -> None:
    put(tuned, {**recorded(tuned), "budget": number})
    done = mixpert("report", "m.mixpert.toml", "--html", "out")
    assert done.code == 2
    assert "not the result of a tuning" in done.one_clear_line()
