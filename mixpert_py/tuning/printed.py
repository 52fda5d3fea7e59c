"""Comparison of runs by the numbers that a program prints and writes to files.

Only numbers that are the same in all native runs are compared: times, dates and random names are
left out. The lines of two texts are paired in order; they must have the same words and as many
numbers. The numbers at one place of all lines with the same words are one value, such as a column
of a table. A printed number that differs from the native one by at most one unit of its last digit
counts as equal, because rounding alone can cause that difference; whole numbers must be equal.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.execution.executor import Values
from mixpert_py.execution.outputs import ARRAY_ENDINGS, NUMBER, STDOUT
from mixpert_py.tuner.criterion import frobenius
from mixpert_py.tuning.options import Limits

Array = np.ndarray[Any, Any]
Place = tuple[int, tuple[str, ...]]  # the number of a line, and one number as each run has it

# The relative difference up to which a number is the same in two native runs. Dates of runs that
# begin within a second differ by more, as seconds since 1970.
SPREAD = 1e-11
MOST_PLACES = 16  # for numbers of a line; the numbers beyond them are one value
MOST_VALUES = 100  # of a text; the numbers of all other lines are one value
ROUNDING = 1.001  # units of the last digit: room for the rounding of a difference


@dataclass(frozen=True, slots=True)
class Steady:
    """The output that is the same in all native runs.

    names: of the values that are compared. sources: "stdout" and files with such values → their
    lines that are left out because their words differ. compared, left_out: phrases for people.
    rounding, rounding_share: the smallest rounding error of any compared number, and of any over
    the number's size.
    """

    names: frozenset[str]
    sources: Mapping[str, frozenset[int]]
    compared: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    rounding: float = inf
    rounding_share: float = inf

    @classmethod
    def of(cls, runs: Sequence[Values], sources: Iterable[str]) -> "Steady":
        """The steady output of native runs. sources: those of the first run."""
        parts = [_steady(source, [run.get(source) for run in runs]) for source in sources]
        return cls(
            frozenset().union(*(part.names for part in parts)),
            {
                source: lines
                for part in parts
                if part.names
                for source, lines in part.sources.items()
            },
            tuple(phrase for part in parts for phrase in part.compared),
            tuple(phrase for part in parts for phrase in part.left_out),
            min((part.rounding for part in parts), default=inf),
            min((part.rounding_share for part in parts), default=inf),
        )

    def shows(self, limits: Limits) -> bool:
        """Whether a number is printed with enough digits to show an error as large as its budget.

        Whole numbers, and settings such as 0.01, do not show whether products are accurate.
        """
        assert limits.common is not None
        is_absolute = limits.common.metric == "max"
        return (self.rounding if is_absolute else self.rounding_share) <= limits.common.budget

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


def _steady(source: str, runs: Sequence[Array | None]) -> Steady:
    """The steady part of what native runs wrote to one source; None: a run wrote nothing."""
    written = [run for run in runs if run is not None]
    if len(written) < len(runs):
        return Steady(frozenset(), {}, left_out=(f"{source} (not written by every native run)",))
    return (_steady_arrays if source.endswith(ARRAY_ENDINGS) else _steady_text)(source, written)


def _steady_arrays(source: str, runs: Sequence[Array]) -> Steady:
    first, *others = (_arrays(source, run) for run in runs)
    steady = {
        name: array
        for name, array in first.items()
        if all(name in other and _are_close(array, other[name]) for other in others)
    }
    rounding = 0.0 if any(array.dtype.kind in "fc" for array in steady.values()) else inf
    return Steady(
        frozenset(steady),
        {source: frozenset()},
        (f"file {source}: {_count(sum(map(np.size, steady.values())), 'number')}",)
        if steady
        else (),
        (f"arrays of {source}",) if len(steady) < len(first) else (),
        rounding,
        rounding,
    )


def _steady_text(source: str, runs: Sequence[Array]) -> Steady:
    texts = list(map(_text, runs))
    if len({len(text) for text in texts}) > 1:
        which = "stdout" if source == STDOUT else source
        return Steady(frozenset(), {}, left_out=(f"{which} (its number of lines differs)",))
    words = zip(*((words for words, _ in text) for text in texts), strict=True)
    skipped = frozenset(at for at, its in enumerate(words) if len(set(its)) > 1)
    found = _numbers(source, texts, skipped)
    steady = {name: its for name, its in found.items() if all(_agree(x) for _, x in its)}
    kept = [one for its in steady.values() for one in its]
    lines = {at for at, _ in kept}
    apart = skipped | {at for name in found.keys() - steady.keys() for at, _ in found[name]}
    units = [(_unit(x), abs(float(x))) for _, (x, *_) in kept]
    title = "printed numbers" if source == STDOUT else f"file {source}"
    compared = f"{title}: {len(kept):,} on {_count(len(lines), 'line')}"
    left_out = f"{_count(len(apart), 'line')} of {source}"
    return Steady(
        frozenset(steady),
        {source: skipped},
        (compared,) if kept else (),
        (left_out,) if apart else (),
        min((unit for unit, _ in units if unit), default=inf),
        min((unit / size for unit, size in units if unit and size), default=inf),
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
        loaded = np.load(io.BytesIO(content.tobytes()), allow_pickle=False)
        named = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except Exception:  # of any type, since the file may hold anything
        return {}
    return {
        f"file {source}{key and ':'}{key}": array
        for key, array in named.items()
        if isinstance(array, np.ndarray) and array.dtype.kind in "biufc"
    }


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
