"""What a worker of a Dask cluster does: one job, in a process of its own. Imported there."""

import io
import json
import platform
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixpert_py import __version__, config
from mixpert_py.files import temporary_folder
from mixpert_py.runs import process

WORK = "work"  # the folder that the program runs in, within the job's


class Parcel(NamedTuple):
    """A job as it travels. files: in its folder; job: `worker.Job` as a dict."""

    job: dict[str, Any]
    files: dict[str, bytes]
    limit: float | None
    threads: int


class Answer(NamedTuple):
    """How it ended, and what is in its folder then."""

    code: int | None
    tail: str
    files: dict[str, bytes]


class Released:
    """Whether nobody waits any more for the task that this is made in."""

    def __init__(self) -> None:
        from distributed import get_worker

        worker = get_worker()
        self._tasks, self._key = worker.state.tasks, worker.get_current_task()

    def is_set(self) -> bool:
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"


def versions() -> dict[str, str]:
    """What both sides must have in common: code is sent as Python compiled it."""
    return {
        "mixpert-py": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
    }


def run(parcel: Parcel, work: bytes) -> Answer:
    """Run a job. work: the folder that it runs in, as `packed`.

    Where nobody waits for it any more, it is ended, and has no answer.
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
        command = process.python("mixpert_py.runs.worker", str(job_file))
        try:
            ended = process.run(command, config.child_environment(parcel.threads), parcel.limit)
        except KeyboardInterrupt:  # of which Dask's worker would die
            return Answer(None, "", {})
        files = {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if path.is_file() and path.name not in (job_file.name, *parcel.files)
        }
        return Answer(ended.code, ended.tail, files)


def _placed(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The job with its places here: all that was within its working folder is in the copy."""
    before, inside = job["directory"], str(folder / WORK)

    def here(path: str) -> str:
        return inside + path[len(before) :] if f"{path}/".startswith(f"{before}/") else path

    moved = {name: here(job[name]) for name in ("directory", "filename", "path")}
    return {**job, **moved, "folder": str(folder)}


def packed(folder: Path, names: Iterable[str]) -> bytes:
    """Files of a folder, by their names in it, as one archive."""
    file = io.BytesIO()
    # What links lead to is sent: it need not be there.
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for name in names:
            archive.add(folder / name, name, recursive=False)
    return file.getvalue()
