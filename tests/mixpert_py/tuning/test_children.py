"""Products in processes that the program starts are listed, and left as they are."""

import multiprocessing
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.tuner.records import StopReason
from tests.every_check import EVERY_CHECK
from tests.mixpert_py.command import Mixpert

PROGRAM = """\
import multiprocessing
import numpy as np
a = np.random.default_rng(0).standard_normal((40, 40))
def both(x):
    return x.dot(x)
def work(seed):
    return float((a @ a.T + both(a))[0, seed])
if __name__ == "__main__":
    {own}
    with multiprocessing.get_context({start!r}).Pool(1) as pool:
        z = np.array(pool.map(work, range(4)))
"""
OPTIONS = "--error", "1", "--backend", "reference"


# A forkserver's processes get the program as spawned ones do.
STARTS = [
    start
    for start in multiprocessing.get_all_start_methods()
    if start != "forkserver" or EVERY_CHECK
]


@pytest.mark.parametrize("start", STARTS)
def test_products_of_workers_are_in_the_table(start: str, tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(PROGRAM.format(own="y = a @ a + both(a)", start=start))
    said = mixpert("tune", *OPTIONS, "s.py")
    assert said.code == 0, said.err
    rows = [line.split() for line in said.out.splitlines()]
    (row,) = (row for row in rows if row[:1] == ["work"])
    assert row[1:5] == ["7", "a", "@", "a.T"]
    assert row[5:] == ["–", "native", "–", "–", *StopReason.ELSEWHERE.split()]
    assert f"{StopReason.ELSEWHERE}: Only processes that the program starts" in said.out
    entries = {site.expression: site for site in plan.load(tmp_path / "s.mixpert.toml").site}
    assert entries["a @ a.T"].scheme == "native"
    assert entries["a @ a.T"].native_ms is None
    assert "native" not in (entries["a @ a"].scheme, entries["x.dot(x)"].scheme)
    ran = mixpert("run", "--backend", "reference", "s.py")
    assert (ran.code, ran.err) == (0, "")
    assert StopReason.ELSEWHERE in mixpert("report", "s.mixpert.toml").out
    checked = mixpert("verify", "s.mixpert.toml", "s.py", "--backend", "reference")
    assert "never ran" not in checked.out


def test_a_program_that_leaves_all_products_to_workers(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(PROGRAM.format(own="pass", start="fork"))
    said = mixpert("tune", *OPTIONS, "s.py")
    assert said.code == 2
    assert "only processes that it starts make its products" in said.one_clear_line()
    assert not (tmp_path / "s.mixpert.toml").exists()
