"""Where a benchmark ran, and its results on disk."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py import __version__

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The facts that a time depends on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mixpert-py": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def finish(name: str, result: dict[str, Any], keep: bool) -> dict[str, Any]:
    """The result with the machine it was measured on; kept beside the code if asked."""
    result = {"machine": machine(), **result}
    if keep:
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        (RESULTS / f"{name}.json").write_text(text, "utf-8")
    return result


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
