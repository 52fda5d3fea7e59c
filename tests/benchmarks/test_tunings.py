"""Tables on tunings: verdicts on simulated times, and the ends of tunings that are made again."""

import os
from pathlib import Path

import pytest

from mixpert_py.tuner.ratio import Pace
from tests.benchmarks import looks, ten_tunings


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
    found = ten_tunings.measure([script], tries=1, budget="1e-5")
    for one in found:
        assert "no plan was written" in one["tune"]["outcome"]
        assert one["script"] == "s"
        assert one["program"] > 0
        assert one["estimate"]["runs"] == one["tune"]["runs"] == 1
