"""The searches, measured on a program of two products."""

from pathlib import Path

import pytest

from tests.measure import search as searches

PROGRAM = """\
import sys
import numpy as np
rng = np.random.default_rng(int(sys.argv[-1]))
a = rng.standard_normal((40, 40))
b = a @ a
c = np.dot(b, a)
"""


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    (tmp_path / "cholesky.py").write_text(PROGRAM)
    return tmp_path


def test_every_search_where_every_plan_is_run(samples: Path) -> None:
    said: list[str] = []
    found = searches.measure(samples, {"cholesky": ("1",)}, (1e-5,), said.append)
    rows = found["rows"]
    assert [row["search"] for row in rows] == [*searches.KINDS[:-1], *searches.KINDS]
    assert len(said) == len(rows)
    few = {row["search"]: row for row in rows if row["levels"] == len(searches.LEVELS)}
    assert few["exhaustive"]["runs"] == 5**2
    for row in few.values():
        assert row["error"] <= 1e-5
        assert 0 <= row["gain"] <= few["exhaustive"]["gain"]
        assert row["runs"] <= 5**2


def test_hold_outs_are_other_seeds(samples: Path) -> None:
    found = searches.random_hold_outs(samples, 2, {"cholesky": ()})
    assert found["over"] == 0
    assert len(found["rows"]) == 2
    for row in found["rows"]:
        assert row["seeds"][0] < searches.SEEDS <= row["seeds"][1]
        assert row["error"] <= 1
        assert row["hold_out"] <= 1
