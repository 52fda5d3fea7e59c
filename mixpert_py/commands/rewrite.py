"""The commands that turn files into files: `mixpert rewrite` and `mixpert unrewrite`."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mixpert_py.sources.carrying_out import Task
    from mixpert_py.sources.rewriting import Rewritten
    from mixpert_py.sources.source_files import SourceFile


def _of_files(command: Callable[..., int]) -> Callable[..., int]:
    """The options of a command that turns files into files."""
    options = (
        click.argument("paths", nargs=-1, required=True, metavar="PATH…|-"),
        click.option("-o", "--output", metavar="OUT", help="Write here (one PATH only)."),
        click.option("-w", "--write", is_flag=True, help="Write back to the files themselves."),
        click.option("--diff", is_flag=True, help="Show what would change; write nothing."),
        click.option(
            "--check", is_flag=True, help="Exit 1 if anything would change; write nothing."
        ),
        click.option(
            "--exclude", multiple=True, metavar="GLOB", help="Leave these files of folders out."
        ),
        click.option(
            "-j", "jobs", type=click.IntRange(1), default=1, show_default=True, metavar="N"
        ),
        click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_of_files
@click.option(
    "--plan", "plan_path", metavar="PLAN", help="Write the plan's schemes into the calls."
)
@click.option("--scheme", metavar="NAME", help="Write this scheme into every call.")
@click.option("--fuse", is_flag=True, help="Make sums such as c += a @ b one call as well.")
def rewrite(
    paths: tuple[str, ...],
    output: str | None,
    write: bool,
    diff: bool,
    check: bool,
    plan_path: str | None,
    scheme: str | None,
    fuse: bool,
    exclude: tuple[str, ...],
    jobs: int,
    as_json: bool,
) -> int:
    """Replace matrix products by calls into MixPert-Py.

    Without -o or -w the result goes to script_mixpert.py beside the script. `-` reads a program
    from standard input and writes to standard output.
    """
    from mixpert_py import config
    from mixpert_py.sources import rewriting, source_files
    from mixpert_py.sources.carrying_out import Task

    shown = _shown(output, write, diff, check)
    several = False
    config.check_scheme(scheme)
    plan = config.load_plan(plan_path) if plan_path else None
    if paths == ("-",):
        source, file = _standard_input(write)
        results = iter([rewriting.rewrite_source(source, file, "stdin", plan, scheme, fuse)])
        output = output or (None if shown else "-")
    else:
        files = list(source_files.files_of_projects(paths, exclude))
        _require_one(files, output)
        if not (write or shown) and any(os.path.isdir(path) for path in paths):
            raise click.UsageError("a folder needs -w, --diff or --check")
        results = rewriting.rewrite_files(files, plan, scheme, jobs, fuse)
        several = len(files) > 1
    nothing = "no matrix product to rewrite"
    task = Task("rewrite", "rewritten", nothing, shown, output, write, several)
    return _finish(results, task, check=check, as_json=as_json)


@click.command()
@_of_files
def unrewrite(
    paths: tuple[str, ...],
    output: str | None,
    write: bool,
    diff: bool,
    check: bool,
    exclude: tuple[str, ...],
    jobs: int,
    as_json: bool,
) -> int:
    """Put the products back, byte for byte as they were.

    A call that was changed since stays, is named, and makes the exit code 1. `-` reads a program
    from standard input and writes to standard output.
    """
    from mixpert_py.sources import rewriting, source_files
    from mixpert_py.sources.carrying_out import Task

    shown = _shown(output, write, diff, check)
    several = False
    if paths == ("-",):
        source, file = _standard_input(write)
        results = iter([rewriting.restore_source(source, file, "stdin")])
        output = output or (None if shown else "-")
    else:
        if not (write or shown or output):
            raise click.UsageError("give -w, -o OUT, --diff or --check")
        files = list(source_files.files_of_projects(paths, exclude))
        _require_one(files, output)
        results = rewriting.restore_files(files, jobs)
        several = len(files) > 1
    nothing = "no runtime call to restore"
    task = Task("unrewrite", "restored", nothing, shown, output, write, several, names_left=True)
    return _finish(results, task, check=check, as_json=as_json)


def _shown(output: str | None, write: bool, diff: bool, check: bool) -> str | None:
    shown = "diff" if diff else "check" if check else None
    if sum((write, shown is not None, output is not None)) > 1:
        raise click.UsageError("give one of -o, -w, and --diff or --check")
    return shown


def _standard_input(write: bool) -> tuple[bytes, "SourceFile"]:
    from mixpert_py.sources.source_files import SourceFile

    if write:
        raise click.UsageError("standard input cannot be written back to; give -o or nothing")
    return sys.stdin.buffer.read(), SourceFile("-", ".")


def _require_one(files: "Sequence[SourceFile]", output: str | None) -> None:
    if output is not None and len(files) != 1:
        raise click.UsageError(f"-o takes one file, and {len(files)} were given")


def _finish(results: "Iterable[Rewritten]", task: "Task", *, check: bool, as_json: bool) -> int:
    """Show or write the files, each as it comes; returns the exit code."""
    from mixpert_py.sources.carrying_out import Tally, carry_out

    tally = Tally()
    records = []
    for result in results:
        done = carry_out(result, task)
        tally.count(done)
        if done.problem:
            click.echo(f"mixpert: {done.problem}", err=True)
        elif not as_json:
            sys.stdout.buffer.write(done.said)
        for site in result.records() if task.names_left else ():
            if not site["rewritten"]:
                said = f"{site['path']}: line {site['line']}: not restored: {site['reason']}"
                click.echo(f"mixpert: {said}", err=True)
        if as_json:
            records.append(done.record())
    if as_json:
        click.echo(json.dumps(records, indent=2))
    elif task.several:
        # A patch on standard output is to hold nothing else.
        click.echo(tally.line(task), err=task.shown == "diff")
    if tally.skipped:
        return 2
    return int((check and tally.changed > 0) or (task.names_left and tally.left > 0))
