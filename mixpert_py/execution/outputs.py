"""The numbers that a program prints or writes to files, and that its runs can be compared by."""

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import zip_longest
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py.errors import ProgramError

Array = np.ndarray[Any, Any]

STDOUT = "stdout"  # the name of what is printed
MOST_BYTES = 1 << 22  # kept of what is printed; they are read as numbers in about a second
ARRAY_ENDINGS = (".npy", ".npz")
FILE_ENDINGS = (*ARRAY_ENDINGS, ".csv")
TEXT_ENDINGS = (
    ".csv",
    ".tsv",
    ".txt",
    ".dat",
    ".json",
)  # of files that are read without being named
MOST_FILES = 20  # that are read without being named
MOST_ARRAY_BYTES = 1 << 26  # of such a file with arrays
DELIMITERS = ",;\t"

# Not within a word (`float32`, `v1.2`, `0x7f`); a sign always begins a number, as in `1-2j`.
NUMBER = re.compile(
    r"(?:[-+]|(?<![\w.]))(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|(?:inf(?:inity)?|nan)\b)",
    re.IGNORECASE | re.ASCII,
)


class CapturedStdout(io.FileIO):
    """The standard output of this process; a copy of its beginning is kept."""

    def __init__(self) -> None:
        super().__init__(1, "w", closefd=False)
        self._copy = bytearray()

    def write(self, text: Any, /) -> int:
        count = super().write(text)
        room = MOST_BYTES + 1 - len(self._copy)  # one more shows that there was too much
        self._copy += memoryview(text).cast("B")[: min(count, room)]
        return count

    def save(self, folder: Path) -> None:
        """Write the copy to the folder, where `printed_text` finds it."""
        (folder / STDOUT).write_bytes(self._copy)


def capture_stdout() -> CapturedStdout:
    """Capture what Python prints from here on, but not child processes and libraries in C."""
    captured, before = CapturedStdout(), sys.stdout
    # As it was in all that a program can see, and without a buffer.
    stream: Any = io.TextIOWrapper(
        captured, before.encoding, before.errors, newline="\n", write_through=True
    )
    captured.name, stream.mode = before.name, before.mode
    sys.stdout = sys.__stdout__ = stream  # type: ignore[misc]
    return captured


def printed_text(folder: Path) -> str:
    """The text that a run printed. Raises ProgramError if it is more than is kept."""
    text = (folder / STDOUT).read_bytes()
    if len(text) > MOST_BYTES:
        raise ProgramError(
            f"{STDOUT}: more than {MOST_BYTES >> 20} MiB were printed; --compare a variable or a "
            "file instead"
        )
    return text.decode("utf-8", "replace")


def printed_numbers(text: str) -> Array:
    """The numbers in a text, (count,) float64, in order. Raises ProgramError if there is none."""
    found = _numbers(text)
    if not found.size:
        raise ProgramError(f"{STDOUT}: the program prints no number")
    return found


def largest_difference(text: str, other: str, most: float = 0.0) -> str:
    """The line whose numbers differ most, as both texts have it; "" if none does.

    most: the relative difference of two numbers that does not count.
    """
    worst, place = most, ""
    for at, (a, b) in enumerate(zip_longest(text.splitlines(), other.splitlines(), fillvalue="")):
        if a != b and (size := _distance(_numbers(a), _numbers(b))) > worst:
            worst, place = size, f"line {at + 1}: {a.strip()[:80]!r}, then {b.strip()[:80]!r}"
    return place


def _numbers(text: str) -> Array:
    return np.array([float(found[0]) for found in NUMBER.finditer(text)])


def _distance(x: Array, y: Array) -> float:
    if x.size != y.size:
        return inf
    with np.errstate(all="ignore"):
        ratios = np.abs(x - y) / np.maximum(np.abs(x), np.abs(y))
    return float(np.max(np.where(x == y, 0.0, np.nan_to_num(ratios, nan=2.0)), initial=0.0))


def is_output(name: str) -> bool:
    """Return whether a value of this name is of what a program prints or writes, unasked."""
    return name.startswith(("printed line ", "printed other lines", "file "))


