"""The command that lists products: `mixpert sites`."""

import json

import click

from mixpert_py.commands.program import (
    FILE,
    exclude_option,
    package_option,
    require_paths,
)


@click.command()
@package_option
@click.argument("paths", nargs=-1, metavar="PATH…", type=FILE)
@exclude_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def sites(
    packages: tuple[str, ...],
    paths: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
) -> int:
    """List the products found, and those left alone, with reasons."""
    from mixpert_py.sources import project, rewriting
    from mixpert_py.sources.modules import files as files_of_packages

    require_paths(paths, packages)
    files = list(project.files_of_projects(paths, exclude))
    libraries = files_of_packages(packages)
    files += libraries
    records = []
    problems = 0
    for result in rewriting.rewrite_files(files):
        if result.problem is not None:
            click.echo(f"mixpert: {result.problem}", err=True)
            problems += 1
        for record in result.records():
            path = record["path"]
            records.append({**record, "path": libraries.get(path, path)})
    if as_json:
        click.echo(json.dumps(records, indent=2))
    else:
        for record in records:
            place = f"{record['path']}:{record['line']}:{record['column']}"
            click.echo(f"{place}: {record['expression']} — {record['reason'] or 'is rewritten'}")
        found = sum(record["rewritten"] for record in records)
        click.echo(f"{found} rewritten, {len(records) - found} left alone")
    return 2 if problems else 0
