"""The runs of these tunings are forks."""

import pytest

from mixpert_py.execution.executor import RUNNERS, WarmStart, _Slot
from tests.mixpert_py import forked_runs


@pytest.fixture(autouse=True)
def _forked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    if forked_runs.AVAILABLE:
        monkeypatch.setattr(_Slot, "run_new", forked_runs.run_new)
        monkeypatch.setitem(RUNNERS, WarmStart.FORKED, forked_runs.SharedServer)
