"""Who runs the jobs of one program: processes that are forked, kept and used again, or new."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from queue import PriorityQueue
from typing import Protocol

from mixpert_py import config
from mixpert_py.interrupts import held
from mixpert_py.runs import fork_server, process
from mixpert_py.runs.fork_server import ForkServer
from mixpert_py.runs.reused_process import ReusedProcess


class Way(Enum):
    """How a job gets a process whose imports are made: FORKED from one, or REUSED after others.

    What has begun CUDA cannot be forked, and what has not begins it anew, and loads every kernel.
    """

    FORKED = "forked"
    REUSED = "reused"


class Warm(Protocol):
    """Runs jobs one at a time in processes whose imports are made."""

    def run(self, job_file: str, limit: float | None) -> process.Ended | None:
        """How it ended. None: the process was lost on the way, and the job with it."""


Start = Callable[[Sequence[str], Mapping[str, str]], Warm]
STARTS: dict[Way, Start] = {Way.FORKED: ForkServer, Way.REUSED: ReusedProcess}


class _Place:
    """Where one job runs at a time; what is warm there ends with this object."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._warm: Warm | None = None

    def run_warm(
        self, start: Start, modules: Sequence[str], job_file: str, limit: float | None
    ) -> process.Ended | None:
        if self._warm is None:
            self._warm = start(modules, self._environment)
        return self._warm.run(job_file, limit)

    def run_new(self, job_file: str, limit: float | None) -> process.Ended:
        return process.run(
            process.python("mixpert_py.runs.worker", job_file), self._environment, limit
        )


class Workers:
    """Runs jobs, `count` at a time, each asked for in a thread of its own.

    threads: of BLAS in each; None: as many as there are cores. gpus: one each, as
    CUDA_VISIBLE_DEVICES calls them; none: all see all. way, modules: how a job gets a warm process,
    None where it gets none, and what is imported there; read when the first job wants one. cluster:
    takes those jobs instead, from as many threads as ask.
    """

    def __init__(
        self,
        count: int = 1,
        threads: int | None = None,
        gpus: Sequence[str] = (),
        cluster: Warm | None = None,
    ) -> None:
        self._cluster = cluster
        self.way: Way | None = Way.FORKED if fork_server.AVAILABLE else None
        self.modules: tuple[str, ...] = ()
        # By number, so that jobs that run alone all get the first one.
        self._free: PriorityQueue[tuple[int, _Place]] = PriorityQueue()
        for number in range(count):
            gpu = gpus[number] if gpus else None
            self._free.put((number, _Place(config.child_environment(threads, gpu))))

    def use_gpu(self) -> None:
        """Let jobs have CUDA: one after the other in a process, where such may be warm at all."""
        if self.way is Way.FORKED:
            self.way = Way.REUSED

    def run(self, job_file: str, limit: float | None, *, warm: bool) -> process.Ended:
        """Run a job, in a new process unless it may be a warm one."""
        if warm and self._cluster is not None and (there := self._cluster.run(job_file, limit)):
            return there
        with held() as interrupt, interrupt.let_through():
            number, place = self._free.get()
        try:
            if warm and self.way is not None:
                ended = place.run_warm(STARTS[self.way], self.modules, job_file, limit)
                if ended is not None:
                    return ended
                self.way = None
            return place.run_new(job_file, limit)
        finally:
            self._free.put((number, place))