def readable(names: Iterable[str]) -> list[str]:
    """The first files among these that are likely to hold numbers."""
    found = [name for name in names if name.endswith((*ARRAY_ENDINGS, *TEXT_ENDINGS))]
    return sorted(found)[:MOST_FILES]


def raw_output(printed: str, directory: str, names: Iterable[str]) -> dict[str, Array]:
    """What a run printed and wrote: STDOUT, or the name of a file → its bytes, (count,) uint8.

    names: of files in the directory; those that are too large or cannot be read are left out.
    """
    found = {STDOUT: printed.encode()} if printed else {}
    for name in names:
        path = Path(directory) / name
        most = MOST_ARRAY_BYTES if name.endswith(ARRAY_ENDINGS) else MOST_BYTES
        with suppress(OSError):
            if path.stat().st_size <= most:
                found[name] = path.read_bytes()
    return {name: np.frombuffer(content, np.uint8) for name, content in found.items()}


class WrittenFile:
    """A file that a program writes; this object is made before the run.

    name: the file's, as the user gave it, relative to `directory`.
    """

    def __init__(self, name: str, directory: str) -> None:
        self.name = name
        self._path = Path(directory) / name
        self._before = self._changed()

    @property
    def is_written(self) -> bool:
        """Whether the file was written since this object was made."""
        return self._changed() not in (None, self._before)

    def arrays(self) -> dict[str, Array]:
        """The arrays that the run wrote: the file's name, or `FILE.npz:key` → array.

        Raises ProgramError if the run wrote nothing there, or no numbers.
        """
        if not self.is_written:
            raise ProgramError(
                f"{self.name}: not written by the program; --compare names what it writes"
            )
        try:
            arrays = self._read()
        except ProgramError:
            raise
        except Exception as error:  # of any type, since the file may hold anything
            raise ProgramError(f"{self.name}: not {self._kind()} of numbers: {error}") from None
        if not arrays:
            raise ProgramError(f"{self.name}: no array in it")
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
                raise ProgramError(f"{name}: not {self._kind()} of numbers")
        return arrays

    def _kind(self) -> str:
        return f"a {self._path.suffix} file"

    def _read(self) -> dict[str, Array]:
        if self._path.suffix == ".csv":
            return {self.name: read_csv(self._path, self.name)}
        with self._path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            # The content decides how a file is read, not its name.
            if isinstance(loaded, np.ndarray):
                return {self.name: loaded}
            return {f"{self.name}:{key}": loaded[key] for key in loaded.files}

    def _changed(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None


def read_csv(path: Path, name: str) -> Array:
    """The numbers of a text file, (lines, columns) float64; an empty cell is NaN.

    Columns are divided by commas, semicolons, tabs or blanks. Lines that are empty or begin with
    `#` are left out, and so is a first line with anything else than numbers. Raises ProgramError,
    with the line, for such a line further down or one of another length, and if no number is left;
    OSError if the file cannot be read.
    """
    rows: list[list[float]] = []
    header = 0
    for line, cells in _lines(path):
        found = [_number(cell) for cell in cells]
        if None not in found:
            rows.append([number for number in found if number is not None])
            if len(rows[-1]) != len(rows[0]):
                raise ProgramError(
                    f"{name}:{line}: {len(found)} columns, and {len(rows[0])} above it"
                )
        elif rows or header:
            at = found.index(None)
            raise ProgramError(f"{name}:{line}: {cells[at][:40]!r} in column {at + 1} is no number")
        else:
            header = line
    if not rows:
        raise ProgramError(f"{name}: no line of numbers in it")
    return np.array(rows)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of every line that is neither empty nor a comment."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        texts = ((at, text.strip("\r\n")) for at, text in enumerate(file, start=1))
        delimiter = None
        for line, text in texts:
            if not text.strip() or text.lstrip().startswith("#"):
                continue
            if delimiter is None:
                delimiter = next((one for one in DELIMITERS if one in text), " ")
            if delimiter == " ":
                yield line, text.split()
            else:
                yield line, next(csv.reader([text], delimiter=delimiter))


def _number(cell: str) -> float | None:
    if not cell.strip():
        return nan
    try:
        return float(cell)
    except ValueError:
        return None
