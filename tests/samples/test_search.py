"""The searches, measured on a program of two products."""

from pathlib import Path
from typing import Any

import pytest

from samples.papers import search as searches
from tests.mixpert_py import forked_runs

PROGRAM = """\
import sys
import numpy as np
rng = np.random.default_rng(int(sys.argv[-1]))
a = rng.standard_normal((40, 40))
b = a @ a
c = np.dot(b, a)
"""


def test_every_search_where_every_plan_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked_runs.use(monkeypatch)
    monkeypatch.chdir(tmp_path)  # a tuning's first run copies the folder that it works in
    (tmp_path / "cholesky.py").write_text(PROGRAM)
    reported: list[dict[str, Any]] = []
    found = searches.measure(tmp_path, {"cholesky": ("1",)}, (1e-5,), reported.append)
    assert found["rows"] == reported
    rows = {row["search"]: row for row in reported}
    assert list(rows) == ["predictive", "greedy", "exhaustive", "random"]
    assert rows["exhaustive"]["runs"] == 5**2
    for row in reported:
        assert row["levels"] == len(searches.LEVELS)
        assert row["error"] <= 1e-5
        assert 0 <= row["gain"] <= rows["exhaustive"]["gain"]
        assert row["runs"] <= 5**2
