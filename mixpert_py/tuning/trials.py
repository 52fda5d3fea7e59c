"""The runs of a tuning, stored as they are made, so that an interrupted tuning can be resumed.

A search that measures the same takes the same steps. So a resumed tuning requests the runs that
were made in the same order, and is given them from the file.

The file has one JSON object on each line: `Begun`, `Run` for each run, and `EndedTuning`, which
alone is left of a finished tuning. One write adds a line. A process that is killed leaves at most
one line without its end, which is dropped. A new tuning replaces the file with its first run, and
keeps the last `EndedTuning`, which tells about the plan that is there.
"""

import errno
import json
import os
import socket
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from math import nan
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from mixpert_py import files
from mixpert_py.errors import MixPertError, PlanError, ProgramError, one_line
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.worker import Result
from mixpert_py.tuner.records import PlanKey, plan_key

TRIAL = "trial"  # the purpose of a run that may fail
SUFFIX = ".trials.jsonl"
VERSION: Literal[1] = 1
Say = Callable[[str], None]  # called with a line for the user
MAX_BYTES = 1 << 26  # of the values of a run that are stored


class Begun(msgspec.Struct, frozen=True, tag="tuning"):
    """A tuning. subject: JSON, on which its runs depend: a tuning of another one takes none."""

    version: Literal[1]  # VERSION
    subject: str
    begun: str


