"""`mixpert rewrite` and `sites`: files before and after, which are shown or written."""

import difflib
import gc
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any

from mixpert_py import config, files
from mixpert_py.errors import MixPertError, SourceError, named, writing
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.pipeline import analyze, require_syntax, rewrite
from mixpert_py.passes.rewrite import MARK
from mixpert_py.plan import Plan
from mixpert_py.sources import source_files
from mixpert_py.sources.in_memory import OBJECTS, collecting_seldom, require_known_comments
from mixpert_py.sources.source_files import SourceFile

# Of processor time, for one file: a megabyte that a person wrote takes less than half of it.
MAX_SECONDS = 20.0
MOST_AT_ONCE = 8  # files that a process is handed together


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file before and after, or the problem why there is no result.

    sites: its products; those with a reason stay unchanged. cells: in a notebook, the number of
    each site's code cell, in which its line is counted.
    """

    file: SourceFile
    sites: tuple[CallSite, ...] = ()
    before: bytes = b""
    after: bytes = b""
    problem: str | None = None
    cells: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        return self.file.path

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
        """The sites, ready for JSON."""
        return [
            {
                "id": site.id,
                "path": f"{self.path}:cell_{cell}" if cell else self.path,
                "line": site.line,
                "column": site.column,
                "kind": site.kind,
                "expression": site.expression,
                "rewritten": site.reason is None,
                "reason": site.reason,
            }
            for site, cell in zip_longest(self.sites, self.cells)
        ]


def rewrite_files(
    files: Sequence[SourceFile],
    plan: Plan | None = None,
    scheme: str | None = None,
    jobs: int = 1,
) -> Iterator[Rewritten]:
    """Rewrite each file in memory, in order. A file that cannot be rewritten has a `problem`."""
    return _each(partial(_rewrite_file, plan=plan, scheme=scheme), files, jobs)


def rewrite_source(
    source: bytes,
    file: SourceFile,
    module: str,
    plan: Plan | None = None,
    scheme: str | None = None,
) -> Rewritten:
    """Rewrite a source text.

    Raises SourceError if it does not parse, or has an unknown comment or scheme.
    """
    with named(file.path, module):
        if file.path.endswith(source_files.NOTEBOOK):
            from mixpert_py.sources import notebook_file  # not above: a script needs no part of it

            made = notebook_file.rewrite_notebook(source, module, plan, scheme)
            return Rewritten(file, made.sites, source, made.source, cells=made.cells)
        require_known_comments(source, module)
        sites = analyze(source, module)
        if file.is_named and not sites:
            require_syntax(source, module)
        return Rewritten(file, sites, source, rewrite(source, module, plan, scheme))


def _each(
    one: Callable[[SourceFile], Rewritten], files: Sequence[SourceFile], jobs: int
) -> Iterator[Rewritten]:
    if jobs <= 1 or len(files) <= 1:
        for file in files:
            with collecting_seldom():
                result = one(file)
            yield result
        return
    # Few at once, so that all processes end at about the same time.
    size = max(1, min(MOST_AT_ONCE, len(files) // (8 * jobs)))
    with ProcessPoolExecutor(jobs, initializer=gc.set_threshold, initargs=(OBJECTS,)) as pool:
        try:
            yield from pool.map(one, files, chunksize=size)
        except BrokenProcessPool:
            raise SourceError(
                "a process of -j was killed, or ran out of memory; the files that follow are not "
                "done: give a smaller -j"
            ) from None


def _rewrite_file(file: SourceFile, plan: Plan | None, scheme: str | None) -> Rewritten:
    try:
        source = source_files.read(file.path)
        with time_limit(MAX_SECONDS, file.path):
            module = config.module_name(Path(file.path))
            return rewrite_source(source, file, module, plan, scheme)
    except MixPertError as error:
        return Rewritten(file, problem=str(error))


class _Expired(BaseException):
    """Derives from BaseException so that no `except Exception` on the way catches it."""


def _expire(number: int, frame: FrameType | None) -> None:
    raise _Expired


@contextmanager
def time_limit(seconds: float, path: str) -> Iterator[None]:
    """Raise SourceError, naming `path`, if the code in this context takes longer.

    This works in the main thread only, and only where Python has interval timers.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, _expire)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _Expired:
        raise SourceError(f"{path}: takes more than {seconds:g} s; the file is skipped") from None
    finally:
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True, slots=True)
class Task:
    """The way in which results of `mixpert rewrite` are shown or written.

    preview: "diff" or "check" shows results and writes nothing. output: the file for the result,
    changed or not, "-" for standard output; None: in place, or beside the script. has_summary:
    whether there are several files, which a last line sums up. names_left: whether each product
    that stays unchanged is named.
    """

    preview: str | None
    output: str | None
    in_place: bool
    has_summary: bool = False
    names_left: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for a file: where it was written, the message about it, or the problem."""

    result: Rewritten
    message: bytes = b""
    output: str | None = None
    problem: str | None = None

    def record(self) -> dict[str, Any]:
        """The outcome as plain data for JSON."""
        return {
            "path": self.result.path,
            "output": self.output,
            "changed": self.result.changed,
            "problem": self.problem,
            "sites": self.result.records(),
            # Text that was to go to standard output, which the JSON takes.
            **({"text": self.message.decode("utf-8", "replace")} if self.output == "-" else {}),
        }


@dataclass(slots=True)
class Tally:
    """The number of files by outcome, and of products in changed files.

    left_alone: products that are not rewritten, in all files.
    """

    changed: int = 0
    same: int = 0
    skipped: int = 0
    products: int = 0
    left_alone: int = 0

    def count(self, outcome: Outcome) -> None:
        """Add a file."""
        result = outcome.result
        self.left_alone += len(result.left)
        if outcome.problem:
            self.skipped += 1
        elif result.changed:
            self.changed += 1
            self.products += len(result.sites) - len(result.left)
        else:
            self.same += 1

    def line(self, task: Task) -> str:
        """The last line of a run, such as `2 files would be rewritten (5 products), 7 stay as they
        are; 3 products left alone, see `mixpert sites``.
        """
        text = f"{_files(self.changed)} {'would be ' if task.preview else ''}rewritten"
        text += f" ({_products(self.products)})" * (self.changed > 0)
        stay = f", {self.same} stay{'s as it is' if self.same == 1 else ' as they are'}"
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        is_said = bool(self.left_alone) and not task.names_left
        return f"{text}{stay}{skipped}" + f"; {_left_alone(self.left_alone)}" * is_said


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _products(count: int) -> str:
    return f"{count} product{'s' * (count != 1)}"


def _left_alone(count: int) -> str:
    return f"{_products(count)} left alone, see `mixpert sites`"


def deliver(result: Rewritten, task: Task) -> Outcome:
    """Show or write one file. A file that did not change is written to an explicit output only."""
    if result.problem:
        return Outcome(result, problem=result.problem)
    if task.output == "-":
        return Outcome(result, result.after, "-")
    left = f" ({_left_alone(len(result.left))})" if result.left and not task.names_left else ""
    nothing = f"no matrix product to rewrite{left}"
    if not result.changed and task.output is None:
        message = "" if task.preview or task.has_summary else f"{result.path}: {nothing}\n"
        return Outcome(result, _encoded(message))
    if task.preview:
        if task.preview == "diff":  # a patch has to have the bytes of the file's name as they are
            return Outcome(result, result.diff().encode("utf-8", "surrogateescape"))
        return Outcome(result, _encoded(f"{result.path}: would be rewritten\n"))
    try:
        with writing(task.output or result.path):
            target = _write(result, task)
    except SourceError as error:
        return Outcome(result, problem=str(error))
    message = f"{_products(len(result.sites) - len(result.left))} rewritten{left}"
    if not result.changed:
        message = f"{nothing}; written as it is"
    return Outcome(result, _encoded(f"{target}: {message}\n"), str(target))


def _encoded(text: str) -> bytes:
    """A text as UTF-8; other bytes of a file's name are escaped."""
    return text.encode("utf-8", "backslashreplace")


def _write(result: Rewritten, task: Task) -> Path:
    """Write a file with the permissions of its source, and return its path.

    Raises SourceError if that fails, or if it would overwrite an existing file that no earlier call
    wrote.
    """
    source = Path(result.path)
    if task.in_place:
        source_files.write_back(result.file, result.before, result.after)
        return source
    # `mlp_mixpert.py` beside `mlp.py`
    target = Path(task.output) if task.output else source.with_stem(f"{source.stem}_mixpert")
    if target.is_file() and not _is_earlier_result(source_files.read(str(target)), result):
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
