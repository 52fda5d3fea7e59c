"""A command line to call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert, Said, called


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code is kept in a folder of this test run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def mixpert(tmp_path: Path) -> Mixpert:
    """Runs `mixpert ARGS…` in tmp_path, in a process of its own."""

    def call(*arguments: str, stdin: str = "", **environment: str) -> Said:
        return called("mixpert_py", *arguments, folder=tmp_path, stdin=stdin, **environment)

    return call
