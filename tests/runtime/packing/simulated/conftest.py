"""Fewer checks than there are, for the simulator is slow; all with EVERY_CHECK=1 set."""

import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.every_check import EVERY_CHECK


@pytest.fixture(autouse=True, scope="session")
def _one_processor() -> None:
    """Threads take turns, so that more than one processor only makes handing over slower.

    Each of pytest-xdist's processes has another.
    """
    if hasattr(os, "sched_setaffinity"):
        ours = sorted(os.sched_getaffinity(0))
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        os.sched_setaffinity(0, {ours[number % len(ours)]})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each parametrized check, as many cases as meet all values of its parameters."""
    if EVERY_CHECK:
        return
    here = f"{Path(__file__).parent}{os.sep}"
    checks: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if str(item.path).startswith(here):  # pytest hands over all that it has collected anywhere
            checks[item.nodeid.partition("[")[0]].append(item)
    kept = {id(item) for cases in checks.values() for item in _meeting_all(cases)}
    dropped = {id(item) for cases in checks.values() for item in cases} - kept
    config.hook.pytest_deselected(items=[item for item in items if id(item) in dropped])
    items[:] = [item for item in items if id(item) not in dropped]


def _meeting_all(cases: list[pytest.Item]) -> list[pytest.Item]:
    """One after the other that with most values not met, and of these that with the rarest."""
    met: Counter[str] = Counter()
    kept: list[pytest.Item] = []

    def gain(case: pytest.Item) -> tuple[int, int]:
        times = [met[value] for value in _values(case)]
        return times.count(0), -sum(times)

    left = [*cases]
    while left:
        best = max(left, key=gain)
        if kept and gain(best)[0] == 0:
            break
        left.remove(best)
        kept.append(best)
        met.update(_values(best))
    return kept


def _values(case: pytest.Item) -> set[str]:
    """Of its parameters, with their names."""
    parameters = getattr(case, "callspec", None)
    return {f"{name}={value}" for name, value in parameters.params.items()} if parameters else set()
