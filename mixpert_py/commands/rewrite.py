"""The command that turns files into files: `mixpert rewrite`."""

import difflib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mixpert_py import config, files, sources
from mixpert_py.commands import FILE, as_record, exclude_option, say
from mixpert_py.errors import MixPertError, SourceError, counted, named, writing
from mixpert_py.passes import pipeline
from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import MARK
from mixpert_py.plan import Plan
from mixpert_py.sources.in_memory import collecting_seldom, require_known_comments


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file before and after, or why there is no result; sites with a reason stay."""

    path: str
    sites: tuple[CallSite, ...] = ()
    before: bytes = b""
    after: bytes = b""
    problem: str | None = None

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def left(self) -> tuple[CallSite, ...]:
        return tuple(site for site in self.sites if site.reason is not None)

    def diff(self) -> str:
        """The change as a unified diff; bytes that are not UTF-8 are escaped."""
        old, new = (
            text.decode("utf-8", "backslashreplace").splitlines(keepends=True)
            for text in (self.before, self.after)
        )
        lines = difflib.unified_diff(old, new, f"a/{self.path}", f"b/{self.path}")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "id": site.id,
                "path": f"{self.path}:cell_{site.cell}" if site.cell else self.path,
                "line": site.line,
                "column": site.column,
                "kind": site.kind,
                "expression": site.expression,
                "rewritten": site.reason is None,
                "reason": site.reason,
            }
            for site in self.sites
        ]


def rewrite_files(
    files: Sequence[str], plan: Plan | None = None, scheme: str | None = None
) -> Iterator[Rewritten]:
    """Rewrite each file in memory, in order. A file that cannot be rewritten has a `problem`."""
    for path in files:
        with collecting_seldom():
            try:
                source, module = sources.read(path), config.module_name(Path(path))
                result = rewrite_source(source, path, module, plan, scheme)
            except MixPertError as error:
                result = Rewritten(path, problem=str(error))
        yield result


def rewrite_source(
    source: bytes, path: str, module: str, plan: Plan | None = None, scheme: str | None = None
) -> Rewritten:
    """Rewrite a source text. Raises SourceError for syntax, an unknown comment or scheme."""
    with named(path, module):
        if path.endswith(sources.NOTEBOOK):
            from mixpert_py.sources import notebook_file  # not above: a script needs no part of it

            made = notebook_file.rewrite_notebook(source, module, plan, scheme)
            return Rewritten(path, made.sites, source, made.source)
        require_known_comments(source, module)
        sites = pipeline.analyze(source, module)
        return Rewritten(path, sites, source, pipeline.rewrite(source, module, plan, scheme))


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    paths: tuple[str, ...]
    output: str | None
    write: bool
    diff: bool
    check: bool
    exclude: tuple[str, ...]
    plan_path: str | None
    scheme: str | None

    @property
    def is_standard_input(self) -> bool:
        return self.paths == ("-",)

    @property
    def previews(self) -> bool:
        return self.diff or self.check

    @property
    def target(self) -> str | None:
        """The file for a single result; "-" for standard output."""
        return self.output or ("-" if self.is_standard_input and not self.previews else None)

    def require_one_way(self) -> None:
        """Raise UsageError if results would go to several places, or to an invalid one."""
        if self.write + self.previews + (self.output is not None) > 1:
            raise click.UsageError("give one of -o, -w, and --diff or --check")
        if self.is_standard_input and self.write:
            raise click.UsageError("standard input cannot be written back to; give -o or nothing")

    def files(self) -> list[str]:
        """The files that the paths name. Raises UsageError if they are too many for the output."""
        files = list(sources.files_of_projects(self.paths, self.exclude))
        if self.output is not None and len(files) != 1:
            raise click.UsageError(f"-o takes one file, and {len(files)} were given")
        if not (self.write or self.previews) and any(map(os.path.isdir, self.paths)):
            raise click.UsageError("a folder needs -w, --diff or --check")
        return files


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…|-", type=FILE)
@click.option(
    "-o", "--output", metavar="OUT", type=FILE, help="Write the result here (one PATH only)."
)
@click.option("-w", "--write", is_flag=True, help="Replace the files themselves.")
@click.option("--diff", is_flag=True, help="Show the changes; write nothing.")
@click.option("--check", is_flag=True, help="Exit with 1 if a file would change; write nothing.")
@exclude_option
@click.option(
    "--plan", "plan_path", metavar="PLAN", type=FILE, help="Write a plan's schemes into the calls."
)
@click.option("--scheme", metavar="NAME", help="Write this scheme into every call.")
@as_record(RewriteOptions)
def rewrite(options: RewriteOptions) -> int:
    """Replace matrix products by calls into MixPert-Py.

    Without -o or -w the result goes to script_mixpert.py beside the script. `-` reads a program
    from standard input and writes to standard output.
    """
    options.require_one_way()
    config.check_scheme(options.scheme)
    plan = config.load_plan(options.plan_path) if options.plan_path else None
    if options.is_standard_input:
        result = rewrite_source(sys.stdin.buffer.read(), "-", "stdin", plan, options.scheme)
        return _finish([result], options, has_summary=False)
    files = options.files()
    results = rewrite_files(files, plan, options.scheme)
    return _finish(results, options, has_summary=len(files) > 1)


def _finish(results: Iterable[Rewritten], options: RewriteOptions, *, has_summary: bool) -> int:
    """Show or write each file as it is finished, and return the exit code."""
    counts: Counter[str] = Counter()
    for result in results:
        try:
            if result.problem is not None:
                raise SourceError(result.problem)
            message = _deliver(result, options, has_summary)
        except SourceError as error:
            say(str(error))
            counts["skipped"] += 1
            continue
        sys.stdout.buffer.write(message)
        counts["changed" if result.changed else "same"] += 1
        counts["left"] += len(result.left)
        counts["products"] += (len(result.sites) - len(result.left)) * result.changed
    if has_summary:
        # A patch on standard output is to hold nothing else.
        click.echo(_summary(counts, options.previews), err=options.diff)
    return 2 if counts["skipped"] else int(options.check and counts["changed"] > 0)


def _summary(counts: Counter[str], previews: bool) -> str:
    """The last line: files and products that are rewritten, left and skipped."""
    same = counts["same"]
    text = f"{counted(counts['changed'], 'file')} {'would be ' if previews else ''}rewritten"
    text += f" ({counted(counts['products'], 'product')})" * (counts["changed"] > 0)
    text += f", {same} stay{'s as it is' if same == 1 else ' as they are'}"
    text += f", {counts['skipped']} skipped" * (counts["skipped"] > 0)
    return text + f"; {_left_alone(counts['left'])}" * (counts["left"] > 0)


def _left_alone(count: int) -> str:
    return f"{counted(count, 'product')} left alone, see `mixpert sites`"


def _deliver(result: Rewritten, options: RewriteOptions, has_summary: bool) -> bytes:
    """Show or write one file, and return the message about it. Raises SourceError."""
    left = f" ({_left_alone(len(result.left))})" if result.left else ""
    nothing = f"no matrix product to rewrite{left}"
    if options.target == "-":
        return result.after
    if not result.changed and options.target is None:
        return _encoded("" if options.previews or has_summary else f"{result.path}: {nothing}\n")
    if options.diff:  # a patch has to have the bytes of the file's name as they are
        return result.diff().encode("utf-8", "surrogateescape")
    if options.check:
        return _encoded(f"{result.path}: would be rewritten\n")
    with writing(options.target or result.path):
        target = _write(result, options)
    message = f"{counted(len(result.sites) - len(result.left), 'product')} rewritten{left}"
    if not result.changed:
        message = f"{nothing}; written as it is"
    return _encoded(f"{target}: {message}\n")


def _encoded(text: str) -> bytes:
    """A text as UTF-8; other bytes of a file's name are escaped."""
    return text.encode("utf-8", "backslashreplace")


def _write(result: Rewritten, options: RewriteOptions) -> Path:
    """Write a file with its source's permissions. Raises SourceError if another one is there."""
    source = Path(result.path)
    if options.write:
        sources.write_back(result.path, result.before, result.after)
        return source
    # `mlp_mixpert.py` beside `mlp.py`
    target = Path(options.target) if options.target else source.with_stem(f"{source.stem}_mixpert")
    if target.is_file() and not _is_earlier_result(sources.read(str(target)), result):
        raise SourceError(
            f"{target}: exists and differs from what `mixpert rewrite {source}` would write "
            "there; remove it"
        )
    with writing(target):
        mode = source.stat().st_mode & 0o7777 if source.exists() else None
        files.replace(target, result.after, mode)
    return target


def _is_earlier_result(text: bytes, result: Rewritten) -> bool:
    """Whether a text is this result, or the result of an earlier rewrite of its module."""
    if text == result.after:
        return True
    if not result.sites or MARK.encode() not in result.after:
        return False
    module = f'"{result.sites[0].id.partition(":")[0]}:'
    return MARK.encode() in text and module.encode() in text
