"""A command line to call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mixpert_py import command_server
from tests.mixpert_py.command import Mixpert, Said, called, child_environment
from tests.mixpert_py.command_server import CommandServer, Request


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code is kept in a folder of this test run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def _command_server(
    _own_cache: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommandServer | None]:
    if not command_server.AVAILABLE:
        yield None
        return
    server = CommandServer(child_environment(), tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def mixpert(tmp_path: Path, _command_server: CommandServer | None) -> Mixpert:
    """Runs `mixpert ARGS…` in tmp_path, in a process of its own that has made its imports."""

    def call(*arguments: str, stdin: str = "", **environment: str) -> Said:
        at_start = any(not name.startswith("MIXPERT_") for name in environment)
        if _command_server is None or at_start:
            return called("mixpert_py", *arguments, folder=tmp_path, stdin=stdin, **environment)
        request = Request("mixpert_py", arguments, str(tmp_path), child_environment(**environment))
        return Said(*_command_server.run(request, stdin))

    return call


@pytest.fixture
def new_mixpert(tmp_path: Path) -> Mixpert:
    """Runs `mixpert ARGS…` in tmp_path, in a new interpreter."""

    def call(*arguments: str, stdin: str = "", **environment: str) -> Said:
        return called("mixpert_py", *arguments, folder=tmp_path, stdin=stdin, **environment)

    return call
