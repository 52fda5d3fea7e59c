"""`mixpert report`: what a tuning did, from what was kept beside the plan."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mixpert_py import plan as plan_file
from tests.mixpert_py.command import Shell

PROGRAM = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((40, 40))
text = "</script><b>"
b = a @ a
c = np.dot(b, a)
"""
REPORT = "report m.mixpert.toml"


@pytest.fixture(scope="module")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture
def tuned(tuned_folder: Path, sh: Shell) -> Path:
    """A folder with a tuned program; it is tuned once."""
    if not any(tuned_folder.iterdir()):
        sh.write({"m.py": PROGRAM})
        sh("tune m.py --error 1e-3 --backend reference")
        shutil.copytree(sh.folder, tuned_folder, dirs_exist_ok=True)
    shutil.copytree(tuned_folder, sh.folder, dirs_exist_ok=True)
    return sh.folder


def test_the_forms_of_a_report(tuned: Path, sh: Shell) -> None:
    sh(f"{REPORT} --html new/page", out="report written to new/page/index.html\n", err="")
    assert [path.name for path in (tuned / "new/page").iterdir()] == ["index.html"]
    text = sh.read("new/page/index.html")
    told = "Compared: c. Not compared, since compared values are computed from them: b."
    assert told in " ".join(text.split())
    assert "np.dot(b, a)" in text
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "")
    shown = sh(f"{REPORT} --json").out
    record = json.loads(shown)
    assert (record["plan_file"], record["provenance"]["source"]) == ("m.mixpert.toml", "m.py")
    assert len(record["operators"]) == 2
    printed = sh(REPORT, err="", COLUMNS="60").out
    over = "over budget: In a run the program's error exceeded the budget, or its used part."
    flat = " ".join(printed.split())
    assert any(head in flat for head in ("No measurable gain", "Program: ", "Predicted: "))
    assert all(part in flat for part in ("np.dot(b, a)", "1 nothing", ", chosen", over))
    assert all(len(line) <= 60 for line in printed.splitlines())
    plan = plan_file.load(tuned / "m.mixpert.toml")  # changed by hand
    text = sh.read("m.mixpert.toml").replace(f'"{plan.site[0].scheme}"', '"native"')
    sh.write({"m.mixpert.toml": text})
    sh(REPORT, out="The plan file has changed since: this is what the tuning found.")


def put(sh: Shell, record: dict[str, Any]) -> None:
    line = json.dumps({"type": "record", "finished": True, "record": record})
    sh.write({"m.mixpert.trials.jsonl": line + "\n"})


@pytest.mark.usefixtures("tuned")
def test_nothing_of_the_program_is_markup(sh: Shell) -> None:
    record = json.loads(sh.read("m.mixpert.trials.jsonl").splitlines()[-1])["record"]
    hostile = "<img src=x onerror=alert(1)>\x1b[31m\u202e"
    for row in (*record["operators"], *record["trials"]):
        row.update(reason=hostile)
    record["operators"][0]["expression"] = record["notes"][0] = hostile
    put(sh, record)
    sh(f"{REPORT} --html out")
    page = sh.read("out/index.html")
    assert "&lt;img" in page
    assert not any(part in page for part in ("<img", "\x1b", "\u202e"))


@pytest.mark.usefixtures("tuned")
def test_records_that_no_tuning_leaves(sh: Shell) -> None:
    whole = sh.read("m.mixpert.trials.jsonl").splitlines()[-1]
    for number in (float("nan"), -1.0):
        put(sh, {**json.loads(whole)["record"], "budget": number})
        said = sh(f"{REPORT} --html out", 2)
        assert "not the result of a tuning" in said.one_clear_line()
