"""The folder that a program runs in: whether a run changed it, and copies that runs may change.

`__pycache__` and the folders of runs are left out: Python and we write them. Hidden folders and
virtual environments are assumed to be only read: copies have links to them.
"""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mixpert_py import files

MOST_BYTES = 1 << 28  # that are copied for a run
MOST_ENTRIES = 20_000  # files and folders that are looked at

State = dict[str, tuple[int, int]]


class WorkFolder:
    """The current folder, in which a program runs unless it writes there.

    The first run, which shows whether it does, works in a copy, too, where the folder is small
    enough. program: its name in messages.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._here = os.getcwd()
        self._wrote: bool | None = None  # before the first run
        self._problem = ""  # why there is no copy

    def learn(self, wrote: bool) -> None:
        """Give later runs copies if the first one wrote; warn where that is not possible."""
        self._wrote = wrote
        if wrote:
            self._require_small()
            if self._problem:
                self._warn()

    def for_run(self, folder: str) -> str:
        """The folder that a run works in: the current one, or a copy in the folder of that run."""
        if self._wrote is None:
            self._require_small()
        if self._wrote is False or self._problem:
            return self._here
        place = os.path.join(folder, "work")
        try:
            return copy_in_place(self._here, place)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            self._problem = error.strerror or str(error)
            if self._wrote:
                self._warn()
        return self._here

    def _require_small(self) -> None:
        if not self._problem and not is_small(self._here):
            self._problem = f"more than {MOST_BYTES >> 20} MiB or {MOST_ENTRIES} files"

    def _warn(self) -> None:
        warnings.warn(
            f"{self._program} writes where it runs, and each run does so in your own folder: it "
            f"is not copied: {self._problem}",
            stacklevel=2,
        )


def state(folder: str) -> State | None:
    """Path → time of change and size, of everything in a folder; None: more than MOST_ENTRIES."""
    found: State = {}
    for entry in _entries(folder):
        if len(found) == MOST_ENTRIES:
            return None
        with suppress(FileNotFoundError):  # gone since it was listed
            status = entry.stat(follow_symlinks=False)
            # A folder's own date also changes with entries that are left out here.
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.path] = (0, 0) if is_folder else (status.st_mtime_ns, status.st_size)
    return found


def changed(before: State | None, folder: str) -> list[str]:
    """The files of a folder, relative to it, that are new or changed since that state."""
    after = state(folder)
    if before is None or after is None:
        return []
    return [os.path.relpath(path, folder) for path, it in after.items() if before.get(path) != it]


def is_small(folder: str) -> bool:
    """Whether a folder may be copied for every run."""
    found = state(folder)
    return found is not None and sum(size for _, size in found.values()) <= MOST_BYTES


def copy_in_place(folder: str, target: str) -> str:
    """Copy a folder for one run; returns the copy's place below `target`.

    Beside it, and beside each folder above it, are links to what is beside the original, so that a
    program finds `../data`, too.
    """
    original, place = Path(folder), Path(target)
    above = list(reversed(original.parents))
    for parent, inner in zip(above, [*above[1:], original], strict=True):
        place.mkdir()
        with suppress(PermissionError):  # which a program may pass through, but not list
            for name in os.listdir(parent)[:MOST_ENTRIES]:
                if name != inner.name:
                    os.symlink(os.path.join(parent, name), os.path.join(place, name))
        place /= inner.name
    copy(folder, str(place))
    return str(place)


def copy(folder: str, target: str) -> None:
    """Copy a folder for one run. Links into it lead into the copy, others keep their targets.

    Sockets, pipes and unreadable files are left out. Raises OSError where there is no room.
    """
    os.mkdir(target)
    for entry in _entries(folder):
        place = os.path.join(target, os.path.relpath(entry.path, folder))
        if entry.is_symlink():
            os.symlink(_destination(entry.path, folder, target), place)
        elif _is_shared(entry):
            os.symlink(entry.path, place)
        elif entry.is_dir():
            os.mkdir(place)
        elif entry.is_file():
            with suppress(FileNotFoundError, PermissionError):
                shutil.copy2(entry.path, place)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """All entries of a folder and its subfolders, parents first; links are not followed."""
    with suppress(OSError), os.scandir(folder) as listing:
        for entry in listing:
            if entry.name == "__pycache__" or entry.name.startswith(files.RUN_PREFIX):
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False) and not _is_shared(entry):
                yield from _entries(entry.path)


def _is_shared(entry: os.DirEntry[str]) -> bool:
    hidden = entry.name.startswith(".")
    is_environment = os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
    return entry.is_dir(follow_symlinks=False) and (hidden or is_environment)


def _destination(link: str, folder: str, target: str) -> str:
    led_to = os.path.realpath(link)
    inside = os.path.relpath(led_to, os.path.realpath(folder))
    return led_to if inside.startswith("..") else os.path.join(target, inside)
