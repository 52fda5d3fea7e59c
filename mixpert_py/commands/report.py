"""The command that shows what a tuning did: `mixpert report`."""

import json
from pathlib import Path

import click

from mixpert_py.commands import FILE
from mixpert_py.errors import MixPertError, writing


@click.command()
@click.option("--html", "folder", metavar="DIR", type=FILE, help="Write a page, DIR/index.html.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the tuning.")
@click.argument("plan", metavar="PLAN", type=FILE)
def report(folder: str | None, as_json: bool, plan: str) -> None:
    """Show what a tuning gained and tried, and why it stopped.

    Without --html or --json a summary is printed. PLAN is what the tuning wrote.
    """
    from mixpert_py import config, files
    from mixpert_py.tuner import tuning_record
    from mixpert_py.tuning import trials

    if folder is not None and as_json:
        raise click.UsageError("give one of --html DIR and --json")
    schemes = config.load_plan(plan).schemes()
    saved = trials.latest(Path(plan))
    if saved is None:
        raise MixPertError(f"{plan}: no tuning is kept beside it; `mixpert tune` keeps one there")
    record = tuning_record.read(saved, str(trials.beside(Path(plan))))
    if as_json:
        import msgspec

        click.echo(json.dumps(msgspec.to_builtins(record), indent=2))
        return
    if record.schemes != schemes:
        record.notes.append("The plan file has changed since: this is what the tuning found.")
    from mixpert_py.commands import tables

    if folder is None:
        tables.print_report(record)
        return
    target = Path(folder, "index.html")
    content = tables.report_page(record)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        files.replace(target, content.encode())
    click.echo(f"report written to {target}")
