"""An existing Dask cluster that runs trials, one at a time on each of its workers.

`DaskCluster` is our end. `run_job` and `versions` are imported and called by the workers.
"""

import io
import json
import os
import platform
import tarfile
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixpert_py import __version__, config
from mixpert_py.errors import MixPertError
from mixpert_py.execution import process, work_folder
from mixpert_py.files import temporary_folder
from mixpert_py.interrupts import deferred_signals

PATIENCE = 10.0  # seconds for its scheduler to answer
MOST_BYTES = 32 << 20  # of the working folder, which is sent to it
WORK = "work"  # the folder that the program runs in, within the job's


Versions = dict[str, str]


class Parcel(NamedTuple):
    """A job as it is sent: `worker.Job` as a dict, and the content of the files in its folder."""

    job: dict[str, Any]
    files: dict[str, bytes]
    limit: float | None
    threads: int


class Answer(NamedTuple):
    """The end of a job, and the content of the files in its folder then."""

    code: int | None
    tail: str
    files: dict[str, bytes]


class DaskCluster:
    """Runs jobs on a cluster; it may be called in as many threads as there are `runs`.

    runs: the number of its workers. threads: the smallest number of threads of a worker. The files
    of the current folder are sent once; a job finds them where it runs, and the files it writes
    stay there. Raises MixPertError where `distributed` is not installed, nobody answers at the
    address, versions differ, there is no worker, the folder is too large, or does not hold
    `program`, the folder of the program that is to be run.
    """

    def __init__(self, address: str, program: str) -> None:
        try:
            from distributed import Client
            from distributed.comm.addressing import get_address_host_port
        except ImportError:
            raise MixPertError("--dask needs Dask (pip install '.[dask]' in a checkout)") from None
        self._here = os.getcwd()
        if not f"{program}/".startswith(f"{self._here}/"):
            raise MixPertError(
                f"--dask sends {self._here}, and the program is in {program}; go there"
            )
        work = _packed(self._here)
        try:
            get_address_host_port(address, strict=True)  # a client of a wrong one ends slowly
            with warnings.catch_warnings():  # about versions, which are checked below
                warnings.simplefilter("ignore")
                self._client: Any = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            problem = f"no scheduler answers there ({_line(error)})"
            raise MixPertError(f"--dask {address}: {problem}") from None
        weakref.finalize(self, self._client.close)
        self._require_same(address)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise MixPertError(f"--dask {address}: the cluster has no workers")
        self.runs = len(workers)
        self.threads = min(worker["nthreads"] for worker in workers.values())
        self._work = self._client.scatter(work, broadcast=True, hash=False)

    def run(self, job_file: str, limit: float | None) -> process.Ended:
        """Run a job as `process.run` does."""
        # The job runs in the folder that was sent, and not in a copy of it here.
        job = {**json.loads(Path(job_file).read_bytes()), "directory": self._here}
        folder = Path(job["folder"])
        files = {"code.marshal": (folder / "code.marshal").read_bytes()}
        parcel = Parcel(job, files, limit, self.threads)
        task = self._client.submit(run_job, parcel, self._work, pure=False, retries=0)
        answer = self._answer(task)
        for name, content in answer.files.items():
            (folder / Path(name).name).write_bytes(content)
        return process.Ended(answer.code, answer.tail)

    def _answer(self, task: Any) -> Answer:
        """The result of a task; a worker that was lost is a job that failed."""
        from distributed import KilledWorker

        stop = process.stop.get()
        ended = threading.Event()
        task.add_done_callback(lambda _: ended.set())
        try:
            with deferred_signals() as interrupt, interrupt.let_through():
                while stop is None or not stop.is_set():
                    if ended.wait(process.POLL):
                        answer: Answer = task.result()
                        return answer
        except KilledWorker as error:
            return Answer(1, _line(error), {})
        except Exception as error:  # of the connection, or of a worker's disk
            raise MixPertError(f"--dask: the cluster fails: {_line(error)}") from None
        finally:
            task.cancel()
        raise KeyboardInterrupt

    def _require_same(self, address: str) -> None:
        """Raise MixPertError where the cluster's versions are not ours."""
        ours = versions()
        found = {"scheduler": _versions_or_error(self._client.run_on_scheduler)}
        found |= self._client.run(versions, on_error="return")
        for place, theirs in found.items():
            if isinstance(theirs, BaseException):
                raise MixPertError(f"--dask {address}: {place} cannot run this: {_line(theirs)}")
            for name, version in ours.items():
                if theirs[name] != version:
                    raise MixPertError(
                        f"--dask {address}: {place} has {name} {theirs[name]}, and here it is "
                        f"{version}; install the same there"
                    )


def _versions_or_error(run: Callable[[Callable[[], Versions]], Versions]) -> Versions | Exception:
    try:
        return run(versions)
    except Exception as error:  # most likely of unpickling, where mixpert_py is missing
        return error


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _packed(folder: str) -> bytes:
    """The files of a folder as one archive. Raises MixPertError where they are too many."""
    state = work_folder.state(folder)
    if state is None or sum(size for _, size in state.values()) > MOST_BYTES:
        raise MixPertError(
            f"--dask: {folder} holds more than {MOST_BYTES >> 20} MiB or "
            f"{work_folder.MOST_ENTRIES} files, too much to be sent; begin in a smaller folder"
        )
    file = io.BytesIO()
    # The targets of links are sent in their place: they need not exist on the cluster.
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for path in map(Path, state):
            if path.is_file() or path.is_dir():
                archive.add(path, path.relative_to(folder), recursive=False)
    return file.getvalue()


class Released:
    """Whether the task that this is made in was cancelled; a `process.Stop`."""

    def __init__(self) -> None:
        from distributed import get_worker

        worker = get_worker()
        self._tasks, self._key = worker.state.tasks, worker.get_current_task()

    def is_set(self) -> bool:
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"


def versions() -> Versions:
    """The versions that must be the same on both sides: code is sent as Python compiled it."""
    return {
        "mixpert-py": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
    }


def run_job(parcel: Parcel, work: bytes) -> Answer:
    """Run a job. work: the archive of the folder that it runs in.

    A job whose task is cancelled is ended, and has an empty answer.
    """
    process.stop.set(Released())
    with temporary_folder() as name:
        folder, inside = Path(name), Path(name) / WORK
        inside.mkdir()
        with tarfile.open(fileobj=io.BytesIO(work)) as archive:
            archive.extractall(inside, filter="data")
        for file, content in parcel.files.items():
            (folder / file).write_bytes(content)
        job_file = folder / "job.json"
        job_file.write_text(json.dumps(_placed(parcel.job, folder)))
        command = process.python("mixpert_py.execution.worker", str(job_file))
        # Dask sets one thread for all of its workers, whatever they may use.
        environment = config.child_environment() | config.thread_settings(parcel.threads)
        try:
            ended = process.run(command, environment, parcel.limit)
        except KeyboardInterrupt:  # it would end Dask's worker
            return Answer(None, "", {})
        files = {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if path.is_file() and path.name not in (job_file.name, *parcel.files)
        }
        return Answer(ended.code, ended.tail, files)


def _placed(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The job with the paths of this machine: its working folder's are in the copy."""
    before, inside = job["directory"], str(folder / WORK)

    def here(path: str) -> str:
        return inside + path[len(before) :] if f"{path}/".startswith(f"{before}/") else path

    moved = {name: here(job[name]) for name in ("directory", "filename", "path")}
    return {**job, **moved, "folder": str(folder)}
