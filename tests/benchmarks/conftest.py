"""The runs of these measurements are forks."""

import pytest

from tests.mixpert_py import forked_runs


@pytest.fixture(autouse=True)
def _forked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    forked_runs.use(monkeypatch)
