"""The command that compares plans: `mixpert plan diff`."""

import json

import click


@click.command("diff")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
def plan_diff(as_json: bool, old: str, new: str) -> int:
    """Show what plan B decides otherwise than plan A: exit 1 if anything, else 0.

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
