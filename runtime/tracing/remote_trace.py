"""Records of products in other threads and processes of a Dask graph, collected into one trace.

A task carries the `Origin` of the trace that was in force where its product was written. It sends
its records as soon as it is done: directly into the trace, where the task runs in the trace's own
process; as an event of its worker, which reaches the client before the task's result does; or, from
the pool of Dask's own process scheduler, as a file that is read when the computation ends. A block
that is computed twice counts twice, since it ran twice; the records of a lost worker were sent.
"""

import os
import pickle
import shutil
import sys
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from mixpert_py.runtime.tracing.trace import Trace

TOPIC = "mixpert-trace"
MAX_TRACES = 8  # that the tasks of one worker belong to at a time

# The traces of this process, by name, and the clients that receive records from workers.
_own: weakref.WeakValueDictionary[str, Trace] = weakref.WeakValueDictionary()
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of a trace. folder: where processes of its machine leave files for it."""

    name: str
    process: int
    folder: str
    levels: tuple[str, ...] | None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.process == os.getpid():
            _subscribe()  # for a client that was made after the product was written
        return Origin, (self.name, self.process, self.folder, self.levels)

    def trace(self) -> Trace:
        """The trace of this process that collects records for it."""
        return _collecting(self.name, self.levels)

    def send(self, trace: Trace) -> None:
        """Send the records that have been collected."""
        sites = trace.take()
        if not sites:
            return
        ours = _own.get(self.name) if self.process == os.getpid() else None
        if ours is not None:
            ours.merge(sites)
            return
        content = pickle.dumps((self.name, sites))
        worker = _worker()
        if worker is not None:
            worker.log_event(TOPIC, content)
        else:
            _write_file(Path(self.folder), content)


def origin_of(trace: Trace | None) -> Origin | None:
    """The address to which tasks are to send their records."""
    if trace is None:
        return None
    _own[trace.name] = trace
    return Origin(trace.name, os.getpid(), _folder(os.getpid()), trace.levels)


@lru_cache(MAX_TRACES)
def _collecting(name: str, levels: tuple[str, ...] | None) -> Trace:
    """One trace for all tasks of this process, so that calls are sampled across tasks."""
    return Trace(levels)


def _subscribe() -> None:
    """Let the current client, if there is one, receive records; one client for each scheduler."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        client = distributed.default_client()
    except ValueError:
        return  # there is none
    subscribed = {_scheduler(other) for other in _clients if other.status == "running"}
    if _scheduler(client) not in subscribed:
        _clients.add(client)
        client.subscribe_topic(TOPIC, lambda event: _receive(event[1]))


def _scheduler(client: Any) -> str | None:
    """The address of a client's scheduler; None before it is connected."""
    return getattr(client.scheduler, "address", None)


def _receive(content: bytes) -> None:
    """Add records to their trace. They are a pickle, as is every result of a task of the sender."""
    name, sites = pickle.loads(content)
    trace = _own.get(name)
    if trace is not None:
        trace.merge(sites)


def _worker() -> Any | None:
    """The worker whose task this thread runs; None if it runs none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None


@cache
def _folder(process: int) -> str:
    """A folder for records of other processes, which is read whenever Dask has computed.

    process: the number of this process, so that a forked child has a folder of its own.
    """
    from dask.callbacks import Callback

    folder = tempfile.mkdtemp(prefix="mixpert-traces-")
    weakref.finalize(_folder, _remove, folder, process)
    Callback(finish=lambda *_: _read_files(Path(folder))).register()
    return folder


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


def _write_file(folder: Path, content: bytes) -> None:
    with suppress(OSError):  # another machine without a worker: the records are lost
        descriptor, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, f"{name}.whole")


def _read_files(folder: Path) -> None:
    for path in folder.glob("*.whole"):
        with suppress(FileNotFoundError):  # another thread's computation has ended, too
            content = path.read_bytes()
            path.unlink()
            _receive(content)
