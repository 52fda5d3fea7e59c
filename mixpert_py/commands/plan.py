"""The commands that look at plan files: `mixpert plan`."""

import click

from mixpert_py.commands.program import FILE
from mixpert_py.errors import counted


@click.group("plan")
def plan() -> None:
    """Look at plan files."""


@plan.command("show")
@click.argument("path", metavar="PLAN", type=FILE)
def plan_show(path: str) -> None:
    """Print a plan as a table."""
    from mixpert_py import config
    from mixpert_py.commands import tables

    tables.print_plan(config.load_plan(path))


@plan.command("validate")
@click.argument("path", metavar="PLAN", type=FILE)
def plan_validate(path: str) -> None:
    """Check a plan file: exit 0, or one line that says what is wrong."""
    from mixpert_py import config

    found = config.load_plan(path)
    click.echo(f"{path}: valid, {counted(len(found.site), 'call site')}")
