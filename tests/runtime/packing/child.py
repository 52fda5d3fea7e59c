"""Checks in a process of their own: Numba decides when it is imported whether to simulate."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent


def run(*checks: str, simulated: bool) -> str:
    """Runs files of checks, beside this one, with pytest; fails as it does. What pytest wrote."""
    if find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed")
    # In place of the project's own options, of which some are a plugin's.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    command = [sys.executable, "-m", "pytest", *options, *checks]
    environment = {
        **os.environ,
        "NUMBA_ENABLE_CUDASIM": "1" if simulated else "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they use none, and loading them takes seconds
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout
