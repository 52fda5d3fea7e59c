"""Facts about this machine on which measured times depend."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixpert_py import __version__


def machine() -> dict[str, Any]:
    """The facts on which a time depends."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "mixpert-py": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
