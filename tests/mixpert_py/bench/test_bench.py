"""The benchmarks run and report what they say; how fast is not asserted."""

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from mixpert_py.bench import dispatch, machine, program, reference, rewriting
from mixpert_py.bench.commands import bench
from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.launch import launcher
from mixpert_py.plan import Plan


def test_functions_take_turns_and_the_first_round_is_not_counted() -> None:
    calls: list[str] = []
    times = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, calls=2)
    assert calls == ["a", "a", "b", "b"] * 3
    assert [len(row) for row in times.values()] == [2, 2]
    assert summary([3.0, 1.0, 2.0])["median"] == 2.0


def test_dispatch() -> None:
    result = dispatch.measure(rounds=2, calls=10)
    assert len(result["rows"]) == 4
    assert result["overhead"].keys() == {"np.matmul", "@"}


def test_reference() -> None:
    result = reference.measure(64, ("int8x6", "int8x1"), rounds=2)
    assert list(result["rows"]) == ["np.matmul float32", "int8x6", "int8x1"]
    assert result["rows"]["int8x6"]["error"] < 1e-6 < result["rows"]["int8x1"]["error"]


def test_program(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text("import numpy as np\na = np.ones((600, 600))\nb = a @ a\nprint(b.dtype)\n")
    ours = sys.modules["__main__"]
    path0, argv = list(sys.path), list(sys.argv)
    try:
        result = program.measure(launcher.script(str(path)), Plan(), rounds=2)
    finally:
        sys.path[:], sys.argv[:] = path0, argv
    assert sys.modules["__main__"] is ours
    assert result["rows"]["plan"]["runs"] == 2


def test_rewriting(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("c = a @ b\nd = np.vdot(a, b)\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / "c.py").write_text("x = (1 @\n")
    result = rewriting.measure([str(tmp_path)], 1)
    assert result["trees"] == {tmp_path.name: None}
    counts = [result[key] for key in ("files", "lines", "changed", "products", "left")]
    assert counts == [3, 3, 1, 1, 0]
    assert len(result["problems"]) == 1
    assert result["peak_bytes"] > 10 << 20


def test_start_up() -> None:
    done = CliRunner().invoke(bench, ["start-up", "--rounds", "1"])
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert {row["runs"] for row in result["rows"].values()} == {1}
    assert len(result["rows"]) == 5
    wanted = {name: row["wanted"] for name, row in result["more"].items()}
    assert wanted == {"import": 0.06, "first run": 0.5, "run from the cache": 0.2}
    assert all(row["met"] == (row["median"] <= row["wanted"]) for row in result["more"].values())


def test_a_result_says_where_it_was_measured() -> None:
    result = machine.finish("x", {"rows": {}}, keep=False)
    assert {"cpu", "cores", "python", "numpy", "date"} < result["machine"].keys()
