"""A command line to call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mixpert_py import forked_runs
from tests.mixpert_py.command import Mixpert, Said, Shell, called, forked


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code is kept in a folder of this test run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _forked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    forked_runs.use(monkeypatch)


@pytest.fixture
def mixpert(tmp_path: Path) -> Mixpert:
    """Runs `mixpert ARGS…` in tmp_path, in a process that has made its imports."""

    def call(*arguments: str, stdin: str = "", **environment: str) -> Said:
        return forked("mixpert_py", *arguments, folder=tmp_path, stdin=stdin, **environment)

    return call


@pytest.fixture
def new_mixpert(tmp_path: Path) -> Mixpert:
    def call(*arguments: str, stdin: str = "", **environment: str) -> Said:
        return called("mixpert_py", *arguments, folder=tmp_path, stdin=stdin, **environment)

    return call


@pytest.fixture
def sh(tmp_path: Path, mixpert: Mixpert) -> Shell:
    """Command lines in tmp_path, with what each is to leave."""
    return Shell(tmp_path, mixpert)
