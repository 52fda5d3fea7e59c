"""Programs whose results are in no variable are compared by what they print and write."""

import io
from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.execution.outputs import Steady
from mixpert_py.launch import launcher
from mixpert_py.tuner.criterion import frobenius
from mixpert_py.tuning.options import TuningOptions, limits_from
from mixpert_py.tuning.search import TuningResult
from mixpert_py.tuning.verify import check_plan
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program

Run = dict[str, np.ndarray[Any, Any]]


def run(stdout: str = "", **files: str | bytes) -> Run:
    """What a run printed and wrote: `out_csv` stands for out.csv."""
    found = {name.replace("_", "."): content for name, content in files.items()}
    contents = {"stdout": stdout, **found} if stdout else found
    return {
        name: np.frombuffer(x.encode() if isinstance(x, str) else x, np.uint8)
        for name, x in contents.items()
    }


def steady(*runs: Run) -> Steady:
    return Steady.of(runs, runs[0])


def errors(of: Steady, native: Run, planned: Run) -> Mapping[str, float]:
    before, after = of.pair(native, planned)
    return {name: frobenius(before[name], after[name]) for name in of.names}


def array_file(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def test_what_differs_between_native_runs_is_left_out() -> None:
    first = run("loss 0.25 took 8.3 s\nin /tmp/ab\nx 1 2\n", out_csv="1,2\n3,4\n", o_txt="a 1\nb 2")
    second = run("loss 0.25 took 8.4 s\nin /tmp/cd\nx 1 2\n", out_csv="1,7\n3,4\n", o_txt="a 1\n")
    found = steady(first, second)
    assert found.names == {
        "printed line 1, number 1",
        "printed line 3, number 1",
        "printed line 3, number 2",
        "file out.csv, line 1, number 1",
    }
    assert found.compared == (
        "printed numbers: 3 on 2 lines",
        "file out.csv: 2 on 2 lines",
    )
    assert found.left_out == (
        "2 lines of stdout",
        "2 lines of out.csv",
        "o.txt (its number of lines differs)",
    )
    assert set(errors(found, first, second).values()) == {0.0}


def test_seconds_since_1970_differ_and_the_last_bits_of_a_sum_do_not() -> None:
    found = steady(
        run("at 1764327600.25\nsum 0.30000000000000004\n"),
        run("at 1764327600.75\nsum 0.3\n"),
    )
    assert found.names == {"printed line 2"}


def test_a_file_that_not_every_run_writes_is_left_out() -> None:
    found = steady(run(a_csv="1\n", b_csv="1\n"), run(b_csv="1\n"))
    assert (found.names, set(found.sources)) == ({"file b.csv, line 1"}, {"b.csv"})
    assert found.left_out == ("a.csv (not written by every native run)",)


def test_columns_of_a_table_are_values_of_their_own() -> None:
    """An error in small numbers is not hidden by large ones beside them."""
    native, planned = run("1000 0.5\n2000 0.25\n"), run("1000 0.5\n2000 0.375\n")
    found = errors(steady(native, native), native, planned)
    assert found["printed line 1, number 1"] == 0
    assert found["printed line 1, number 2"] > 0.2


@pytest.mark.parametrize(
    ("native", "planned", "is_equal"),
    [
        ("0.001", "0.002", True),
        ("0.001", "0.003", False),
        ("-0.0", "0.1", True),
        ("1.25e-05", "1.26e-05", True),
        ("1.25e-05", "1.27e-05", False),
        ("0.5", "0.5000123", False),  # the finer one counts
        ("120", "121", False),
        ("1.", "2.", False),
        ("3", "3.1", False),
    ],
)
def test_one_unit_of_the_last_digit_is_rounding(native: str, planned: str, is_equal: bool) -> None:
    before, after = run(f"x = {native}"), run(f"x = {planned}")
    assert (errors(steady(before, before), before, after)["printed line 1"] == 0) is is_equal


@pytest.mark.parametrize(
    ("planned", "message"),
    [
        ("x 1.5\n", "1 lines came, 2 are the reference's"),
        ("x 1.5\ny 2\nz 3\n", "3 lines came"),
        ("x 1.5\nz 2\n", "line 2: 'z#' came, 'y#'"),
        ("x 1.5 7\ny 2\n", "line 1: 'x##' came"),
    ],
)
def test_lines_that_cannot_be_paired_are_no_equal_ones(planned: str, message: str) -> None:
    native = run("x 1.5\ny 2\n")
    with pytest.raises(ShapeError, match=message):
        errors(steady(native, native), native, run(planned))


def test_a_number_that_is_none_is_an_error_that_no_budget_admits() -> None:
    native = run("x 1.5\ny 2.5\n")
    assert isnan(errors(steady(native, native), native, run("x nan\ny 2.5"))["printed line 1"])


def test_a_missing_file_is_named() -> None:
    native = run("x 1.5\n", out_csv="1,2\n")
    with pytest.raises(ProgramError, match=r"out\.csv: written by the program natively, not"):
        errors(steady(native, native), native, run("x 1.5\n"))


def test_arrays_in_files() -> None:
    native = run(out_npz=array_file(x=[1.0, 2.0], n=[1, 2], t=[0.1], s=["text"]))
    other = run(out_npz=array_file(x=[1.0, 2.0], n=[1, 2], t=[0.2], s=["text"]))
    found = steady(native, other)
    assert found.names == {"file out.npz:x", "file out.npz:n"}
    assert (found.compared, found.left_out) == (
        ("file out.npz: 4 numbers",),
        ("arrays of out.npz",),
    )
    planned = run(out_npz=array_file(x=[1.0, nan], n=[1, 2]))
    assert isnan(errors(found, native, planned)["file out.npz:x"])


@pytest.mark.parametrize(
    ("printed", "budget", "metric", "shows"),
    [
        ("loss 0.7310585786", 1e-6, "frobenius", True),
        ("loss 0.731", 1e-6, "frobenius", False),
        ("loss 0.731", 1e-2, "frobenius", True),
        ("size 12345678, tolerance 1e-06, step 0.01", 1e-6, "frobenius", False),
        ("loss 5.0000001", 1e-8, "max", False),
        ("loss 0.0000001", 1e-6, "max", True),
    ],
)
def test_numbers_with_few_digits_show_no_small_error(
    printed: str, budget: float, metric: str, shows: bool
) -> None:
    found = steady(run(printed), run(printed))
    assert found.shows(budget, is_absolute=metric == "max") is shows


PROGRAM = """\
import os
import sys
import time
import numpy as np

def main():
    rng = np.random.default_rng(len(sys.argv))
    a = rng.standard_normal((300, 160))
    w = rng.standard_normal((160, 160))
    w[:, 1::2] = w[:, ::2] + 1e-7 * rng.standard_normal((160, 80))
    scores = a @ w
    is_native = abs(scores - scores.astype(np.float32)).max() > 1e-9
    {results}

main()
"""
LARGEST = "print(f'process {os.getpid()} at {time.time_ns()}: {scores.max()}')"
SIZES = "print('sizes', np.bincount(scores.argmax(1))[:6])"
SAVED = "np.savetxt('out.csv', scores[:60], delimiter=',')"


def options(*compare: str, **more: object) -> TuningOptions:
    return TuningOptions(limits_from({None: 2e-6}, {}), compare, **more)  # type: ignore[arg-type]


def tuned(path: Path, *results: str, **more: object) -> TuningResult:
    path.write_text(PROGRAM.replace("{results}", "\n    ".join(results)))
    return tuned_program(launcher.script(str(path)), options(**more), cost=float32_is_faster)


def lowered(found: TuningResult) -> int:
    return sum(scheme != "native" for scheme in found.plan.schemes().values())


def test_a_program_is_judged_by_what_it_prints_and_writes(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    found = tuned(path, LARGEST, SAVED, hold_outs=(("1",),))
    assert lowered(found) == 1
    assert found.notes[0] == (
        "Compared: printed numbers: 1 on 1 line; file out.csv: 9,600 on 60 lines. Not "
        "compared, since native runs differ there: 1 line of stdout. To compare others: --compare "
        "NAME (a file, stdout or sinks)."
    )
    assert found.hold_out is not None
    assert not (tmp_path / "out.csv").exists()
    names = [value.name for value in found.plan.criterion]
    assert {"printed line 1, number 3", "file out.csv, line 1, number 1"} <= {*names}
    verdict = check_plan(launcher.script(str(path)), found.plan, options())
    assert verdict.holds
    assert [value.name for value in verdict.values] == names
    assert verdict.notes == found.notes[:1]


@pytest.mark.parametrize(
    "result",
    [
        SIZES,
        "print('more' if is_native else 'fewer')",
        "is_native and print('a line more')",
        "print(f'{scores[0, 0] if is_native else np.nan}')",
        "is_native and np.savetxt('other.txt', [1.5])",
    ],
    ids=["other numbers", "other words", "a line less", "nan", "a file less"],
)
def test_a_plan_that_changes_the_output_is_refused(result: str, tmp_path: Path) -> None:
    assert lowered(tuned(tmp_path / "s.py", LARGEST, result)) == 0


def test_products_are_judged_where_the_output_shows_no_error(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    settings = tuned(path, "print('size', a.shape, 'step', 0.01)", "scores *= is_native")
    assert settings.notes[0].startswith(
        "Compared: printed numbers: 3 on 1 line, and the last result of 1 product, since the "
        "numbers may not show errors as small as the budget."
    )
    nothing = tuned(path, "print('took', time.time_ns())")
    assert nothing.notes[0].startswith(
        "Compared: the last result of 1 product, since neither a variable nor the program's output "
        "has numbers that are the same in all native runs. Not compared, since native runs "
        "differ there: 1 line of stdout."
    )
