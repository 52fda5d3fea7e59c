"""A command line to call."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixpert_py.command import IMPORTABLE, Mixpert, Said


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
