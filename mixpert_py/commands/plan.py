"""The commands that look at plan files: `mixpert plan`."""

import click

from mixpert_py.commands.program import FILE


@click.group("plan")
def plan() -> None:
    """Look at plan files."""


@plan.command("show")
@click.argument("path", metavar="PLAN", type=FILE)
def plan_show(path: str) -> None:
    """Check a plan, and print it as a table."""
    from mixpert_py import config
    from mixpert_py.commands import tables

    tables.print_plan(config.load_plan(path))
