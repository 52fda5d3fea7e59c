"""The command that lists products: `mixpert sites`."""

import json
import os
from dataclasses import dataclass

import click

from mixpert_py.commands.program import (
    as_record,
    complete_files,
    exclude_option,
    form_option,
    jobs_option,
    package_option,
    require_paths,
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `mixpert sites`, and the files that it looks at."""

    packages: tuple[str, ...]
    paths: tuple[str, ...]
    exclude: tuple[str, ...]
    jobs: int
    as_json: bool
    form: str


@click.command()
@package_option
@click.argument("paths", nargs=-1, metavar="PATH…", shell_complete=complete_files)
@exclude_option
@jobs_option
@click.option(
    "--json", "as_json", is_flag=True, help="The same as --format json: print a JSON list."
)
@form_option
@as_record(Options)
def sites(options: Options) -> int:
    """List the products found, and those left alone, with reasons."""
    from mixpert_py.commands import annotations
    from mixpert_py.sources import rewriting, source_files
    from mixpert_py.sources.packages import files as files_of_packages

    if options.as_json and options.form == "github":
        raise click.UsageError("give one of --format and --json")
    require_paths(options.paths, options.packages)
    files = list(source_files.files_of_projects(options.paths, options.exclude))
    libraries = files_of_packages(options.packages)
    files += map(source_files.SourceFile, libraries, map(os.path.dirname, libraries))
    records = []
    problems = 0
    for result in rewriting.rewrite_files(files, jobs=options.jobs):
        if result.problem is not None:
            click.echo(f"mixpert: {result.problem}", err=True)
            problems += 1
            if options.form == "github":
                click.echo(annotations.problem(result.path, result.problem))
        for record in result.records():
            path = record["path"]
            records.append({**record, "path": libraries.get(path, path)})
    if options.form == "github":  # a pull request is to show what is left alone, and nothing else
        for record in records:
            if not record["rewritten"]:
                click.echo(annotations.site(record, record["reason"]))
    elif options.as_json or options.form == "json":
        click.echo(json.dumps(records, indent=2))
    else:
        for record in records:
            place = f"{record['path']}:{record['line']}:{record['column']}"
            click.echo(f"{place}: {record['expression']} — {record['reason'] or 'is rewritten'}")
        found = sum(record["rewritten"] for record in records)
        click.echo(f"{found} rewritten, {len(records) - found} left alone")
    return 2 if problems else 0
