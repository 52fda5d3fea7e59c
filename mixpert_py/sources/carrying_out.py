"""What becomes of a rewritten or restored file: shown, or written; nothing overwritten unasked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixpert_py import files
from mixpert_py.errors import SourceError
from mixpert_py.passes.imports import MARK
from mixpert_py.sources import source_files
from mixpert_py.sources.rewriting import Rewritten


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line asks for.

    command: its name. done: what a changed product is. nothing: what is said where there is none.
    shown: "diff" or "check", nothing is then written. output: where the result goes, changed or
    not, "-" for standard output; None: in place, or beside the script. several: more than one file,
    which are summed up. names_left: calls that stay are a failure, and named.
    """

    command: str
    done: str
    nothing: str
    shown: str | None
    output: str | None
    in_place: bool
    several: bool = False
    names_left: bool = False


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


@dataclass(slots=True)
class Tally:
    """How many files became what, and how many products are in those that change.

    left: calls that stay, in all files. alone: those in files that stay as they are.
    """

    changed: int = 0
    same: int = 0
    skipped: int = 0
    products: int = 0
    left: int = 0
    alone: int = 0

    def count(self, done: Done) -> None:
        """Add one file."""
        result = done.result
        self.left += len(result.left)
        if done.problem:
            self.skipped += 1
        elif result.changed:
            self.changed += 1
            self.products += len(result.sites) - len(result.left)
        else:
            self.same += 1
            self.alone += len(result.left)

    def line(self, task: Task) -> str:
        """The last line of a run: `2 files would be rewritten (5 products), 7 stay as they are`."""
        said = f"{_files(self.changed)} {'would be ' if task.shown else ''}{task.done}"
        said += f" ({_products(self.products)})" * (self.changed > 0)
        stay = f", {self.same} stay{'s as it is' if self.same == 1 else ' as they are'}"
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{said}{stay}{_alone(self.alone, task)}{skipped}"


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _products(count: int) -> str:
    return f"{count} product{'s' * (count != 1)}"


def _alone(count: int, task: Task) -> str:
    """What is said of products in files that stay as they are; of named ones, nothing more."""
    if not count or task.names_left:
        return ""
    return f" ({_products(count)} left alone; see `mixpert sites`)"


def carry_out(result: Rewritten, task: Task) -> Done:
    """Show or write one file. Where nothing changed, nothing is written but an output asked for."""
    if result.problem:
        return Done(result, problem=result.problem)
    if task.output == "-":
        return Done(result, result.after, "-")
    if not result.changed and task.output is None:
        said = "" if task.shown or task.several else f"{result.path}: {_nothing(result, task)}\n"
        return Done(result, said.encode())
    if task.shown:
        would = f"{result.path}: would be {task.done}\n"
        return Done(result, (result.diff() if task.shown == "diff" else would).encode())
    try:
        target = _place(result, task)
    except SourceError as error:
        return Done(result, problem=str(error))
    except OSError as error:
        return Done(result, problem=f"{task.output or result.path}: cannot write: {error.strerror}")
    said = f"{_products(len(result.sites) - len(result.left))} {task.done}"
    if not result.changed:
        said = f"{_nothing(result, task)}; written as it is"
    return Done(result, f"{target}: {said}\n".encode(), str(target))


def _nothing(result: Rewritten, task: Task) -> str:
    return f"{task.nothing}{_alone(len(result.left), task)}"


def _place(result: Rewritten, task: Task) -> Path:
    """Write a file; returns where.

    Raises SourceError where it cannot, or where it would overwrite a file that was there and that
    no earlier call wrote.
    """
    source = Path(result.path)
    if task.in_place:
        source_files.write_back(result.file, result.before, result.after)
        return source
    # `mlp_mixpert.py` beside `mlp.py`
    target = Path(task.output) if task.output else source.with_stem(f"{source.stem}_mixpert")
    if target.is_file() and not _is_earlier_result(source_files.read(str(target)), result):
        raise SourceError(
            f"{target}: exists and differs from what `mixpert {task.command} {source}` would write "
            "there; remove it"
        )
    return _write(target, result.after, source)


def _is_earlier_result(text: bytes, result: Rewritten) -> bool:
    """Whether a file is the result, or what an earlier rewrite of the same module made of it."""
    if text == result.after:
        return True
    if not result.sites or MARK.encode() not in result.after:
        return False
    module = f'"{result.sites[0].id.partition(":")[0]}:'
    return MARK.encode() in text and module.encode() in text


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
