"""The processes of these tests are the executor's own."""

import pytest


@pytest.fixture(autouse=True)
def _forked_runs() -> None:
    """In the place of the fixture that replaces them."""
