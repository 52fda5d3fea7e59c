"""What products did in other threads and processes of a Dask graph, brought back into one trace.

A task carries the `Origin` of the trace that its product was written under. What it did is sent as
soon as it is done: straight into the trace, where the task runs in the trace's own process; as an
event of its worker, which reaches the client before the task's result does; else, from the pool of
Dask's own process scheduler, as a file, which is read when the computation ends. A block that is
computed twice counts twice, since it ran twice; one that was lost with its worker was sent before.
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
MOST_TRACES = 8  # that tasks of a worker belong to at a time

# This process's own; and the clients that bring back what workers did.
_own: weakref.WeakValueDictionary[str, Trace] = weakref.WeakValueDictionary()
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Origin:
    """A trace, as other processes know it. folder: of its process, for those of its machine."""

    name: str
    process: int
    folder: str
    levels: tuple[str, ...] | None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.process == os.getpid():
            _listen()  # a client that came after the product was written
        return Origin, (self.name, self.process, self.folder, self.levels)

    def trace(self) -> Trace:
        """What collects for it here."""
        return _collecting(self.name, self.levels)

    def send(self, trace: Trace) -> None:
        """Bring back what has been collected."""
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
            _leave(Path(self.folder), content)


def origin_of(trace: Trace | None) -> Origin | None:
    """Where what tasks do is to be sent."""
    if trace is None:
        return None
    _own[trace.name] = trace
    return Origin(trace.name, os.getpid(), _folder(os.getpid()), trace.levels)


@lru_cache(MOST_TRACES)
def _collecting(name: str, levels: tuple[str, ...] | None) -> Trace:
    """One for all tasks of this process, which knows how often it has looked at operands."""
    return Trace(levels)


def _listen() -> None:
    """Have the current client, if there is one, pass on what workers send; one of a scheduler's."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        client = distributed.default_client()
    except ValueError:
        return  # there is none
    heard = {_scheduler(other) for other in _clients if other.status == "running"}
    if _scheduler(client) not in heard:
        _clients.add(client)
        client.subscribe_topic(TOPIC, lambda event: _receive(event[1]))


def _scheduler(client: Any) -> str | None:
    """Whose client it is; None before it is connected."""
    return getattr(client.scheduler, "address", None)


def _receive(content: bytes) -> None:
    """A pickle, as every result of a task is: who sends it is trusted with as much."""
    name, sites = pickle.loads(content)
    trace = _own.get(name)
    if trace is not None:
        trace.merge(sites)


def _worker() -> Any | None:
    """The worker that this thread runs a task of."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None


@cache
def _folder(process: int) -> str:
    """Of this process, which is the one of that number; read whenever Dask has computed."""
    from dask.callbacks import Callback

    folder = tempfile.mkdtemp(prefix="mixpert-traces-")
    weakref.finalize(_folder, _removed, folder, process)
    Callback(finish=lambda *_: _collect(Path(folder))).register()
    return folder


def _removed(folder: str, process: int) -> None:
    if os.getpid() == process:  # not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


def _leave(folder: Path, content: bytes) -> None:
    with suppress(OSError):  # on another machine, without a worker: nobody can be told
        descriptor, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, f"{name}.whole")


def _collect(folder: Path) -> None:
    for path in folder.glob("*.whole"):
        with suppress(FileNotFoundError):  # another thread's computation has ended, too
            content = path.read_bytes()
            path.unlink()
            _receive(content)
