"""`mixpert bench apps` on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from mixpert_py.commands.program import as_record


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; None for a default that depends on `host`."""

    size: Literal["small", "paper"]
    budget: float | None
    only: tuple[str, ...]
    host: bool
    backend: str
    samples: str
    seconds: float | None
    json_path: str | None
    save: bool


@click.command("apps")
@click.option("--size", type=click.Choice(["small", "paper"]), default="paper", show_default=True)
@click.option(
    "--budget", type=click.FloatRange(0.0), help="Of tuned plans. Default: 1e-4; with --host 1e-5."
)
@click.option("--only", multiple=True, metavar="NAME")
@click.option("--host", is_flag=True, help="Instead: NumPy programs, which take the GPU unasked.")
@click.option(
    "--backend",
    type=click.Choice(["cuda", "reference"]),
    default="cuda",
    show_default=True,
    help="reference: NumPy emulates the products, which shows errors and no times.",
)
@click.option("--samples", default="samples", show_default=True, metavar="FOLDER")
@click.option(
    "--seconds",
    type=float,
    help="After so many nothing runs any more. Default: 450; with --host 900.",
)
@click.option("--json", "json_path", metavar="FILE", help="Brought up to date by each of them.")
@click.option("--save", is_flag=True, help="FILE is beside the code, for the pages.")
@as_record(Options)
def bench_apps(asked: Options) -> int:
    """Whole programs: native, in TF32, faithful, and tuned."""
    if asked.save and (asked.size != "paper" or asked.backend != "cuda"):
        raise click.UsageError("--save keeps results of a GPU at the papers' sizes")
    from mixpert_py.bench import machine
    from mixpert_py.bench.apps import run

    budget = (1e-5 if asked.host else 1e-4) if asked.budget is None else asked.budget
    seconds = (900.0 if asked.host else 450.0) if asked.seconds is None else asked.seconds
    backend = None if asked.backend == "cuda" else asked.backend
    options = run.Options(asked.size, budget, asked.samples, backend, asked.host)
    path = Path(asked.json_path) if asked.json_path else None
    return run.run(options, asked.only, machine.RESULTS / run.NAME if asked.save else path, seconds)
