"""The benchmarks run and report what they say; how fast is not asserted."""

import sys
from pathlib import Path

from mixpert_py.bench import dispatch, machine, program
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
    result = machine.finish("x", dispatch.measure(rounds=2, calls=10), keep=False)
    kinds = [row["what"] for row in result["passing"]]
    assert kinds[:2] == ["NumPy, `a @ b`", "NumPy, `np.matmul`"]
    assert {"Dask", "SciPy, sparse"} <= set(kinds)
    lines = dispatch.table(result).splitlines()
    assert len(lines) >= len(kinds) + 2
    assert all(line.count("|") == 5 for line in lines[: len(kinds) + 2])


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


def test_a_result_says_where_it_was_measured() -> None:
    result = machine.finish("x", {"rows": {}}, keep=False)
    assert {"cpu", "cores", "python", "numpy", "date"} < result["machine"].keys()
