"""The time that importing and running take before the first product: whole processes, in turn."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import click

from mixpert_py import config
from mixpert_py.bench import machine
from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.cli import main
from mixpert_py.files import IMPORTED_FROM

SCRIPT = """\
import numpy as np

a = np.eye(8)
b = a @ a
print(np.dot(a, b).sum())
"""
# Name → two kinds of process, and by how many seconds the second may take longer than the first.
TARGETS = {
    "import": ("import numpy", "import numpy, mixpert_py", 0.060),
    "first run": ("python", "mixpert run, first", 0.5),
    "run from the cache": ("python", "mixpert run, from the cache", 0.2),
}


def measure(rounds: int = 15) -> dict[str, Any]:
    """Seconds of each kind of process, and their differences in every round beside the targets."""
    with tempfile.TemporaryDirectory() as folder:
        times = in_turn(_processes(Path(folder)), rounds)
    more = {}
    for name, (base, ours, target) in TARGETS.items():
        # Differences of each round: whatever slows the machine down slows all runs of a round.
        extra = summary([a - b for a, b in zip(times[ours], times[base], strict=True)])
        more[name] = {"wanted": target, "met": extra["median"] <= target, **extra}
    return {
        "unit": "s",
        "rows": {name: summary(row) for name, row in times.items()},
        "more": more,
    }


def _processes(folder: Path) -> dict[str, Callable[[], None]]:
    """Each kind of process; the first round fills the cache that the last kind reads."""
    script = folder / "products.py"
    script.write_text(SCRIPT, "utf-8")
    empty = (folder / f"cache_{number}" for number in count())

    def start(*arguments: str, cache: Path = folder / "cache") -> None:
        subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=_environment(cache),
            stdout=subprocess.DEVNULL,
            check=True,
        )

    run = "-m", "mixpert_py", "run", str(script)
    return {
        "import numpy": lambda: start("-c", "import numpy"),
        "import numpy, mixpert_py": lambda: start("-c", "import numpy, mixpert_py"),
        "python": lambda: start(str(script)),
        "mixpert run, first": lambda: start(*run, cache=next(empty)),
        "mixpert run, from the cache": lambda: start(*run),
    }


def _environment(cache: Path) -> dict[str, str]:
    """The environment of a run that keeps rewritten code in `cache`, from any current folder."""
    environment = config.child_environment()
    path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(IMPORTED_FROM)]))
    environment |= {"PYTHONPATH": path, "XDG_CACHE_HOME": str(cache)}
    for name in ("PYTHONDONTWRITEBYTECODE", "MIXPERT_PLAN"):
        environment.pop(name, None)
    return environment


@click.command()
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1))
def command(rounds: int) -> None:
    """The time that an import adds to NumPy's, and `mixpert run` to `python`."""
    found = {"machine": machine.machine(), **measure(rounds)}
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main(command, "python -m tests.measure.start_up")
