"""The command that says whether a program can gain: `mixpert estimate`."""

import json
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mixpert_py import commands

if TYPE_CHECKING:
    from mixpert_py.tuner.prediction import PredictedGain


BUDGET = "1e-5"


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    error: str | None
    time_limit: float | None
    as_json: bool
    quiet: bool
    verbose: bool
    module: str | None
    packages: tuple[str, ...]
    script: str | None
    arguments: tuple[str, ...]

    @property
    def budget(self) -> str:
        """The allowed error: as typed here, the project's for all values, its smallest, or BUDGET.

        Raises MixPertError if it is not a number of at least 0.
        """
        from mixpert_py import sources
        from mixpert_py.tuning.options import budget_of, parse_budgets, parse_named

        if self.error is not None:
            budget_of("--error", self.error)
            return self.error
        typed = sources.tuning_defaults((self.module is None and self.script) or "").error
        option = "[tool.mixpert] error"
        budgets, texts = parse_budgets(option, typed), parse_named(option, typed)
        name = None if None in budgets else min(budgets, key=budgets.__getitem__, default=None)
        return texts.get(name) or BUDGET

    def next_command(self, place: "PredictedGain", budget: str) -> str:
        command = ["mixpert", "tune", "--error", budget]
        if place.device is None and {*place.plan.values()} - {"native"} == {"exact"}:
            command = ["mixpert", "run"]  # where `exact` is the default
        elif place.device is not None:
            command += ["--device", place.device.lower()]
        command += [word for name in self.packages for word in ("--package", name)]
        words = [*([] if self.script is None else [self.script]), *self.arguments]
        if self.module is not None:
            return shlex.join([*command, "-m", self.module, *words])
        behind = ["--"] if words[1:] and words[1].startswith("-") else []
        return shlex.join([*command, *words[:1], *behind, *words[1:]])


@click.command(cls=commands.ProgramCommand)
@click.option(
    "--error",
    metavar="BUDGET",
    help="The error allowed, for which the likely gain is estimated. Default: `error` under "
    f"[tool.mixpert] in pyproject.toml, else {BUDGET}.",
)
@click.option(
    "--time-limit",
    type=commands.seconds,
    metavar="S",
    help="Seconds for the run and the products by themselves.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the estimate as JSON.")
@commands.with_progress
@commands.package_option
@commands.module_option
@commands.script_argument
@commands.its_arguments
@commands.as_record(EstimateOptions)
def estimate(options: EstimateOptions) -> int:
    """Say whether a program can gain, after one run of it.

    Each product is then timed alone under each level, for as long as the program ran and ten
    seconds at most: its speed here and, by device models, on GPUs, and its error. SCRIPT may be a
    notebook; of its `%%` cells, those under `%%time`, `%%capture` and `%%mixpert` are run.
    """
    from mixpert_py.commands import tables
    from mixpert_py.tuner.prediction import verdict, worth
    from mixpert_py.tuning.estimate import estimate as estimated

    budget = options.budget
    program = commands.program_of(options.module, options.script, options.arguments)
    packages = commands.packages_of(program, options.packages)
    quiet = options.as_json or options.quiet
    if not quiet and sys.stderr.isatty():
        commands.say("runs the program once; its products then take as long, 1 to 10 seconds")
    with tables.progress(quiet, options.verbose) as show:
        found = estimated(program, float(budget), options.time_limit, show, packages)
    if found is None:
        line = "makes no matrix product in its own process that could be rewritten"
        click.echo(f"{program.argv[0]}: {line}", err=True)
        if options.as_json:
            click.echo("null")
        return 1
    best = worth(found.places)
    command = None if best is None else options.next_command(best, budget)
    sentence = verdict(found.share, found.places, budget)
    is_all = best is None and found.unsuited and not found.uncounted
    if is_all:
        sentence = f"{program.argv[0]}: {found.unsuited}."
    if options.as_json:
        record = {"error": float(budget), **found.record()}
        click.echo(json.dumps({**record, "verdict": sentence, "command": command}, indent=2))
        return 0
    if not options.quiet and not is_all:
        tables.print_estimate(found, budget, program.filename)
    tables.print_verdict(sentence, command)
    return 0
