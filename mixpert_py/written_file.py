"""A .npy file that a program is to write, and that its runs are compared by."""

from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py.errors import ProgramError


class WrittenFile:
    """Made before the run. name: the file's, as the user gave it, seen from `directory`."""

    def __init__(self, name: str, directory: str) -> None:
        self.name = name
        self._path = Path(directory) / name
        self._before = self._changed()

    def array(self) -> np.ndarray[Any, Any]:
        """What the run wrote. Raises ProgramError if it wrote nothing there, or no numbers."""
        if self._changed() in (None, self._before):
            raise ProgramError(
                f"{self.name}: not written by the program; --compare names what it writes"
            )
        try:
            array = np.load(self._path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ProgramError(f"{self.name}: not a .npy file of numbers: {error}") from None
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
            raise ProgramError(f"{self.name}: not a .npy file of numbers")
        return array

    def _changed(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None
