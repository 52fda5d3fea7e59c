"""The table of verdicts on simulated times."""

from mixpert_py.tuner.ratio import Pace
from tests.benchmarks import looks


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
