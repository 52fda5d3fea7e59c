"""`mixpert bench apps` on the command line."""

from pathlib import Path
from typing import Literal

import click


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
@click.option("--save", is_flag=True, help="FILE is beside the code, for the README.")
def bench_apps(
    size: Literal["small", "paper"],
    budget: float | None,
    only: tuple[str, ...],
    host: bool,
    backend: str,
    samples: str,
    seconds: float | None,
    json_path: str | None,
    save: bool,
) -> int:
    """Whole programs: native, in TF32, faithful, and tuned."""
    if save and (size != "paper" or backend != "cuda"):
        raise click.UsageError("--save keeps results of a GPU at the papers' sizes")
    from mixpert_py.bench import machine
    from mixpert_py.bench.apps import run

    allowed = (1e-5 if host else 1e-4) if budget is None else budget
    seconds = (900.0 if host else 450.0) if seconds is None else seconds
    options = run.Options(size, allowed, samples, None if backend == "cuda" else backend, host)
    path = machine.RESULTS / run.NAME if save else Path(json_path) if json_path else None
    return run.run(options, only, path, seconds)