class StoredArray(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: list[int]
    content: bytes


class Run(msgspec.Struct, frozen=True, tag="run"):
    purpose: str
    plan: dict[str, str]
    result: Result | None = None
    error: float = nan
    worst: str = ""
    errors: dict[str, float] = {}
    values: list[StoredArray] = []
    problem: str | None = None


class EndedTuning(msgspec.Struct, frozen=True, tag="record"):
    """The record of the plan that a tuning wrote. A finished tuning is not resumed."""

    finished: bool
    record: dict[str, Any]


StoredLine = Begun | Run | EndedTuning


def beside(plan: Path) -> Path | None:
    """`mlp.mixpert.trials.jsonl` beside the plan `mlp.mixpert.toml`; None beside a stream."""
    return None if files.is_stream(plan) else plan.with_name(f"{plan.stem}{SUFFIX}")


@contextmanager
def only_tuning(plan: Path) -> Iterator[None]:
    """Keep other processes of this machine from tuning a plan meanwhile.

    Raises PlanError if one does already. Only Linux has names of sockets that are no files and end
    with their process; elsewhere this does nothing.
    """
    if sys.platform != "linux" or files.is_stream(plan):
        yield
        return
    digest = sha256(os.fsencode(os.path.realpath(plan))).hexdigest()
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0mixpert-{digest}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                words = "another tuning of it is running; -o names another plan"
                raise PlanError(f"{plan}: {words}") from None
        yield


def latest(plan: Path) -> dict[str, Any] | None:
    """The record of a plan file's last tuning, or None. Raises MixPertError in one line."""
    path = beside(plan)
    if path is None or not path.is_file():
        return None
    try:
        ends = [entry for entry in _read(path) if isinstance(entry, EndedTuning)]
    except OSError as error:
        raise MixPertError(f"{path}: cannot read what was tuned: {one_line(error)}") from None
    return ends[-1].record if ends else None


class Trials:
    """The runs of one tuning.

    path: the file; None: nothing is stored. resume: whether to take over the runs of the last
    tuning, if that is unfinished and has the same subject. say: called with a message about the
    tuning that is resumed, and with one if no more runs can be stored, which does not end the
    tuning. has_runs: whether the file has runs that a resumed tuning would take over.
    """

    def __init__(
        self, path: Path | None = None, resume: bool = False, say: Say = lambda line: None
    ) -> None:
        self._path = self._place = path
        self._resume = resume
        self._say = say
        self._first: list[StoredLine] = []  # lines that are written with the first run
        self._made: dict[tuple[str, PlanKey], deque[Run]] = defaultdict(deque)
        self.has_runs = False

    def begin(self, subject: Mapping[str, Any]) -> None:
        """Begin or resume the tuning of a subject. Raises MixPertError for a file not ours."""
        begun = Begun(
            VERSION, json.dumps(subject, sort_keys=True), datetime.now(UTC).isoformat(" ")
        )
        entries: list[StoredLine] = []
        if self._path is not None and os.path.lexists(self._path):
            try:
                if not self._path.is_file():  # reading a pipe would block
                    raise OSError("it is no regular file")
                entries = _read(self._path)
                if self._resume:
                    self._take_over(self._path, begun.subject, entries)
            except OSError as error:
                self._give_up(error, "; the tuning begins anew" if self._resume else "")
                return
        # The file is made with the first run, so that a program that fails leaves none.
        self._first = [*[entry for entry in entries if isinstance(entry, EndedTuning)][-1:], begun]
        if self._resume and not self.has_runs:
            self._say("no unfinished tuning of this program with these options; it begins anew")

    def take(self, purpose: str, plan: Mapping[str, str]) -> ProgramRun | None:
        """A stored run for this purpose under this plan. Raises ProgramError if it failed."""
        made = self._made[purpose, plan_key(plan)]
        if not made:
            return None
        run = made.popleft()
        if run.problem is not None:
            raise ProgramError(run.problem)
        assert run.result is not None
        values = {
            array.name: np.frombuffer(array.content, array.dtype).reshape(array.shape).copy()
            for array in run.values
        }
        return ProgramRun(run.result, values, run.error, run.worst, run.errors)

    def store(self, purpose: str, plan: Mapping[str, str], run: ProgramRun) -> None:
        """Store a run on disk before this returns; one with too large values is made again."""
        if sum(array.nbytes for array in run.values.values()) <= MAX_BYTES:
            values = [
                StoredArray(name, array.dtype.str, list(array.shape), array.tobytes())
                for name, array in run.values.items()
            ]
            errors = dict(run.errors)
            self._add(Run(purpose, dict(plan), run.result, run.error, run.worst, errors, values))

    def store_failure(self, purpose: str, plan: Mapping[str, str], problem: str) -> None:
        """Store the failure of a trial, which is a result; other runs are made again."""
        if purpose == TRIAL:
            self._add(Run(purpose, dict(plan), problem=problem))

    def end(self, plan: Path, record: Mapping[str, Any], finished: bool) -> None:
        """Store the record of a written plan; the runs of a finished tuning are dropped."""
        path, ended = beside(plan), EndedTuning(finished, dict(record))
        if path is None or (path == self._place and not self.has_runs):
            return
        try:
            if path == self._place and not finished:
                _append(path, ended)
            else:
                _replace(path, [ended])
        except (OSError, MixPertError) as error:
            self._give_up(error)

    def _take_over(self, path: Path, subject: str, entries: list[StoredLine]) -> None:
        begun = next((entry for entry in entries if isinstance(entry, Begun)), None)
        is_finished = entries and isinstance(entries[-1], EndedTuning) and entries[-1].finished
        if begun is None or begun.subject != subject or is_finished:
            return
        _replace(path, entries)  # without a line that is torn
        self.has_runs = True
        runs = [entry for entry in entries if isinstance(entry, Run)]
        for run in runs:
            self._made[run.purpose, plan_key(run.plan)].append(run)
        self._say(f"the tuning of {begun.begun[:16]} UTC goes on; runs made: {len(runs)}")

    def _add(self, run: Run) -> None:
        """Write a run to the file; once that has failed, nothing more is written."""
        if self._path is None:
            return
        try:
            if self.has_runs:
                _append(self._path, run)
            else:
                _replace(self._path, [*self._first, run])
            self.has_runs = True
        except (OSError, MixPertError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception, more: str = "") -> None:
        self._say(f"{self._place}: runs are not kept from here on: {one_line(error)}{more}")
        self._path, self.has_runs = None, False
        self._made.clear()


def _replace(path: Path, entries: list[StoredLine]) -> None:
    # The values of a program's results are for nobody else.
    files.replace(path, b"".join(map(_line, entries)), 0o600)


def _append(path: Path, entry: StoredLine) -> None:
    with path.open("ab") as file:
        file.write(_line(entry))
        file.flush()
        os.fsync(file.fileno())


def _line(entry: StoredLine) -> bytes:
    # json and not msgspec: names need not be valid Unicode, and errors may be NaN.
    return json.dumps(msgspec.to_builtins(entry)).encode() + b"\n"


def _read(path: Path) -> list[StoredLine]:
    """The whole lines of a file. Raises MixPertError if it is not a file of trials."""
    text = path.read_bytes()
    lines = text.split(b"\n")[:-1]  # what follows the last end of a line is nothing, or torn
    entries: list[StoredLine] = []
    try:
        if text and not lines:
            raise ValueError("it has no whole line")
        for line in lines:
            entries.append(msgspec.convert(json.loads(line), StoredLine))
    except (ValueError, RecursionError) as error:
        raise MixPertError(
            f"{path}: not a file of trials (line {len(entries) + 1}: {one_line(error)}); move it "
            "out of the way"
        ) from None
    return entries
