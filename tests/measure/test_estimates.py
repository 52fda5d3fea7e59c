"""Estimates beside tunings: the list, the figures of a row, and the script on a tiny program."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.measure import estimates, public_programs
from tests.measure.public_programs import Program
from tests.measure.test_programs import of

TUNED = {
    "reverted": False,
    "verification": {
        "error": 2e-7, "native_seconds": 3.0, "seconds": 2.0, "native_lowered": 2.0, "lowered": 1.0,
        "spread": 0.1,
    },
}  # fmt: skip


def test_the_list() -> None:
    listed = estimates.cases()
    names = [case.name for case in listed]
    assert len(names) == len(set(names))
    public = [case.program for case in listed if isinstance(case.program, Program)]
    known = {
        program.name for program in public_programs.public(gpu=False) if program.arrays == "numpy"
    }
    assert known < {program.name for program in public}
    assert len(known) == 10
    samples = {sample.name for sample in public_programs.samples(gpu=False)}
    assert samples < {*names}
    assert {*estimates.SIZES} < samples
    for program in public:
        assert program.script in program.files
        assert all(old != new for old, new in program.edits)


def test_the_gain_of_a_tuning() -> None:
    verification = TUNED["verification"]
    assert isinstance(verification, dict)
    assert estimates.gain(TUNED) == 1.5
    assert estimates.gain(None) == 1.0
    assert estimates.gain({**TUNED, "reverted": True}) == 1.0
    # The runs vary by more than they differ: it is what the products save.
    assert estimates.gain({**TUNED, "verification": {**verification, "spread": 1.1}}) == 1.5
    varied = {**verification, "seconds": 3.5, "spread": 1.1}
    assert estimates.gain({**TUNED, "verification": varied}) == 1.5
    noise = {**verification, "lowered": 1.99}
    assert estimates.gain({**TUNED, "verification": noise}) == 1.0


def result(predicted: float) -> dict[str, Any]:
    places = [{"gain": predicted, "error": 1e-7}]
    return {"estimated": {"share": 0.5, "places": places}, "tuned": TUNED, "seconds": 9.0}


def test_the_table() -> None:
    named = [
        ("near", result(1.6)), ("far", result(2.0)), ("broken", {"error": "exit 2: no"}),
        ("none", {"estimated": None, "tuned": None}),
    ]  # fmt: skip
    programs = [{"name": it, "address": "at", "result": found} for it, found in named]
    facts = {"cores": 2, "cpu": "one", "date": "2026-11-25"}
    table = estimates.table({"machine": facts, "programs": programs})
    near, far, broken, none = table["rows"]
    assert near == ["[near](at)", "50%", "1.60×", "1.50×", "1.07", "1.0e-07", "2.0e-07"]
    assert far[4] == "1.33"
    assert broken == ["[broken](at)", "", "", "exit 2: no", "", "", ""]
    assert none == ["[none](at)", "0%", "1.00×", "1.00×", "1.00", "0", "0"]
    assert table["text"].startswith("Of 4 programs 2 are within")


def test_a_program_is_estimated_and_tuned_once(tmp_path: Path) -> None:
    text = "import numpy as np\na = np.random.random((9, 9))\nb = a @ a\nassert _numpy is np\n"
    program = of(tmp_path / "sources", "it", {"main.py": text})
    lines: list[str] = []

    def measured() -> dict[str, Any]:
        folder = tmp_path / "runs"
        folder.mkdir(exist_ok=True)
        wanted = [estimates.Case(program, ["b"])]
        return estimates.measure(wanted, folder, tmp_path / "sources", lines.append)["it"]

    first = measured()
    assert first["case"] == public_programs.plain(estimates.Case(program, ["b"]))
    assert first["estimated"]["places"][0]["device"] is None
    assert [value["name"] for value in first["tuned"]["values"]] == ["b"]
    assert estimates.row(first)["met"]
    (tmp_path / "sources").rename(tmp_path / "gone")
    assert measured() == first
    assert lines[0] == lines[1]


def test_a_program_that_fails_is_an_error(tmp_path: Path) -> None:
    program = of(tmp_path / "sources", "it", {"main.py": "1 / 0\n"})
    wanted = [estimates.Case(program)]
    found = estimates.measure(wanted, tmp_path, tmp_path / "sources", lambda line: None)
    assert found["it"]["error"] == "estimate: exit 2: ZeroDivisionError: division by zero"


def test_the_command_goes_on_from_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in estimates.cases() if case.name == "icp")
    entry = public_programs.plain(case)
    (tmp_path / "icp.json").write_text(json.dumps({**result(1.5), "case": entry}))
    arguments = ["--only", "icp", "--folder", str(tmp_path)]
    done = CliRunner().invoke(estimates.command, arguments)
    assert done.exit_code == 0, done.output
    assert "1/1 icp, 9 s: products 50%, 1.50× predicted, 1.50× tuned: 1.00" in done.output
    done = CliRunner().invoke(estimates.command, ["--only", "none", "--folder", str(tmp_path)])
    assert done.exit_code == 2
    assert "no program is called none" in done.output
