"""The time that importing and running take before the first product: whole processes, in turn."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
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


def imports(module: str, rounds: int) -> dict[str, Any]:
    """Seconds of processes that import a module, native and with its package rewritten."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "imports.py"
        script.write_text(f"import {module}\n", "utf-8")
        times = in_turn(_ways(script, "--package", module.partition(".")[0]), rounds)
    native, *ours = times
    ratios = {
        way: summary([a / b for a, b in zip(times[way], times[native], strict=True)])
        for way in ours
    }
    rows = {way: summary(row) for way, row in times.items()}
    return {"unit": "s", "rows": rows, f"over {native}": ratios}


def _processes(folder: Path) -> dict[str, Callable[[], None]]:
    script = folder / "products.py"
    script.write_text(SCRIPT, "utf-8")
    cache = folder / "cache"
    return {
        "import numpy": lambda: _start(cache, "-c", "import numpy"),
        "import numpy, mixpert_py": lambda: _start(cache, "-c", "import numpy, mixpert_py"),
        **_ways(script),
    }


def _ways(script: Path, *options: str) -> dict[str, Callable[[], None]]:
    """The ways to run a script; the first round fills the cache that the last way reads."""
    folder = script.parent
    empty = (folder / f"cache_{number}" for number in count())
    start = partial(_start, folder / "cache")
    run = "-m", "mixpert_py", "run", *options, str(script)
    return {
        "python": lambda: start(str(script)),
        "mixpert run, first": lambda: _start(next(empty), *run),
        "mixpert run, from the cache": lambda: start(*run),
    }


def _start(cache: Path, *arguments: str) -> None:
    """Run Python with these arguments; raises CalledProcessError where it fails."""
    subprocess.run(
        [sys.executable, *arguments],
        cwd=cache.parent,
        env=_environment(cache),
        stdout=subprocess.DEVNULL,
        check=True,
    )


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
@click.option("--imports", "module", metavar="MODULE", help="Of a package that is rewritten.")
def command(rounds: int, module: str | None) -> None:
    """The time that an import adds to NumPy's, and `mixpert run` to `python`."""
    found = measure(rounds) if module is None else imports(module, rounds)
    found = {"machine": machine.machine(), **found}
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main(command, "python -m tests.measure.start_up")
