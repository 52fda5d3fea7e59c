"""The numbers that a program prints or writes to files, and that its runs can be compared by.

Values that a user names are read whole (`printed_numbers`, `WrittenFile`). If the user names none
and no variable is left, only numbers that are the same in all native runs are compared (`Steady`):
times, dates and random names are left out. The lines of two texts are paired in order; they must
have the same words and as many numbers. The numbers at one place of all lines with the same words
are one value, such as a column of a table. A printed number that differs from the native one by at
most one unit of its last digit counts as equal, because rounding alone can cause that difference;
whole numbers must be equal.
"""

import io
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from math import nan
from pathlib import Path
from typing import IO, Any

import numpy as np

from mixpert_py.errors import ProgramError, ShapeError, counted
from mixpert_py.tuner.criterion import frobenius

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]
Place = tuple[int, tuple[str, ...]]  # the number of a line, and one number as each run has it

STDOUT = "stdout"  # the name of what is printed
MOST_BYTES = 1 << 22  # kept of what is printed; they are read as numbers in about a second
ARRAY_ENDINGS = (".npy", ".npz")
FILE_ENDINGS = (*ARRAY_ENDINGS, ".csv")
TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".dat", ".json")  # of files read without being named
MOST_FILES = 20  # that are read without being named
MOST_ARRAY_BYTES = 1 << 26  # of such a file with arrays
DELIMITERS = ",;\t"
# The relative difference up to which a number is the same in two native runs. Dates of runs that
# begin within a second differ by more, as seconds since 1970.
SPREAD = 1e-11
MOST_PLACES = 16  # for numbers of a line; the numbers beyond them are one value
MOST_VALUES = 100  # of a text; the numbers of all other lines are one value
ROUNDING = 1.001  # units of the last digit: room for the rounding of a difference

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
    found = _array(NUMBER.findall(text))
    if not found.size:
        raise ProgramError(f"{STDOUT}: the program prints no number")
    return found


def first_difference(text: str, other: str) -> str:
    """The first line that two texts do not share, as both have it; "" if there is none."""
    pairs = zip_longest(text.splitlines(), other.splitlines(), fillvalue="")
    for at, (a, b) in enumerate(pairs, start=1):
        if a != b:
            return f"line {at}: {a.strip()[:80]!r}, then {b.strip()[:80]!r}"
    return ""


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
        kind = f"a {self._path.suffix} file"
        try:
            if self._path.suffix == ".csv":
                return {self.name: read_csv(self._path, self.name)}
            with self._path.open("rb") as file:
                arrays = _loaded(file, self.name)
        except ProgramError:
            raise
        except Exception as error:  # of any type, since the file may hold anything
            raise ProgramError(f"{self.name}: not {kind} of numbers: {error}") from None
        if not arrays:
            raise ProgramError(f"{self.name}: no array in it")
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
                raise ProgramError(f"{name}: not {kind} of numbers")
        return arrays

    def _changed(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None


def _loaded(file: IO[bytes], name: str) -> dict[str, Array]:
    """The arrays of an .npy or .npz file; the content decides how it is read, not the ending."""
    loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {name: loaded}
    return {f"{name}:{key}": loaded[key] for key in loaded.files}


def read_csv(path: Path, name: str) -> Array:
    """The numbers of a text file, (lines, columns) float64; an empty cell is NaN.

    Columns are divided by commas, semicolons, tabs or blanks. Lines that are empty or begin with
    `#` are left out, and so is a first line with anything else than numbers. Raises ProgramError
    for such a line further down or one of another length, and if no number is left; OSError if the
    file cannot be read.
    """
    text = path.read_bytes().decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    delimiter = next((one for one in DELIMITERS if lines and one in lines[0]), None)

    def read(rows: list[str]) -> Array:
        return np.loadtxt(
            rows,
            delimiter=delimiter,
            converters=lambda cell: float(cell) if cell.strip() else nan,
            comments=None,
            quotechar='"',
            encoding="utf-8",
            ndmin=2,
        )

    try:
        read(lines[:1] or ["0"])
    except ValueError:
        del lines[0]
    if not lines:
        raise ProgramError(f"{name}: no line of numbers in it")
    try:
        return read(lines)
    except ValueError as error:
        raise ProgramError(f"{name}: {error}") from None


@dataclass(frozen=True, slots=True)
class Steady:
    """The output that is the same in all native runs.

    names: of the values that are compared. sources: "stdout" and files with such values → their
    lines that are left out because their words differ. compared, left_out: phrases for people.
    digits: rounding error and size of each compared number but whole ones, which are exact.
    """

    names: frozenset[str] = frozenset()
    sources: Mapping[str, frozenset[int]] = field(default_factory=dict)
    compared: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    digits: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, runs: Sequence[Values], sources: Iterable[str]) -> "Steady":
        """The output that is the same in all native runs.

        sources: the names of the first run's outputs.
        """
        parts = []
        for source in sources:
            written = [run[source] for run in runs if source in run]
            if len(written) < len(runs):
                parts.append(cls(left_out=(f"{source} (not written by every native run)",)))
            elif source.endswith(ARRAY_ENDINGS):
                parts.append(_steady_arrays(source, written))
            else:
                parts.append(_steady_text(source, written))
        return cls(
            frozenset().union(*(part.names for part in parts)),
            {source: lines for part in parts for source, lines in part.sources.items()},
            tuple(phrase for part in parts for phrase in part.compared),
            tuple(phrase for part in parts for phrase in part.left_out),
            tuple(pair for part in parts for pair in part.digits),
        )

    def shows(self, budget: float, *, is_absolute: bool) -> bool:
        """Whether a number is printed with enough digits to show an error as large as its budget.

        Whole numbers, and settings such as 0.01, do not show whether products are accurate.
        """
        return any(
            unit <= (budget if is_absolute else budget * size)
            for unit, size in self.digits
            if is_absolute or size
        )

    def pair(self, reference: Values, values: Values) -> tuple[Values, Values]:
        """The values of two runs by name; values that are no output stay as they are.

        Raises ProgramError if a file is missing, ShapeError if lines cannot be paired.
        """
        before = {name: array for name, array in reference.items() if name not in self.sources}
        after = dict(values)
        for source, skipped in self.sources.items():
            if source not in values:
                raise ProgramError(f"{source}: written by the program natively, not in this run")
            runs = [reference[source], values[source]]
            if source.endswith(ARRAY_ENDINGS):
                x, y = (_arrays(source, content) for content in runs)
            else:
                numbers = _numbers(source, list(map(_text, runs)), skipped)
                x = {name: _array(a for _, (a, _) in its) for name, its in numbers.items()}
                y = {
                    name: _array(_rounded(*pair) for _, pair in its)
                    for name, its in numbers.items()
                }
            before |= {name: array for name, array in x.items() if name in self.names}
            after |= y
        return before, after


def _steady_arrays(source: str, runs: Sequence[Array]) -> Steady:
    first, *others = (_arrays(source, run) for run in runs)
    steady = {
        name: array
        for name, array in first.items()
        if all(name in other and _are_close(array, other[name]) for other in others)
    }
    numbers = counted(sum(map(np.size, steady.values())), "number")
    return Steady(
        frozenset(steady),
        {source: frozenset()} if steady else {},
        (f"file {source}: {numbers}",) if steady else (),
        (f"arrays of {source}",) if len(steady) < len(first) else (),
        tuple((0.0, 1.0) for array in steady.values() if array.dtype.kind in "fc"),
    )


