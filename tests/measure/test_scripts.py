"""The scripts run, and report the figures that they are for; speed is not asserted."""

import json
from pathlib import Path

from click.testing import CliRunner

from tests.measure import reference, rewriting, start_up


def test_reference() -> None:
    result = reference.measure(64, ("int8x6", "int8x1"), rounds=2)
    assert list(result["rows"]) == ["np.matmul float32", "int8x6", "int8x1"]
    assert result["rows"]["int8x6"]["error"] < 1e-6 < result["rows"]["int8x1"]["error"]


def test_rewriting(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("c = a @ b\nd = np.vdot(a, b)\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / "c.py").write_text("x = (1 @\n")
    result = rewriting.measure([str(tmp_path)], 1)
    assert result["trees"] == {tmp_path.name: None}
    counts = [result[key] for key in ("files", "lines", "changed", "products", "left")]
    assert counts == [3, 3, 1, 1, 1]
    assert len(result["problems"]) == 1
    assert result["peak_bytes"] > 10 << 20


def test_start_up() -> None:
    done = CliRunner().invoke(start_up.command, ["--rounds", "1"])
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert {row["runs"] for row in result["rows"].values()} == {1}
    assert len(result["rows"]) == 5
    wanted = {name: row["wanted"] for name, row in result["more"].items()}
    assert wanted == {"import": 0.06, "first run": 0.5, "run from the cache": 0.2}
    assert all(row["met"] == (row["median"] <= row["wanted"]) for row in result["more"].values())


def test_imports_of_a_rewritten_package() -> None:
    words = ["--imports", "tomlkit", "--rounds", "1"]
    done = CliRunner().invoke(start_up.command, words)
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    native, first, again = (row["median"] for row in result["rows"].values())
    ratios = [row["median"] for row in result["over python"].values()]
    assert ratios == [first / native, again / native]
