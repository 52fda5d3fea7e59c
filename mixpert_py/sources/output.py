"""Shows or writes a rewritten file; nothing is overwritten unasked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixpert_py import files
from mixpert_py.errors import SourceError, writing
from mixpert_py.passes.imports import MARK
from mixpert_py.sources import source_files
from mixpert_py.sources.rewriting import Rewritten


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

    left: products that stay, in all files.
    """

    changed: int = 0
    same: int = 0
    skipped: int = 0
    products: int = 0
    left: int = 0

    def count(self, outcome: Outcome) -> None:
        """Add a file."""
        result = outcome.result
        self.left += len(result.left)
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
        left = "" if task.names_left or not self.left else f"; {_left_alone(self.left)}"
        return f"{text}{stay}{skipped}{left}"


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
    """Whether a file is this result, or an earlier rewrite of the same module."""
    if text == result.after:
        return True
    if not result.sites or MARK.encode() not in result.after:
        return False
    module = f'"{result.sites[0].id.partition(":")[0]}:'
    return MARK.encode() in text and module.encode() in text
