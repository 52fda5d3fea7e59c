"""The command that lists products: `mixpert sites`."""

import json

import click

from mixpert_py.commands.program import complete_files


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", shell_complete=complete_files)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave these files of folders out.")
@click.option("-j", "jobs", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option("--fuse", is_flag=True, help="Make sums such as c += a @ b one call as well.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def sites(
    paths: tuple[str, ...], exclude: tuple[str, ...], jobs: int, fuse: bool, as_json: bool
) -> int:
    """List the products found, and those left alone, with reasons."""
    from mixpert_py.sources import rewriting, source_files

    files = list(source_files.files_of_projects(paths, exclude))
    records = []
    problems = 0
    for result in rewriting.rewrite_files(files, jobs=jobs, fuse=fuse):
        if result.problem is not None:
            click.echo(f"mixpert: {result.problem}", err=True)
            problems += 1
        records += result.records()
    if as_json:
        click.echo(json.dumps(records, indent=2))
    else:
        from mixpert_py.commands import tables

        tables.print_sites(records)
    return 2 if problems else 0
