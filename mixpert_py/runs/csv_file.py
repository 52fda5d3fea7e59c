"""Tables of numbers as text: what `--compare FILE.csv` reads."""

import csv
from collections.abc import Iterator
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py.errors import ProgramError

DELIMITERS = ",;\t"


def read_csv(path: Path, name: str) -> np.ndarray[Any, Any]:
    """The numbers of a file, (lines, columns) float64; an empty cell is NaN.

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
    """Number and cells of every line that says something."""
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
