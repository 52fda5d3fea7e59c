"""Fewer checks than there are: the simulator is slow.

Of every parametrized check the first case and each third after it are run; all of them with
EVERY_CHECK=1 in the environment.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EACH = 3


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Checks of this folder; a session may have others."""
    if os.environ.get("EVERY_CHECK"):
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_left = item.path.parent == HERE and seen[name] % EACH
        (left if is_left else kept).append(item)
        seen[name] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept
