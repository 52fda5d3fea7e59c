"""Values by which a program is judged beside its variables: it observes, prints or writes them."""

import io
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import IO, Any

import numpy as np

from mixpert_py.errors import ProgramError

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]

STDOUT = "stdout"  # the name of what is printed
MOST_BYTES = 1 << 22  # kept of what is printed; they are read as numbers in about a second
ARRAY_ENDINGS = (".npy", ".npz")
FILE_ENDINGS = (*ARRAY_ENDINGS, ".csv")
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


def numbers_in(text: str, name: str = STDOUT) -> Array:
    """The numbers in a text, (count,) float64, in order. Raises ProgramError if there is none."""
    found = np.array([float(number) for number in NUMBER.findall(text)])
    if not found.size:
        raise ProgramError(f"{name}: no number in it")
    return found


class WrittenFile:
    """A file that a program writes, relative to `directory`; made before the run."""

    def __init__(self, name: str, directory: str) -> None:
        self.name = name
        self._path = Path(directory) / name
        self._before = self._changed()

    def arrays(self) -> dict[str, Array]:
        """The arrays that the run wrote: the file's name, or `FILE.npz:key` → array.

        Raises ProgramError if the run wrote nothing there, or no numbers.
        """
        if self._changed() in (None, self._before):
            raise ProgramError(
                f"{self.name}: not written by the program; --compare names what it writes"
            )
        kind = f"a {self._path.suffix} file"
        try:
            if self._path.suffix == ".csv":
                text = self._path.read_text("utf-8", "replace")
                return {self.name: numbers_in(text, self.name)}
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


_observed: dict[str, object] = {}  # name → value, of this process


def observe(name: str, value: object) -> None:
    """Mark a value that the program is judged by: an array, or anything numpy.asarray takes.

    A later value of the same name replaces the earlier one. The value is copied, so that what the
    program does to it afterwards does not count.
    """
    try:
        _observed[name] = deepcopy(value)
    except Exception:  # whatever the value's class raises: observing must not end the program
        _observed[name] = value


@contextmanager
def observing_anew() -> Iterator[None]:
    """A block in which nothing is observed yet; then all is as before."""
    earlier = dict(_observed)
    _observed.clear()
    try:
        yield
    finally:
        _observed.clear()
        _observed.update(earlier)


def observed() -> dict[str, object]:
    return dict(_observed)
