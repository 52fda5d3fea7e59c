"""Tests that need a GPU are skipped, with the reason, where none can be used."""

import pytest

from mixpert_py.runtime.cuda.device import Absent, find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    found = find() if wanting else None
    if isinstance(found, Absent):
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=found.sentence))
