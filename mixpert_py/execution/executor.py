"""Runs the jobs of one program, each in a new process, and tells whether these use a GPU.

A run is a folder with the job (`RunFolder`), a process that executes it (`execute`), and what it
left (`ProgramRun`). A program runs in the current folder, or in copies of it that it may change
(`WorkFolder`). `__pycache__` and the folders of runs are left out there: Python and we write them.
Hidden folders and virtual environments are assumed to be only read: copies have links to them.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mixpert_py import config, execution, files
from mixpert_py.errors import ProgramError
from mixpert_py.execution.outputs import Values
from mixpert_py.execution.worker import Result, SiteResult, WorkerJob
from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import PRECISION
from mixpert_py.runtime.backends import emulates, is_on_gpu
from mixpert_py.runtime.gpu import device
from mixpert_py.tuner.records import Measurement

MOST_BYTES = 1 << 28  # that are copied for a run
MOST_ENTRIES = 20_000  # files and folders that are looked at

FolderState = dict[str, tuple[int, int]]
SCHEME = "int8x6"  # represents the schemes that products on a GPU are tuned towards
STILL_RUNNING = "still running after"  # in the problem of a run that took longer than it may


def is_timeout(problem: str) -> bool:
    """Return whether a run failed because it exceeded its limit. problem: the run's message."""
    return STILL_RUNNING in problem.partition("; its last lines")[0]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One successful run.

    values: compared with those of other runs; none once the run was judged. Then `errors` are
    those of its values against the reference, and `error` is the number that a search goes by,
    found in the value `worst`.
    """

    result: Result
    values: Values = field(default_factory=dict)
    error: float = nan
    worst: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the whole program, imports included."""
        return self.result.seconds

    @property
    def site_seconds(self) -> dict[str, float]:
        return {site: trace.seconds for site, trace in self.result.sites.items()}

    @property
    def measurement(self) -> Measurement:
        """A judged run as the tuner's record, whatever schemes its products took."""
        return Measurement(self.seconds, self.error, self.site_seconds, errors=self.errors)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, empty before it: holds the job, and receives its result."""

    path: Path

    def write(self, code: bytes, job: WorkerJob) -> Path:
        """Write the job and the program's marshalled code; returns the job's file."""
        (self.path / "code.marshal").write_bytes(code)
        file = self.path / "job.json"
        # json and not msgspec: file names and arguments need not be valid Unicode.
        file.write_text(json.dumps(msgspec.to_builtins(job)))
        return file

    def result(self, program: str, ended: execution.EndedProcess, limit: float) -> Result:
        """The worker's result. Raises ProgramError if the program did not come to its end."""
        file = self.path / "result.json"
        if ended.code == 0 and file.exists():
            result = msgspec.json.decode(file.read_bytes(), type=Result)
            if result.missing:
                names = ", ".join(result.missing)
                raise ProgramError(f"{program}: has no numeric value for {names}")
            return result
        if ended.code is None:
            end = f"{STILL_RUNNING} {limit:g} s, and was stopped"
        elif ended.code < 0:
            end = f"killed by signal {-ended.code}"
        elif ended.code > 0:
            end = f"ended with exit code {ended.code}"
        else:
            end = "left before its end (os._exit?)"
        output = ended.last_lines()
        raise ProgramError(f"{program}: {end}" + (f"; its last lines:\n{output}" if output else ""))

    def values(self, result: Result) -> dict[str, np.ndarray[Any, Any]]:
        """The variables, observed values and results of sinks that the run ended with."""
        files = {name: self.path / file for name, file in result.values.items()}
        return {name: np.load(file, allow_pickle=False) for name, file in files.items()}


def execute(job_file: Path, limit: float | None) -> execution.EndedProcess:
    command = execution.python(execution.WORKER, str(job_file))
    return execution.run(command, config.child_environment(), limit)


def usable_gpu(backend: str | None) -> device.Device | None:
    """The GPU that runs with this backend may use."""
    if emulates(backend) or not device.may_be_here():
        return None
    here = device.find()
    return None if isinstance(here, device.Absent) else here


def would_run(result: Result, gpu: device.Device, backend: str | None) -> bool:
    """Whether products of a native run would run on the GPU: its arrays are there, or are moved."""
    if is_on_gpu(backend) or result.on_gpu:
        return True
    figures = worth.figures(gpu.name)
    for site in result.sites.values():
        for m, k, n, dtype in products_of(site):
            # These operands take no memory; only their sizes matter.
            a, b = (np.broadcast_to(np.zeros((), dtype), shape) for shape in ((m, k), (k, n)))
            if worth.moving_saves(a, b, (m, k, n), SCHEME, figures):
                return True
    return False


def products_of(site: SiteResult) -> list[tuple[int, int, int, str]]:
    """(m, k, n, dtype) of a site's calls that are no empty products, the most frequent first."""
    dtypes = [dtype for dtype in site.dtypes if dtype in PRECISION]
    return [(m, k, n, dtype) for m, k, n, _ in site.shapes for dtype in dtypes if m * k * n]


class WorkFolder:
    """The current folder, in which a program runs unless it writes there.

    The first run, which shows whether it does, works in a copy, too, where the folder is small
    enough. program: its name in messages. wrote: whether the first run wrote; None before it.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._here = os.getcwd()
        self._problem: str | None = None  # why there is no copy; "" where there is one
        self.wrote: bool | None = None

    def for_run(self, folder: str) -> str:
        """The folder that a run works in. Warns where a program that writes has no copy."""
        if self.wrote is False:
            return self._here
        if self._problem is None:
            limit = f"more than {MOST_BYTES >> 20} MiB or {MOST_ENTRIES} files"
            self._problem = "" if is_small(self._here) else limit
        if not self._problem:
            place = os.path.join(folder, "work")
            try:
                return copy_in_place(self._here, place)
            except OSError as error:
                shutil.rmtree(place, ignore_errors=True)
                self._problem = error.strerror or str(error)
        if self.wrote:
            warnings.warn(
                f"{self._program} writes where it runs, and each run does so in your own folder: "
                f"it is not copied: {self._problem}",
                stacklevel=2,
            )
        return self._here


def folder_state(folder: str) -> FolderState | None:
    """Path → time of change and size, of everything in a folder; None: more than MOST_ENTRIES."""
    found: FolderState = {}
    for entry in _entries(folder):
        if len(found) == MOST_ENTRIES:
            return None
        with suppress(FileNotFoundError):  # gone since it was listed
            status = entry.stat(follow_symlinks=False)
            # A folder's own date also changes with entries that are left out here.
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.path] = (0, 0) if is_folder else (status.st_mtime_ns, status.st_size)
    return found


def is_small(folder: str) -> bool:
    found = folder_state(folder)
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
    copy_folder(folder, str(place))
    return str(place)


def copy_folder(folder: str, target: str) -> None:
    """Copy a folder for one run. Links into it lead into the copy, others keep their targets.

    Sockets, pipes and unreadable files are left out. Raises OSError where there is no room.
    """
    os.mkdir(target)
    for entry in _entries(folder):
        place = os.path.join(target, os.path.relpath(entry.path, folder))
        if entry.is_symlink():
            leads_to = os.path.realpath(entry.path)
            inside = os.path.relpath(leads_to, os.path.realpath(folder))
            is_outside = inside.startswith("..")
            os.symlink(leads_to if is_outside else os.path.join(target, inside), place)
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
