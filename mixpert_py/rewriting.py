"""`mixpert rewrite` and `mixpert sites`: files in, files out, nothing overwritten unasked."""

import difflib
import fnmatch
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mixpert_py import config, files, launcher
from mixpert_py.errors import MixPertError, SourceError
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.imports import MARK
from mixpert_py.passes.pipeline import analyze, rewrite
from mixpert_py.plan import Plan

SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "venv", "site-packages"}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """One file before and after, or why there is no after."""

    path: str
    sites: tuple[CallSite, ...] = ()
    before: bytes = b""
    after: bytes = b""
    problem: str | None = None

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """The change as a unified diff; bytes that are no UTF-8 are shown escaped."""
        old, new = (
            text.decode("utf-8", "backslashreplace").splitlines(keepends=True)
            for text in (self.before, self.after)
        )
        lines = difflib.unified_diff(old, new, f"a/{self.path}", f"b/{self.path}")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def records(self) -> list[dict[str, Any]]:
        """The sites, ready for JSON."""
        return [
            {
                "id": site.id,
                "path": self.path,
                "line": site.line,
                "column": site.column,
                "kind": site.kind,
                "expression": site.expression,
                "rewritten": site.reason is None,
                "reason": site.reason,
            }
            for site in self.sites
        ]


def source_files(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    """The files that are meant: each path, and of a folder every .py file below it."""
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(
                name for name in folders if name not in SKIPPED_FOLDERS and name[0] != "."
            )
            for name in sorted(names):
                file = os.path.join(folder, name)
                if name.endswith(".py") and not _excluded(file, exclude):
                    yield file


def rewrite_files(
    paths: Sequence[str], plan: Plan | None = None, scheme: str | None = None, jobs: int = 1
) -> Iterator[Rewritten]:
    """Rewrite each file in memory, in order. A file that cannot be is told by its `problem`."""
    one = partial(rewrite_file, plan=plan, scheme=scheme)
    if jobs <= 1 or len(paths) <= 1:
        yield from map(one, paths)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, paths, chunksize=8)


def rewrite_file(path: str, plan: Plan | None = None, scheme: str | None = None) -> Rewritten:
    """Rewrite one file in memory."""
    try:
        source = launcher.read_source(Path(path))
        return rewrite_source(source, path, config.module_name(Path(path)), plan, scheme)
    except MixPertError as error:
        return Rewritten(path, problem=str(error))


def rewrite_source(
    source: bytes, path: str, module: str, plan: Plan | None = None, scheme: str | None = None
) -> Rewritten:
    """Rewrite a source text. Raises SourceError if it does not parse."""
    with launcher.named(path, module):
        sites = analyze(source, module)
        return Rewritten(path, sites, source, rewrite(source, module, plan, scheme))


@dataclass(frozen=True, slots=True)
class Done:
    """What was done with one file: where it went, what to say of it, or what went wrong."""

    result: Rewritten
    said: bytes = b""
    output: str | None = None
    problem: str | None = None

    def record(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return {
            "path": self.result.path,
            "output": self.output,
            "changed": self.result.changed,
            "problem": self.problem,
            "sites": self.result.records(),
            # Text that was to go to standard output, which the JSON takes.
            **({"text": self.said.decode("utf-8", "replace")} if self.output == "-" else {}),
        }


def carry_out(result: Rewritten, shown: str | None, output: str | None, *, in_place: bool) -> Done:
    """Show ("diff", "check") or write a rewritten file. Nothing is written where nothing changed.

    output: where it goes, "-" for standard output; None: in place, or beside the script.
    """
    if result.problem:
        return Done(result, problem=result.problem)
    if output == "-":
        return Done(result, result.after, "-")
    if not result.changed:
        said = "" if shown else f"{result.path}: no matrix product to rewrite\n"
        return Done(result, said.encode())
    if shown:
        would = f"{result.path}: would be rewritten\n"
        return Done(result, (result.diff() if shown == "diff" else would).encode())
    try:
        target = _place(result, output, in_place)
    except SourceError as error:
        return Done(result, problem=str(error))
    except OSError as error:
        return Done(result, problem=f"{output or result.path}: cannot write: {error.strerror}")
    count = sum(site.reason is None for site in result.sites)
    said = f"{target}: {count} product{'s' * (count != 1)} rewritten\n"
    return Done(result, said.encode(), str(target))


def _place(result: Rewritten, output: str | None, in_place: bool) -> Path:
    """Write a rewritten file; returns where.

    Raises SourceError where it cannot, or where it would overwrite a file that was there and that
    no earlier rewrite wrote.
    """
    source = Path(result.path)
    if in_place:
        return _write(source, result.after, source)
    # `mlp_mixpert.py` beside `mlp.py`
    target = Path(output) if output else source.with_stem(f"{source.stem}_mixpert")
    if target.is_file() and not _is_earlier_result(launcher.read_source(target), result):
        raise SourceError(
            f"{target}: exists and was not written by `mixpert rewrite {result.path}`; remove it"
        )
    return _write(target, result.after, source)


def _is_earlier_result(text: bytes, result: Rewritten) -> bool:
    """Whether a file is what an earlier rewrite of the same module made of it."""
    site = f'site="{result.sites[0].id.partition(":")[0]}:'
    return MARK.encode() in text and site.encode() in text


def _write(path: Path, text: bytes, mode_of: Path) -> Path:
    """Replace a file in one step, with the permissions of another.

    Raises SourceError if it cannot be written; what was there is then as it was.
    """
    try:
        mode = mode_of.stat().st_mode & 0o7777 if mode_of.exists() else None
        files.replace(path, text, mode)
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {(error.strerror or '').lower()}") from None
    return path


def _excluded(file: str, patterns: Sequence[str]) -> bool:
    posix = Path(file).as_posix()
    return any(
        fnmatch.fnmatch(posix, pattern) or fnmatch.fnmatch(Path(file).name, pattern)
        for pattern in patterns
    )
