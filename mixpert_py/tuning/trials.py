"""The runs of a tuning, stored as they are made, so that an interrupted tuning can be resumed.

A search that measures the same takes the same steps. So a resumed tuning requests the runs that
were made in the same order, and is given them from the file.
"""

import json
import os
import platform
import sqlite3
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import closing
from math import nan
from pathlib import Path
from typing import Any

import msgspec

from mixpert_py import files
from mixpert_py.errors import MixPertError, ProgramError, one_line
from mixpert_py.execution.executor import ProgramRun, Values
from mixpert_py.execution.worker import Result
from mixpert_py.machine import machine
from mixpert_py.tuning.trial_store import LONGEST_TEXT, MOST_BYTES, Row, Store

TRIAL = "trial"  # the purpose of a run that may fail
SUFFIX = ".trials.db"


def beside(plan: Path) -> Path | None:
    """The trials file of a plan: `mlp.mixpert.trials.db` beside `mlp.mixpert.toml`.

    None where the plan is written to a stream.
    """
    return None if files.is_stream(plan) else plan.with_name(f"{plan.stem}{SUFFIX}")


def latest(plan: Path) -> dict[str, Any] | None:
    """The record of the tuning that wrote a plan file last; None if there is none.

    Raises as `latest_in` does.
    """
    path = beside(plan)
    return None if path is None else latest_in(path)


def latest_in(path: Path) -> dict[str, Any] | None:
    """The record of the last tuning in a trials file; None if there is none.

    Raises MixPertError, in one line, if it is no trials file of this version, or cannot be read.
    """
    if not path.is_file():
        return None
    try:
        with closing(Store(path, read_only=True)) as store:
            record = store.latest()
        return None if record is None else json.loads(record)
    except (sqlite3.Error, ValueError, RecursionError) as error:
        raise MixPertError(f"{path}: cannot read what was tuned: {one_line(error)}") from None


class Trials:
    """The runs of one tuning. Several threads may take and store runs.

    path: the file; None: nothing is stored. resume: whether to take over the runs of the newest
    unfinished tuning of the same subject. say: called with a message about the tuning that is
    resumed, and with one if no more runs can be stored, which does not end the tuning.
    """

    def __init__(
        self,
        path: Path | None = None,
        resume: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._path = path
        self._resume = resume
        self._say = say
        self._subject = ""
        self._machine = ""
        self._tuning: int | None = None  # its number, once it has a run
        self._writing = threading.Lock()
        self._made: dict[tuple[str, str], deque[Row]] = defaultdict(deque)

    @property
    def has_runs(self) -> bool:
        """Whether runs are stored, and there are some that a resumed tuning would take over."""
        return self._tuning is not None

    def begin(self, subject: Mapping[str, Any]) -> None:
        """Begin or resume the tuning of a subject, which is everything that its runs depend on.

        Raises MixPertError if there is a file which is not ours to write.
        """
        self._subject = json.dumps(subject, sort_keys=True)
        self._machine = json.dumps({"host": platform.node(), **machine()})
        # The file is created with the first run, so that a program that fails leaves none.
        if self._path is not None and os.path.lexists(self._path):
            try:
                with closing(Store(self._path)) as store:
                    if self._resume:
                        self._take_over(store)
            except (sqlite3.Error, OSError) as error:
                self._give_up(error, "; the tuning begins anew" if self._resume else "")
                return
        if self._resume and self._tuning is None:
            self._say("no unfinished tuning of this program with these options; it begins anew")

    def take(self, purpose: str, plan: Mapping[str, str]) -> ProgramRun | None:
        """The next run for this purpose under this plan that was made before, if one was.

        Raises ProgramError if it failed.
        """
        made = self._made[purpose, _text_of(plan)]
        if not made:
            return None
        row = made.popleft()
        if row.problem is not None:
            raise ProgramError(row.problem)
        try:
            return self._run(row)
        except Exception:  # of any type if the file is damaged: the run is made again
            return None

    def store(self, purpose: str, plan: Mapping[str, str], run: ProgramRun) -> None:
        """Store a run on disk before this returns."""
        # The values of a larger run are not stored: it is made again.
        fits = sum(array.nbytes for array in run.values.values()) <= MOST_BYTES
        row = Row(
            purpose,
            _text_of(plan),
            run.seconds,
            msgspec.json.encode(run.result).decode(),
            run.error,
            _valid(run.worst),
            json.dumps(dict(run.errors)),
            again=not fits,
        )
        self._add(row, run.values if fits else {})

    def store_failure(self, purpose: str, plan: Mapping[str, str], problem: str) -> None:
        """Store the failure of a run, which is a result of a trial; other runs are made again."""
        if self._tuning is not None:
            row = Row(purpose, _text_of(plan), problem=_valid(problem), again=purpose != TRIAL)
            self._add(row, {})

    def end(self, record: Mapping[str, Any], finished: bool) -> None:
        """Store the record of the plan that was written. A finished tuning is not resumed."""
        if (tuning := self._tuning) is not None:
            text = json.dumps(record)
            if len(text) > LONGEST_TEXT:  # most of it is the list of trials
                text = json.dumps({**record, "trials": []})
            self._write(lambda store: store.end(tuning, text, finished))

    def _take_over(self, store: Store) -> None:
        if (found := store.unfinished(self._subject)) is not None:
            self._tuning, begun = found
            rows = store.rows(self._tuning)
            for row in rows:
                self._made[row.purpose, row.plan].append(row)
            self._say(f"the tuning of {begun[:16]} UTC goes on; runs made: {len(rows)}")

    def _run(self, row: Row) -> ProgramRun:
        assert self._path is not None
        assert row.result is not None
        values: Values = {}
        if row.digest is not None:
            with closing(Store(self._path)) as store:
                values = store.values(row.digest)
        error = nan if row.error is None else row.error
        result = msgspec.json.decode(row.result, type=Result)
        return ProgramRun(result, values, error, row.worst, json.loads(row.errors))

    def _add(self, row: Row, values: Values) -> None:
        def step(store: Store) -> None:
            if self._tuning is None:
                self._tuning = store.begin(self._subject)
            store.add(self._tuning, self._machine, row, values)

        self._write(step)

    def _write(self, step: Callable[[Store], None]) -> None:
        """Write to the file; once that has failed, nothing more is written."""
        with self._writing:
            if self._path is None:
                return
            try:
                with closing(Store(self._path)) as store:
                    step(store)
            except (sqlite3.Error, OSError, MixPertError) as error:
                self._give_up(error)

    def _give_up(self, error: Exception, more: str = "") -> None:
        self._say(f"{self._path}: runs are not kept from here on: {one_line(error)}{more}")
        self._path = self._tuning = None
        self._made.clear()


def _text_of(plan: Mapping[str, str]) -> str:
    return json.dumps(plan, sort_keys=True)


def _valid(text: str) -> str:
    """A text that SQLite can store: file names need not be valid Unicode."""
    return text.encode(errors="backslashreplace").decode()
