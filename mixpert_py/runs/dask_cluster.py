"""An existing Dask cluster that runs trials, one at a time on each of its workers."""

import json
import os
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

from mixpert_py.errors import MixPertError
from mixpert_py.interrupts import held
from mixpert_py.runs import dask_job, process, work_folder

PATIENCE = 10.0  # seconds for its scheduler to answer
MOST_BYTES = 32 << 20  # of the working folder, which is sent to it


class DaskCluster:
    """Runs jobs where it is told to, in as many threads as there are `runs`.

    runs: its workers; threads: of each, the fewest that one has. The files of the folder that we
    are in are sent to it once; a job finds them where it runs, and what it writes there stays
    there. Raises MixPertError where `distributed` is not installed, nobody answers at the address,
    versions differ, there is no worker, the folder is too large, or does not hold `program`, the
    folder of the program that is to be run.
    """

    def __init__(self, address: str, program: str) -> None:
        try:
            from distributed import Client
            from distributed.comm.addressing import get_address_host_port
        except ImportError:
            raise MixPertError("--dask needs Dask (pip install 'mixpert-py[dask]')") from None
        self._here = os.getcwd()
        if not f"{program}/".startswith(f"{self._here}/"):
            raise MixPertError(
                f"--dask sends {self._here}, and the program is in {program}; go there"
            )
        work = _packed(self._here)
        try:
            get_address_host_port(address, strict=True)  # a client of a wrong one ends slowly
            with warnings.catch_warnings():  # about versions, which are looked at here
                warnings.simplefilter("ignore")
                self._client: Any = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            said = f"no scheduler answers there ({_line(error)})"
            raise MixPertError(f"--dask {address}: {said}") from None
        weakref.finalize(self, self._client.close)
        self._require_same(address)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise MixPertError(f"--dask {address}: the cluster has no workers")
        self.runs = len(workers)
        self.threads = min(worker["nthreads"] for worker in workers.values())
        self._work = self._client.scatter(work, broadcast=True, hash=False)

    def run(self, job_file: str, limit: float | None) -> process.Ended:
        """Run a job as `process.run` does, of the code and for the time that it says."""
        # As if it ran in the folder that was sent, and not in a copy of it here.
        job = {**json.loads(Path(job_file).read_bytes()), "directory": self._here}
        folder = Path(job["folder"])
        files = {"code.marshal": (folder / "code.marshal").read_bytes()}
        parcel = dask_job.Parcel(job, files, limit, self.threads)
        task = self._client.submit(dask_job.run, parcel, self._work, pure=False, retries=0)
        answer = self._answer(task)
        for name, content in answer.files.items():
            (folder / Path(name).name).write_bytes(content)
        return process.Ended(answer.code, answer.tail)

    def _answer(self, task: Any) -> dask_job.Answer:
        """What a task returns. A worker that was lost ran a job that it did not survive."""
        from distributed import KilledWorker

        stop = process.stop.get()
        ended = threading.Event()
        task.add_done_callback(lambda _: ended.set())
        try:
            with held() as interrupt, interrupt.let_through():
                while stop is None or not stop.is_set():
                    if ended.wait(process.LOOK):
                        answer: dask_job.Answer = task.result()
                        return answer
        except KilledWorker as error:
            return dask_job.Answer(1, _line(error), {})
        except Exception as error:  # of the connection, or of a worker's disk
            raise MixPertError(f"--dask: the cluster fails: {_line(error)}") from None
        finally:
            task.cancel()
        raise KeyboardInterrupt

    def _require_same(self, address: str) -> None:
        """Raise MixPertError where the cluster has other versions than we have."""
        ours = dask_job.versions()
        found = {"scheduler": _asked(self._client.run_on_scheduler)}
        found |= self._client.run(dask_job.versions, on_error="return")
        for place, theirs in found.items():
            if isinstance(theirs, BaseException):
                raise MixPertError(f"--dask {address}: {place} cannot run this: {_line(theirs)}")
            for name, version in ours.items():
                if theirs[name] != version:
                    raise MixPertError(
                        f"--dask {address}: {place} has {name} {theirs[name]}, and here it is "
                        f"{version}; install the same there"
                    )


def _asked(run: Any) -> Any:
    try:
        return run(dask_job.versions)
    except Exception as error:  # of its unpickling, most likely: it has no mixpert_py
        return error


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _packed(folder: str) -> bytes:
    state = work_folder.state(folder)
    if state is None or sum(size for _, size in state.values()) > MOST_BYTES:
        raise MixPertError(
            f"--dask: {folder} holds more than {MOST_BYTES >> 20} MiB or "
            f"{work_folder.MOST_ENTRIES} files, too much to be sent; begin in a smaller folder"
        )
    sent = [path for path in map(Path, state) if path.is_file() or path.is_dir()]
    return dask_job.packed(Path(folder), [str(path.relative_to(folder)) for path in sent])
