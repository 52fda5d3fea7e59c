"""A command line to call."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mixpert_py.command import IMPORTABLE, Mixpert, Said


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
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MIXPERT_")}
        done = subprocess.run(
            [sys.executable, "-m", "mixpert_py", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=100,
            env={**clean, "PYTHONPATH": IMPORTABLE, "COLUMNS": "120", **environment},
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call
