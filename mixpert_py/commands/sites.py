"""The command that lists products: `mixpert sites`."""

import json

import click

from mixpert_py.commands import FILE, exclude_option, say


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=FILE)
@exclude_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def sites(paths: tuple[str, ...], exclude: tuple[str, ...], as_json: bool) -> int:
    """List the products found, and those left alone, with reasons."""
    from mixpert_py import sources
    from mixpert_py.commands.rewrite import rewrite_files

    records = []
    problems = 0
    for result in rewrite_files(list(sources.files_of_projects(paths, exclude))):
        if result.problem is not None:
            say(result.problem)
            problems += 1
        records += result.records()
    if as_json:
        click.echo(json.dumps(records, indent=2))
    else:
        for record in records:
            place = f"{record['path']}:{record['line']}:{record['column']}"
            click.echo(f"{place}: {record['expression']} — {record['reason'] or 'is rewritten'}")
        found = sum(record["rewritten"] for record in records)
        click.echo(f"{found} rewritten, {len(records) - found} left alone")
    return 2 if problems else 0
