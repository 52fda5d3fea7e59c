"""Tables on tunings: verdicts on simulated times, and the ends of tunings that are made again."""

import os
from pathlib import Path

import pytest

from mixpert_py.tuner.ratio import Pace
from tests.benchmarks import looks, ten_tunings

FACTS = {"cpu": "X", "cores": 2, "date": "d"}


def test_equal_times_are_seldom_called_faster_and_tenths_are_found() -> None:
    rows = looks.simulate(120)
    for row in rows:
        if row["ratio"] >= 1:
            assert row[Pace.FASTER] <= 0.025
            assert row[Pace.NOT_FASTER] >= 0.9
        elif row["ratio"] == 0.9:
            assert row[Pace.FASTER] >= 0.9
    text = looks.markdown({"trials": 120, "rows": rows})
    assert text.count("| heavy-tailed |") == 1
    assert "| quiet, 1 % | 100.0/0.0/0.0 |" in text


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="chooses cores")
def test_a_program_that_is_tuned_again(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import numpy as np\na = np.ones((9, 9), int) @ np.ones((9, 9), int)\n")
    found = ten_tunings.measure([script], tries=2, at_a_time=1, budget="1e-5")
    for one in found:
        assert "no plan was written" in one["tune"]["outcome"]
        assert one["script"] == "s"
        assert one["program"] > 0
        assert one["estimate"]["runs"] == one["tune"]["runs"] == 1


def test_the_table_of_tunings() -> None:
    estimate = {"seconds": 2.0, "runs": 1}
    tune = {"seconds": 10.0, "runs": 8, "outcome": "line 1 in x"}
    one = {"script": "s", "program": 0.5, "estimate": estimate, "tune": tune}
    other = {**one, "tune": {"seconds": 20.0, "runs": 12, "outcome": "nothing lowered"}}
    text = ten_tunings.markdown({"machine": FACTS, "tunings": [one, one, other]})
    ends = "2×: line 1 in x; 1×: nothing lowered"
    assert f"| s | 0.50 s | 1 (1) | 2 s | 8 (12) | 10 s | {ends} |" in text