def _steady_text(source: str, runs: Sequence[Array]) -> Steady:
    texts = list(map(_text, runs))
    if len({len(text) for text in texts}) > 1:
        return Steady(left_out=(f"{source} (its number of lines differs)",))
    words = zip(*((words for words, _ in text) for text in texts), strict=True)
    skipped = frozenset(at for at, its in enumerate(words) if len(set(its)) > 1)
    found = _numbers(source, texts, skipped)
    steady = {name: its for name, its in found.items() if all(_agree(x) for _, x in its)}
    kept = [one for its in steady.values() for one in its]
    lines = {at for at, _ in kept}
    apart = skipped | {at for name in found.keys() - steady.keys() for at, _ in found[name]}
    digits = ((_unit(x), abs(float(x))) for _, (x, *_) in kept)
    title = "printed numbers" if source == STDOUT else f"file {source}"
    compared = f"{title}: {len(kept):,} on {counted(len(lines), 'line')}"
    left_out = f"{counted(len(apart), 'line')} of {source}"
    return Steady(
        frozenset(steady),
        {source: skipped} if steady else {},
        (compared,) if kept else (),
        (left_out,) if apart else (),
        tuple((unit, size) for unit, size in digits if unit),
    )


def _text(content: Array) -> list[tuple[str, list[str]]]:
    """The words of each line, without blanks, and its numbers."""
    lines = content.tobytes().decode("utf-8", "replace").splitlines()
    return [("".join(NUMBER.sub("#", line).split()), NUMBER.findall(line)) for line in lines]


def _numbers(
    source: str, texts: Sequence[list[tuple[str, list[str]]]], skipped: frozenset[int]
) -> dict[str, list[Place]]:
    """Value → its numbers, in all texts. Raises ShapeError where the lines are not alike."""
    counts = [len(text) for text in texts]
    if len(set(counts)) > 1:
        raise ShapeError(f"{source}: {counts[1]} lines came, {counts[0]} are the reference's")
    title = "printed" if source == STDOUT else f"file {source},"
    first: dict[str, int] = {}  # words → the first line that has them
    found: dict[str, list[Place]] = defaultdict(list)
    for at, lines in enumerate(zip(*texts, strict=True)):
        words = lines[0][0]
        if at in skipped:
            continue
        for other, _ in lines[1:]:
            if other != words:
                raise ShapeError(
                    f"{source}, line {at + 1}: {other[:40]!r} came, {words[:40]!r} is the "
                    "reference's (# stands for a number)"
                )
        if words not in first and len(first) < MOST_VALUES:
            first[words] = at + 1
        place = f"line {first[words]}" if words in first else "other lines"
        for column, numbers in enumerate(zip(*(its for _, its in lines), strict=True), start=1):
            number = f", number {min(column, MOST_PLACES)}" if len(lines[0][1]) > 1 else ""
            found[f"{title} {place}{number}"].append((at, numbers))
    return found


def _agree(numbers: Sequence[str]) -> bool:
    """Whether a number is the same in all native runs."""
    first, *others = map(float, numbers)
    return all(
        text == numbers[0] or abs(first - other) <= SPREAD * abs(first)
        for text, other in zip(numbers[1:], others, strict=True)
    )


def _are_close(x: Array, y: Array) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return frobenius(x, y) <= SPREAD if x.dtype.kind in "fc" else np.array_equal(x, y)


def _rounded(reference: str, number: str) -> str:
    """The number, or the reference where rounding may be all that tells them apart."""
    unit = min(_unit(reference), _unit(number))
    is_near = abs(float(reference) - float(number)) <= ROUNDING * unit
    return reference if is_near else number


def _unit(number: str) -> float:
    """One unit of the last digit of a number; 0 for a whole number (`3`, `3.`), which is exact."""
    digits, _, exponent = number.lower().partition("e")
    decimals = digits.partition(".")[2]
    return float(f"1e{int(exponent or 0) - len(decimals)}") if decimals or exponent else 0.0


def _array(numbers: Iterable[str]) -> Array:
    return np.array([float(x) for x in numbers])


def _arrays(source: str, content: Array) -> dict[str, Array]:
    """The arrays of numbers in an .npy or .npz file; none if it cannot be read."""
    try:
        named = _loaded(io.BytesIO(content.tobytes()), f"file {source}")
    except Exception:  # of any type, since the file may hold anything
        return {}
    return {x: array for x, array in named.items() if array.dtype.kind in "biufc"}
