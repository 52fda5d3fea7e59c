"""The README's first example, tuned again and again: is the plan the same, and how fast is it?"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from mixpert_py.cli import main
from tests.benchmarks import machine

SAMPLE = Path(__file__).parents[2] / "samples" / "diffusion.py"
BUDGET = "1e-5"

Record = dict[str, Any]


def measure(tries: int) -> list[Record]:
    """Tune the sample, one try after the other, each with a new plan file."""
    found = []
    for number in range(1, tries + 1):
        with tempfile.TemporaryDirectory() as folder:
            plan = str(Path(folder, "diffusion.mixpert.toml"))
            words = ["tune", str(SAMPLE), "--error", BUDGET, "--json", "-o", plan]
            start = perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "mixpert_py", *words], capture_output=True, text=True
            )
            seconds = perf_counter() - start
        if done.returncode:
            raise click.ClickException(f"try {number}: exit code {done.returncode}\n{done.stderr}")
        found.append({"seconds": seconds, **_record(json.loads(done.stdout))})
        click.echo(f"try {number}: {found[-1]}", err=True)
    return found


def _record(tuned: Mapping[str, Any]) -> Record:
    """What one tuning found: its plan, and its verification in fresh processes."""
    verified = tuned["verification"]
    return {
        "schemes": tuned["schemes"],
        "error": verified["error"],
        "native": tuned["gain"]["before"],
        "tuned": tuned["gain"]["after"],
        "products_native": verified["native_lowered"],
        "products_tuned": verified["lowered"],
    }


def markdown(result: Record) -> str:
    """A sentence on all tries: the plan, the gains, and the time that a tuning took."""
    tries, facts = result["tries"], result["machine"]
    gains = sorted(one["native"] / one["tuned"] for one in tries)
    plans = {tuple(sorted(one["schemes"].items())) for one in tries}
    before, after, took = (
        median(one[name] for one in tries) for name in ("native", "tuned", "seconds")
    )
    same = "the same plan each time" if len(plans) == 1 else f"{len(plans)} plans"
    return (
        f"{len(tries)} tries: {same}; {before:.2f} → {after:.2f} s, {median(gains):.2f}× as fast "
        f"in the median ({gains[0]:.2f} to {gains[-1]:.2f}), after {took:.0f} s of tuning. "
        f"{facts['cores']} cores of {facts['cpu']}, {facts['date']}.\n"
    )


@click.command()
@click.option("--tries", type=click.IntRange(1), default=10, show_default=True)
@machine.save_option
def command(tries: int, save: bool) -> None:
    """Tunings of the README's first example, one after another, on an idle machine."""
    found = measure(tries)
    result = {"machine": machine.machine(), "tries": found}
    machine.finish("first-example", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.first_example")
