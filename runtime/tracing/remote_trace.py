"""Records of products in other threads and processes of a Dask graph, collected into one trace.

A task carries the `Origin` of the trace that was in force where its product was written. It sends
its records as soon as it is done: directly into the trace, where the task runs in the trace's own
process, or as an event of its worker, which reaches the client before the task's result does. The
pool of Dask's own process scheduler has no way back: products there are in no trace. A block that
is computed twice counts twice, since it ran twice; the records of a lost worker were sent.
"""

import os
import pickle
import sys
import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mixpert_py.runtime.tracing.trace import Trace

TOPIC = "mixpert-trace"
MAX_TRACES = 8  # that the tasks of one worker belong to at a time

# The traces of this process, by name, and the clients that receive records from workers.
_own: weakref.WeakValueDictionary[str, Trace] = weakref.WeakValueDictionary()
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of a trace: its name in a process."""

    name: str
    process: int
    levels: tuple[str, ...] | None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.process == os.getpid():
            _subscribe()  # for a client that was made after the product was written
        return Origin, (self.name, self.process, self.levels)

    def trace(self) -> Trace:
        """The trace of this process that collects records for it."""
        return _collecting(self.name, self.levels)

    def send(self, trace: Trace) -> None:
        """Send the records that have been collected."""
        sites = trace.take()
        if not sites:
            return
        if self.process == os.getpid() and (ours := _own.get(self.name)) is not None:
            ours.merge(sites)
        elif (worker := _distributed("get_worker")) is not None:
            worker.log_event(TOPIC, pickle.dumps((self.name, sites)))


def origin_of(trace: Trace | None) -> Origin | None:
    """The address to which tasks are to send their records."""
    if trace is None:
        return None
    _own[trace.name] = trace
    return Origin(trace.name, os.getpid(), trace.levels)


@lru_cache(MAX_TRACES)
def _collecting(name: str, levels: tuple[str, ...] | None) -> Trace:
    """One trace for all tasks of this process, so that calls are sampled across tasks."""
    return Trace(levels)


def _subscribe() -> None:
    """Let the current client, if there is one, receive records; one client for each scheduler."""
    client = _distributed("default_client")
    if client is None:
        return
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
    if (trace := _own.get(name)) is not None:
        trace.merge(sites)


def _distributed(function: str) -> Any | None:
    """What a function of `distributed` returns; None where it raises, or is not imported."""
    try:
        return getattr(sys.modules.get("distributed"), function)()
    except (AttributeError, ValueError):
        return None
