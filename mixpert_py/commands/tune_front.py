"""`mixpert tune --front`: what each budget gains."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mixpert_py.commands.program import plan_place
from mixpert_py.commands.tune import (
    Options,
    interrupted_search,
    nothing_to_tune,
    say,
    searched,
)
from mixpert_py.errors import writing

if TYPE_CHECKING:
    from mixpert_py.launch.launcher import Program
    from mixpert_py.tuning.front import FrontResult
    from mixpert_py.tuning.options import TuningOptions


def tune_front(program: "Program", settings: "TuningOptions", options: Options) -> int:
    """Search, print the steps and write their plans where a folder was named; the exit code.

    Without a folder the tuning is left unfinished, so that --resume can write the plans.
    """
    from mixpert_py import config, interrupts
    from mixpert_py.tuning import record
    from mixpert_py.tuning.front import tune_front as search
    from mixpert_py.tuning.trials import SUFFIX, Trials

    folder = None if options.output is None else Path(options.output)
    if folder is not None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
    beside = plan_place(program)
    existing = config.load_plan(beside) if beside.exists() else None
    name = beside.name.removesuffix(config.SUFFIX)
    store = beside.with_name(f"{name}.front{SUFFIX}")
    trials = Trials(store, options.resume, say)
    with interrupts.deferred_signals() as interrupt:
        try:
            result = searched(program, settings, options, existing, trials, interrupt, search)
        except KeyboardInterrupt:  # before there was any step
            return interrupted_search(trials)
        if isinstance(result, str):
            nothing_to_tune(program, result, options)
            return 1
        if result.interrupted:
            return interrupted_search(trials)
        paths = [] if folder is None else _save(result, folder, name)
        entry = record.front_record(result, paths)
        trials.end(entry, folder is not None)
    if options.as_json:
        click.echo(json.dumps(entry, indent=2))
    elif not options.quiet:
        _show(entry, folder, store)
        if result.compared:
            click.echo(result.compared)
    return int(result.unclear)


def _save(result: "FrontResult", folder: Path, name: str) -> list[str]:
    """Write the plan of each step, named for its budget: `mlp.1e-5.mixpert.toml`."""
    from mixpert_py import config
    from mixpert_py import plan as plan_file
    from mixpert_py.tuner.report.unit import budget_text

    paths = []
    for step in result.steps:
        path = folder / f"{name}.{budget_text(step.outcome.budget)}{config.SUFFIX}"
        plan_file.save(step.plan, path)
        paths.append(str(path))
    return paths


def _show(entry: dict[str, object], folder: Path | None, store: Path) -> None:
    from mixpert_py.commands import tables
    from mixpert_py.tuner.report.record import read

    record = read(entry, "")
    tables.print_front(record)
    if record.steps and folder is None:
        click.echo("no plan was written; --front --resume -o FOLDER writes one for each step")
    for step in record.steps or ():
        if step.plan_file:
            click.echo(f"plan written to {step.plan_file}")
    if store.is_file():
        click.echo(f"mixpert report {store} --html DIR shows it as a page")
