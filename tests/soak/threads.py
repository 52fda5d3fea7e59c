"""Threads that multiply at the same time: every product has the bits that it has alone."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.bench.arrays import Array
from mixpert_py.runtime.gpu.foreign import on_host
from tests.soak.random_products.backend import Backend
from tests.soak.random_products.case import Case, draw, operands
from tests.soak.verdict import Verdict

MOST_SHOWN = 20


class Task(NamedTuple):
    """A product, its operands, which all threads share, and the digest that is expected of it."""

    case: Case
    a: Array
    b: Array
    expected: str


class Load(NamedTuple):
    """The products of a run: each of `threads` makes `per_thread`, out of `different` ones.

    largest, kinds: as `draw` takes them.
    """

    threads: int
    per_thread: int
    different: int
    largest: int
    kinds: int = 0


def gate(backend: Backend, load: Load, seconds: float, report: Callable[[str], None]) -> Verdict:
    """Make random products one after the other, then by threads, each in an order of its own.

    seconds: after these, threads begin no product; after half of them, which compiling takes where
    caches are empty, no further product is made alone.
    """
    threads, per_thread, different, largest, kinds = load
    start = monotonic()
    tasks = _tasks(backend, load, start + seconds / 2)
    report(f"{len(tasks)} of {different} products made alone, in {monotonic() - start:.0f} s")
    if backend.name == "cuda":
        backend.xp.cuda.Device().synchronize()  # threads have streams of their own
    made, wrong = [0] * threads, []
    end, begin = start + seconds, threading.Barrier(threads)

    def work(number: int) -> None:
        order = random.Random(number).choices(tasks, k=per_thread)
        begin.wait()
        with _own_stream(backend):
            for task in order:
                if monotonic() > end:
                    return
                found = digest(backend, task.case, task.a, task.b)
                if found != task.expected:
                    wrong.append(f"{task.case}: {found}, to be {task.expected}")
                made[number] += 1

    run_all([threading.Thread(target=work, args=(number,)) for number in range(threads)])
    for line in wrong[:MOST_SHOWN]:
        report(line)
    return Verdict(
        "threads",
        f"{threads} threads, {sum(made):,} products in all, of schemes, shapes, types and layouts "
        "at random" + (f", of {kinds} kinds" if kinds else ""),
        f"{len(wrong)} differ from those made one after the other",
        not wrong and (len(tasks), sum(made)) == (different, threads * per_thread),
        on_gpu=backend.name == "cuda",
        figures={
            "wrong": wrong[:MOST_SHOWN],
            "different": len(tasks),
            "largest": largest,
            "kinds": kinds,
        },
    )


def run_all(threads: Sequence[threading.Thread]) -> None:
    """Start threads and wait for them."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def digest(backend: Backend, case: Case, a: Array, b: Array) -> str:
    """The scheme that ran, the type, the shape and the bits of a product; or the error raised."""
    try:
        with np.errstate(all="ignore"):
            made = backend.product(a, b, case.scheme, case.block, case.way)
        value: Any = on_host(made.value)
        bits = sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return f"{made.ran} {value.dtype} {value.shape} {bits}"
    except Exception as error:  # a thread that ends early would look like one that is right
        return f"{type(error).__name__}: {str(error)[:200]}"


def _tasks(backend: Backend, load: Load, end: float) -> list[Task]:
    """The products made alone until `end`, one at least."""
    tasks: list[Task] = []
    for seed in range(load.different):
        case = draw(seed, load.largest, load.kinds)
        with np.errstate(all="ignore"):
            a, b = operands(case, backend.xp)
        tasks.append(Task(case, a, b, digest(backend, case, a, b)))
        if monotonic() > end:
            break
    return tasks


def _own_stream(backend: Backend) -> AbstractContextManager[Any]:
    if backend.name == "cuda":
        return _stream(backend.xp)
    return nullcontext()


@contextmanager
def _stream(xp: Any) -> Iterator[None]:
    """A stream of its own for a thread; at the end, all that was enqueued on it is done."""
    with xp.cuda.Stream(non_blocking=True) as stream:
        yield
        stream.synchronize()
