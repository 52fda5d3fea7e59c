"""The exceptions. A message names the place, what came, what was wanted and the way out."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LONGEST = 200  # characters of another's text in a message


class MixPertError(Exception):
    """Base of all errors that MixPert-Py raises; the command line prints it as one line."""

    exit_code = 2


class SourceError(MixPertError):
    """A source file cannot be read, parsed or rewritten."""


class RefusedProgramError(SourceError):
    """Python does not accept the program that is to be run, and would exit 1."""

    exit_code = 1


class PlanError(MixPertError):
    """A plan file, or a scheme name, is not valid."""


class ShapeError(MixPertError, ValueError):
    """Operands have shapes that a scheme cannot multiply."""


class DeviceError(MixPertError):
    """A backend or device was asked for that is not there."""


class ProgramError(MixPertError):
    """The user's program failed, hung, or left nothing to compare."""


class BudgetError(MixPertError):
    """A budget cannot be judged: the program's own spread is too large for it."""

    exit_code = 1


def one_line(text: object) -> str:
    """Return a text from a file or a library as one line that a terminal can show."""
    return visible(short(str(text)), kept="")


def visible(text: str, kept: str = "\n\t") -> str:
    """A text whose invisible characters, and those that change its direction, are escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def short(text: str) -> str:
    """The text, cut to LONGEST characters for a message."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def counted(count: int, word: str) -> str:
    """A number and a noun: `1 product`, `2,000 products`."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def unknown_scheme(name: str, known: Iterable[str]) -> str:
    """The message about an unknown scheme name: the most similar name, and all names."""
    from difflib import get_close_matches  # only where a name is wrong

    names = list(known)
    close = get_close_matches(short(name), names, n=1)
    likely = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown scheme {short(name)!r}; {likely}known: {', '.join(names)}"


@contextmanager
def named(path: str, module: str) -> Iterator[None]:
    """Prefix a SourceError with the name of its file: `mlp.py: line 3: …`."""
    try:
        yield
    except SourceError as error:
        raise SourceError(f"{path}: {str(error).removeprefix(f'{module}: ')}") from None


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn a failure to write a file into a SourceError of one line that names the file."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {(error.strerror or '').lower()}") from None
