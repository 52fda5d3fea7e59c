"""The command that says whether a program can gain: `mixpert estimate`."""

import json
import shlex
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import click

from mixpert_py.commands.program import (
    ProgramCommand,
    as_record,
    complete_files,
    require_seconds,
    with_progress,
)

if TYPE_CHECKING:
    from mixpert_py.launch.launcher import Program
    from mixpert_py.tuner.estimate import Place


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `mixpert estimate`, and the words that follow them."""

    error: str
    time_limit: float | None
    as_json: bool
    quiet: bool
    verbose: bool
    no_progress: bool
    module: str | None
    arguments: tuple[str, ...]

    @property
    def budget(self) -> float:
        """The error that is allowed. Raises UsageError where it is no number of at least 0."""
        try:
            budget = float(self.error)
        except ValueError:
            budget = -1.0
        if not (budget >= 0 and isfinite(budget)):
            raise click.UsageError(f"--error is a number of at least 0, not {self.error}")
        return budget

    @property
    def is_notebook(self) -> bool:
        return self.module is None and bool(self.arguments) and self.arguments[0].endswith(".ipynb")

    def program(self) -> "Program":
        """The program that is named. Raises UsageError where none is."""
        from mixpert_py.launch import launcher

        if self.module is not None:
            return launcher.module(self.module, self.arguments)
        if not self.arguments:
            raise click.UsageError("give a SCRIPT, a notebook, or -m MODULE")
        read = launcher.notebook if self.is_notebook else launcher.script
        return read(self.arguments[0], self.arguments[1:])

    def next_command(self, place: "Place") -> str:
        """The command that makes the gain of a place, as it is typed."""
        if self.is_notebook:
            return f"%load_ext mixpert_py, then %mixpert on --scheme {place.scheme}"
        if place.scheme is not None:
            words = [] if self.module is None else ["-m", self.module]
            return shlex.join(["mixpert", "run", "--scheme", place.scheme, *words, *self.arguments])
        script, *arguments = self.arguments
        device = [] if place.device is None else ["--device", place.device.lower()]
        behind = ["--", *arguments] if arguments and arguments[0].startswith("-") else arguments
        return shlex.join(["mixpert", "tune", "--error", self.error, *device, script, *behind])


@click.command(cls=ProgramCommand)
@click.option(
    "--error",
    metavar="BUDGET",
    default="1e-5",
    show_default=True,
    help="The error allowed, for which the likely gain is estimated.",
)
@click.option(
    "--time-limit",
    type=float,
    metavar="S",
    help="Seconds for the run and the products by themselves.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the estimate as JSON.")
@with_progress
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument(
    "arguments",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="SCRIPT ARGS…",
    shell_complete=complete_files,
)
@as_record(Options)
def estimate(options: Options) -> int:
    """Say whether a program can gain, after one run of it.

    Each of its products is then made by itself under each level, for ten seconds at most: how fast
    here, by device models on GPUs, and with which error. SCRIPT may be a notebook.
    """
    from mixpert_py.commands import estimate_table, tables
    from mixpert_py.tuner.estimate import verdict, worth
    from mixpert_py.tuning.estimate import estimate as estimated

    budget = options.budget
    require_seconds(options.time_limit)
    program = options.program()
    quiet = options.as_json or options.quiet or options.no_progress
    with tables.progress(quiet, options.verbose) as show:
        found = estimated(program, budget, options.time_limit, show)
    if found is None:
        click.echo(f"{program.argv[0]}: no matrix product to estimate", err=True)
        if options.as_json:
            click.echo("null")
        return 0
    best = worth(found.places)
    command = None if best is None else options.next_command(best)
    sentence = verdict(found.share, found.places, options.error)
    if options.as_json:
        record = {"error": budget, **found.record(), "verdict": sentence, "command": command}
        click.echo(json.dumps(record, indent=2))
        return 0
    if not options.quiet:
        estimate_table.print_estimate(found, options.error)
    estimate_table.print_verdict(sentence, command)
    return 0
