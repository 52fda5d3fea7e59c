"""Child processes of the gates: each finds an empty home, and so empty caches."""

import site
import sys
from pathlib import Path

from mixpert_py import config

ROOT = Path(__file__).resolve().parents[1]  # the current folder of every child, for its imports


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of these tests in a new interpreter, from ROOT."""
    return [sys.executable, "-m", module, *arguments]


def environment(home: Path) -> dict[str, str]:
    """The environment of a child process whose caches, ours and CuPy's, are below `home`."""
    inherited = config.child_environment() | {"OPENBLAS_NUM_THREADS": "1"}
    inherited.pop("MIXPERT_PLAN", None)
    return inherited | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "CUPY_CACHE_DIR": str(home / "cupy"),
        "PYTHONUSERBASE": site.getuserbase(),  # packages that are installed in the real one
    }
