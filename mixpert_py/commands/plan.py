"""The commands that look at plan files: `mixpert plan`."""

import json

import click

from mixpert_py.commands.program import complete_files


@click.group("plan")
def plan() -> None:
    """Look at plan files."""


@plan.command("show")
@click.argument("path", metavar="PLAN", shell_complete=complete_files)
def plan_show(path: str) -> None:
    """Print a plan as a table."""
    from mixpert_py import config
    from mixpert_py.commands import tables

    tables.print_plan(config.load_plan(path))


@plan.command("validate")
@click.argument("path", metavar="PLAN", shell_complete=complete_files)
def plan_validate(path: str) -> None:
    """Check a plan file: exit 0, or one line that says what is wrong."""
    from mixpert_py import config

    found = config.load_plan(path)
    click.echo(f"{path}: valid, {len(found.site)} call site{'s' * (len(found.site) != 1)}")


@plan.command("diff")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@click.argument("old", metavar="A", shell_complete=complete_files)
@click.argument("new", metavar="B", shell_complete=complete_files)
def plan_diff(as_json: bool, old: str, new: str) -> int:
    """Show what B decides otherwise than A: exit 1 if anything.

    Errors and times are shown with what differs; they, and the date, make no difference.
    """
    from mixpert_py import config
    from mixpert_py.plan_diff import difference

    found = difference(config.load_plan(old), config.load_plan(new))
    if as_json:
        click.echo(json.dumps(found.record(), indent=2))
    else:
        for line in found.lines():
            click.echo(line)
    return int(bool(found))
