"""Where these tests' programs run."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _small_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuning copies the folder that it is started in, and looks through it after each run: the
    checkout has a thousand files.
    """
    monkeypatch.chdir(tmp_path)
