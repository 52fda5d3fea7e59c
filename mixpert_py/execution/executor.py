"""Runs the jobs of one program in forked or new processes.

A run is a folder with the job (`RunFolder`), a process that executes it (`Executor`), and what it
left (`ProgramRun`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from queue import PriorityQueue
from typing import Any, Protocol

import msgspec
import numpy as np

from mixpert_py import config
from mixpert_py.errors import ProgramError
from mixpert_py.execution import fork_server, process
from mixpert_py.execution.fork_server import ForkServer
from mixpert_py.execution.worker import Job, Result
from mixpert_py.interrupts import deferred_signals
from mixpert_py.tuner.records import Measurement

Values = Mapping[str, np.ndarray[Any, Any]]

STILL_RUNNING = "still running after"  # in the problem of a run that took longer than it may


def is_timeout(problem: str) -> bool:
    """Return whether a run failed because it took longer than its limit.

    problem: the message of the failed run, as it was made or stored.
    """
    return STILL_RUNNING in problem.partition("; its last lines")[0]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One successful run.

    values: compared with those of other runs; none once the run was judged. Then `errors` are
    those of its values against the reference, and `error` is the number that a search goes by,
    found in the value `worst`. printed: what it wrote to stdout, where that was read and the run
    was made by this process.
    """

    result: Result
    values: Values = field(default_factory=dict)
    error: float = nan
    worst: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    printed: str = ""

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the whole program, imports included."""
        return self.result.seconds

    @property
    def site_seconds(self) -> dict[str, float]:
        """Call site → seconds spent in its products."""
        return {site: trace.seconds for site, trace in self.result.sites.items()}

    @property
    def measurement(self) -> Measurement:
        """A judged run as the tuner's record, whatever schemes its products took."""
        outliers = {site: trace.outliers for site, trace in self.result.sites.items()}
        return Measurement(
            self.seconds, self.error, self.site_seconds, outliers=outliers, errors=self.errors
        )


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, empty before it: holds the job, and receives its result."""

    path: Path

    def write(self, code: bytes, job: Job) -> Path:
        """Write the job and the program's marshalled code; returns the job's file."""
        (self.path / "code.marshal").write_bytes(code)
        file = self.path / "job.json"
        # json and not msgspec: file names and arguments need not be valid Unicode.
        file.write_text(json.dumps(msgspec.to_builtins(job)))
        return file

    def result(self, program: str, ended: process.Ended, limit: float) -> Result:
        """The worker's result. Raises ProgramError if the program did not come to its end.

        program: its name in that message. limit: the seconds that it had.
        """
        output = ended.last_lines()
        if ended.code is None:
            how = f"{STILL_RUNNING} {limit:g} s, and was stopped"
        elif ended.code < 0:
            how = f"killed by signal {-ended.code}"
        elif ended.code > 0:
            how = f"ended with exit code {ended.code}"
        elif not (self.path / "result.json").exists():
            how = "left before its end (os._exit?)"
        else:
            result = msgspec.json.decode((self.path / "result.json").read_bytes(), type=Result)
            if not result.missing:
                return result
            how = f"has no numeric value for {', '.join(result.missing)}"
            output = ""
        raise ProgramError(f"{program}: {how}" + (f"; its last lines:\n{output}" if output else ""))

    def values(self, result: Result) -> dict[str, np.ndarray[Any, Any]]:
        """The variables, observed values and results of sinks that the run ended with."""
        return {
            name: np.load(self.path / file, allow_pickle=False)
            for name, file in result.values.items()
        }


class JobRunner(Protocol):
    """Runs jobs, for instance in processes whose imports are made."""

    def run(self, job_file: str, limit: float | None) -> process.Ended | None:
        """Run a job; returns its end, or None where its process was lost, and the job with it."""


class _Slot:
    """Runs one job at a time; its fork server ends with this object."""

    def __init__(self, environment: Mapping[str, str], with_stdin: bool) -> None:
        self._environment = environment
        self._with_stdin = with_stdin
        self._server: ForkServer | None = None

    def server(self, modules: Sequence[str]) -> ForkServer:
        if self._server is None:
            self._server = ForkServer(modules, self._environment)
        return self._server

    def run_new(self, job_file: str, limit: float | None) -> process.Ended:
        command = process.python("mixpert_py.execution.worker", job_file)
        return process.run(command, self._environment, limit, with_stdin=self._with_stdin)


class Executor:
    """Runs jobs, `count` at a time, each requested in a thread of its own.

    threads: of BLAS in each, where the environment sets no number; None: as many as there are
    cores. gpus: one for each job at a time, by the names in CUDA_VISIBLE_DEVICES; none: every job
    sees all. cluster: takes the jobs that may be forks instead, from as many threads as call.
    with_stdin: whether new processes read what is piped into this one.

    forks: whether such jobs are forks; else each gets a new process, as it must where it begins
    CUDA. modules: imported by the process that is forked. Both are read when the first such job
    comes.
    """

    def __init__(
        self,
        count: int = 1,
        threads: int | None = None,
        gpus: Sequence[str] = (),
        cluster: JobRunner | None = None,
        *,
        with_stdin: bool = False,
    ) -> None:
        self._cluster = cluster
        self.forks = fork_server.AVAILABLE
        self.modules: tuple[str, ...] = ()
        # By number, so that jobs that run alone all get the first slot.
        self._free: PriorityQueue[tuple[int, _Slot]] = PriorityQueue()
        for number in range(count):
            gpu = gpus[number] if gpus else None
            self._free.put((number, _Slot(config.child_environment(threads, gpu), with_stdin)))

    def run(self, job_file: str, limit: float | None, *, may_fork: bool) -> process.Ended:
        """Run a job, in a new process unless it may be a fork."""
        if may_fork and self._cluster is not None and (ended := self._cluster.run(job_file, limit)):
            return ended
        with deferred_signals() as interrupt, interrupt.let_through():
            number, slot = self._free.get()
        try:
            if may_fork and self.forks:
                ended = slot.server(self.modules).run(job_file, limit)
                if ended is not None:
                    return ended
                self.forks = False
            return slot.run_new(job_file, limit)
        finally:
            self._free.put((number, slot))
