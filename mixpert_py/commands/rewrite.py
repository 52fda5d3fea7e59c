"""The command that turns files into files: `mixpert rewrite`."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mixpert_py.commands.program import (
    FILE,
    as_record,
    complete_schemes,
    exclude_option,
    jobs_option,
    quiet_option,
)

if TYPE_CHECKING:
    from mixpert_py.sources.rewriting import Outcome, Rewritten, Task
    from mixpert_py.sources.source_files import SourceFile


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `mixpert rewrite`."""

    paths: tuple[str, ...]
    output: str | None
    write: bool
    diff: bool
    check: bool
    exclude: tuple[str, ...]
    jobs: int
    as_json: bool
    quiet: bool
    verbose: bool
    plan_path: str | None
    scheme: str | None

    @property
    def is_standard_input(self) -> bool:
        """Whether the program is read from standard input."""
        return self.paths == ("-",)

    @property
    def preview(self) -> str | None:
        """How results are shown without being written."""
        return "diff" if self.diff else "check" if self.check else None

    @property
    def target(self) -> str | None:
        """The file for a single result; "-" for standard output."""
        if self.is_standard_input and not self.preview:
            return self.output or "-"
        return self.output

    def shows(self, outcome: "Outcome") -> bool:
        """Return whether the message about a file is printed.

        With --quiet only results that were asked for are printed.
        """
        asked_for = self.diff or outcome.output == "-"
        return not self.as_json and (asked_for or not self.quiet)

    def require_one_way(self) -> None:
        """Raise UsageError if results would go to several places, or to an invalid one."""
        if self.write + (self.preview is not None) + (self.output is not None) > 1:
            raise click.UsageError("give one of -o, -w, and --diff or --check")
        if self.is_standard_input and self.write:
            raise click.UsageError("standard input cannot be written back to; give -o or nothing")

    def files(self) -> "list[SourceFile]":
        """The files that the paths name. Raises UsageError if -o is given for several."""
        from mixpert_py.sources import source_files

        found = list(source_files.files_of_projects(self.paths, self.exclude))
        if self.output is not None and len(found) != 1:
            raise click.UsageError(f"-o takes one file, and {len(found)} were given")
        return found


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…|-", type=FILE)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=FILE,
    help="Write the result here (one PATH only).",
)
@click.option("-w", "--write", is_flag=True, help="Replace the files themselves.")
@click.option("--diff", is_flag=True, help="Show the changes; write nothing.")
@click.option("--check", is_flag=True, help="Exit with 1 if a file would change; write nothing.")
@exclude_option
@jobs_option
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@quiet_option
@click.option("-v", "--verbose", is_flag=True, help="Name each product that is left alone.")
@click.option(
    "--plan",
    "plan_path",
    metavar="PLAN",
    type=FILE,
    help="Write the plan's schemes into the calls.",
)
@click.option(
    "--scheme",
    metavar="NAME",
    shell_complete=complete_schemes,
    help="Write this scheme into every call.",
)
@as_record(Options)
def rewrite(options: Options) -> int:
    """Replace matrix products by calls into MixPert-Py.

    Without -o or -w the result goes to script_mixpert.py beside the script. `-` reads a program
    from standard input and writes to standard output.
    """
    from mixpert_py import config
    from mixpert_py.sources import rewriting

    options.require_one_way()
    scheme = options.scheme
    config.check_scheme(scheme)
    plan = config.load_plan(options.plan_path) if options.plan_path else None
    if options.is_standard_input:
        source, file = _standard_input()
        result = rewriting.rewrite_source(source, file, "stdin", plan, scheme)
        return _finish([result], _task(options, 1), options)
    files = options.files()
    if not (options.write or options.preview) and any(map(os.path.isdir, options.paths)):
        raise click.UsageError("a folder needs -w, --diff or --check")
    results = rewriting.rewrite_files(files, plan, scheme, options.jobs)
    return _finish(results, _task(options, len(files)), options)


def _standard_input() -> "tuple[bytes, SourceFile]":
    from mixpert_py.sources.source_files import SourceFile

    return sys.stdin.buffer.read(), SourceFile("-", ".", is_named=True)


def _task(options: Options, count: int) -> "Task":
    """The command's task for so many files."""
    from mixpert_py.sources.rewriting import Task

    return Task(
        preview=options.preview,
        output=options.target,
        in_place=options.write,
        has_summary=count > 1,
        names_left=options.verbose,
    )


def _finish(results: "Iterable[Rewritten]", task: "Task", options: Options) -> int:
    """Show or write each file as it is finished, and return the exit code."""
    from mixpert_py.sources.rewriting import Tally, deliver

    tally = Tally()
    records = []
    for result in results:
        outcome = deliver(result, task)
        tally.count(outcome)
        if outcome.problem:
            click.echo(f"mixpert: {outcome.problem}", err=True)
        elif options.shows(outcome):
            sys.stdout.buffer.write(outcome.message)
        for site in result.records() if task.names_left else ():
            if not site["rewritten"]:
                place = f"{site['path']}: line {site['line']}"
                kept = f"not rewritten: {site['reason']}"
                click.echo(f"mixpert: {place}: {kept}", err=True)
        if options.as_json:
            records.append(outcome.record())
    if options.as_json:
        click.echo(json.dumps(records, indent=2))
    elif task.has_summary and not options.quiet:
        # A patch on standard output is to hold nothing else.
        click.echo(tally.line(task), err=task.preview == "diff")
    if tally.skipped:
        return 2
    return int(options.check and tally.changed > 0)
