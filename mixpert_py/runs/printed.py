"""What a program prints, and the numbers in it: `--compare stdout`."""

import io
import re
import sys
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py.errors import ProgramError

NAME = "stdout"
MOST_BYTES = 1 << 22  # that are kept of it; they are read as numbers in about a second

# Not within a word (`float32`, `v1.2`, `0x7f`); a sign always begins a number, as in `1-2j`.
NUMBER = re.compile(
    r"(?:[-+]|(?<![\w.]))(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|(?:inf(?:inity)?|nan)\b)",
    re.IGNORECASE | re.ASCII,
)


class Heard(io.FileIO):
    """Standard output of this process, of which the beginning is kept."""

    def __init__(self) -> None:
        super().__init__(1, "w", closefd=False)
        self._kept = bytearray()

    def write(self, text: Any, /) -> int:
        count = super().write(text)
        room = MOST_BYTES + 1 - len(self._kept)  # one more shows that there was too much
        self._kept += memoryview(text).cast("B")[: min(count, room)]
        return count

    def keep(self, folder: Path) -> None:
        """Leave it for `text_in`."""
        (folder / NAME).write_bytes(self._kept)


def listen() -> Heard:
    """Keep what Python prints from here on; child processes and libraries in C are not heard."""
    heard, before = Heard(), sys.stdout
    # As it was in all that a program can see, and without a buffer.
    stream: Any = io.TextIOWrapper(
        heard, before.encoding, before.errors, newline="\n", write_through=True
    )
    heard.name, stream.mode = before.name, before.mode
    sys.stdout = sys.__stdout__ = stream  # type: ignore[misc]
    return heard


def text_in(folder: Path) -> str:
    """What a run has printed. Raises ProgramError if that is more than is kept."""
    said = (folder / NAME).read_bytes()
    if len(said) > MOST_BYTES:
        raise ProgramError(
            f"{NAME}: more than {MOST_BYTES >> 20} MiB were printed; --compare a variable or a "
            "file instead"
        )
    return said.decode("utf-8", "replace")


def numbers(text: str) -> np.ndarray[Any, Any]:
    """The numbers in a text, (count,) float64, in order. Raises ProgramError if there is none."""
    found = _numbers(text)
    if not found.size:
        raise ProgramError(f"{NAME}: the program prints no number")
    return found


def difference(text: str, other: str) -> str:
    """The line whose numbers differ most, as both have it; "" if none does."""
    worst, said = 0.0, ""
    for at, (a, b) in enumerate(zip_longest(text.splitlines(), other.splitlines(), fillvalue="")):
        if a != b and (size := _distance(_numbers(a), _numbers(b))) > worst:
            worst, said = size, f"line {at + 1}: {a.strip()[:80]!r}, then {b.strip()[:80]!r}"
    return said


def _numbers(text: str) -> np.ndarray[Any, Any]:
    return np.array([float(found[0]) for found in NUMBER.finditer(text)])


def _distance(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    if x.size != y.size:
        return inf
    with np.errstate(all="ignore"):
        ratios = np.abs(x - y) / np.maximum(np.abs(x), np.abs(y))
    return float(np.max(np.where(x == y, 0.0, np.nan_to_num(ratios, nan=2.0)), initial=0.0))
