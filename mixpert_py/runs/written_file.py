"""A file of numbers that a program is to write, and that its runs are compared by."""

from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py.errors import ProgramError
from mixpert_py.runs.csv_file import read_csv

Array = np.ndarray[Any, Any]

ENDINGS = (".npy", ".npz", ".csv")


class WrittenFile:
    """Made before the run. name: the file's, as the user gave it, seen from `directory`."""

    def __init__(self, name: str, directory: str) -> None:
        self.name = name
        self._path = Path(directory) / name
        self._before = self._changed()

    def arrays(self) -> dict[str, Array]:
        """What the run wrote, by name: the file's, or `FILE.npz:key` for each array of such a file.

        Raises ProgramError if the run wrote nothing there, or no numbers.
        """
        if self._changed() in (None, self._before):
            raise ProgramError(
                f"{self.name}: not written by the program; --compare names what it writes"
            )
        try:
            arrays = self._read()
        except ProgramError:
            raise
        except Exception as error:  # whatever comes of reading what is none
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
            # What a file holds decides how it is read, not its name.
            if isinstance(loaded, np.ndarray):
                return {self.name: loaded}
            return {f"{self.name}:{key}": loaded[key] for key in loaded.files}

    def _changed(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None
