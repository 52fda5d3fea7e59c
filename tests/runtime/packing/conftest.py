"""Fewer checks than there are: the simulator is slow, and so is compiling.

Of every parametrized check in a process of its own the first case and each third after it are run;
all of them with EVERY_CHECK=1 in the environment.
"""

from collections import Counter

import pytest

from tests.every_check import EACH, EVERY_CHECK


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those of files that end in `_checks`; a session may have others."""
    if EVERY_CHECK:
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_left = item.path.stem.endswith("_checks") and seen[name] % EACH
        (left if is_left else kept).append(item)
        seen[name] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept
