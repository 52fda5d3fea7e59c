"""One processor for the simulator: its threads take turns, and more make handing over slower."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_processor() -> None:
    """Each of pytest-xdist's processes has another."""
    if hasattr(os, "sched_setaffinity"):
        ours = sorted(os.sched_getaffinity(0))
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        os.sched_setaffinity(0, {ours[number % len(ours)]})
