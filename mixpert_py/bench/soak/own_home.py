"""Processes that find an empty home: caches of their own, and nothing else changed."""

import site
from pathlib import Path

from mixpert_py import config


def environment(home: Path) -> dict[str, str]:
    """That of a child process whose caches, ours and CuPy's, are below `home`."""
    inherited = config.child_environment(threads=1)
    inherited.pop("MIXPERT_PLAN", None)
    return inherited | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "CUPY_CACHE_DIR": str(home / "cupy"),
        "PYTHONUSERBASE": site.getuserbase(),  # packages that are installed in the real one
    }
