"""Shares work among several processes, any of which may be killed or run out of memory."""

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

Item = TypeVar("Item")
Output = TypeVar("Output")

# Items that a process is handed together: few, so that all processes end at about the same time.
MOST_AT_ONCE = 8
# New objects between two garbage collections. Syntax trees are made and dropped as a whole, and
# Python's own 700 cost a quarter of the time of a rewriting.
OBJECTS = 200_000


def each(
    one: Callable[[Item], Output],
    items: Sequence[Item],
    jobs: int,
    lost: Callable[[Item], Output],
) -> Generator[Output, None, None]:
    """Yield one(item) for every item, in order, from `jobs` processes.

    one: a function that a process can import. lost: makes the result, here, for an item whose
    process died while it worked on nothing else. Exceptions of `one` are raised here.
    """
    size = max(1, min(MOST_AT_ONCE, len(items) // (8 * jobs)))
    pool = _started(jobs)
    make = partial(_make, one)
    chunks = [items[i : i + size] for i in range(0, len(items), size)]
    running = deque((chunk, _submitted(pool, make, chunk)) for chunk in chunks)
    try:
        while running:
            if _is_broken(running[0][1]):
                pool.shutdown()  # from here on every future that can be done is
                _try_alone(running, jobs, one, lost)
                pool = _started(jobs)
                for _ in range(len(running)):
                    chunk, made = running.popleft()
                    again = _submitted(pool, make, chunk) if _is_broken(made) else made
                    running.append((chunk, again))
            yield from running.popleft()[1].result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error nobody waits for the others


def _started(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, initializer=collect_seldom)


def _make(one: Callable[[Item], Output], items: Sequence[Item]) -> list[Output]:
    return [one(item) for item in items]


def _submitted(
    pool: ProcessPoolExecutor, work: Callable[[Item], Output], item: Item
) -> Future[Output]:
    try:
        return pool.submit(work, item)
    except BrokenProcessPool as error:  # a process died while work was still being handed out
        future = Future[Output]()
        future.set_exception(error)
        return future


def _is_broken(future: Future[Output]) -> bool:
    """Wait for a future, and return whether its pool broke."""
    return isinstance(future.exception(), BrokenProcessPool)


def _try_alone(
    running: deque[tuple[Sequence[Item], Future[list[Output]]]],
    jobs: int,
    one: Callable[[Item], Output],
    lost: Callable[[Item], Output],
) -> None:
    """Retry, each in a process of its own, the first `jobs` futures that have no result.

    When a process dies the others are ended, and it is not known which one died. Chunks are begun
    in order, so it worked on one of these, unless results were lost as well: then the next pool
    breaks in the same way, with fewer chunks left.
    """
    broken = [i for i, (_, future) in enumerate(running) if _is_broken(future)]
    for i in broken[:jobs]:
        chunk, _ = running[i]
        made = Future[list[Output]]()
        made.set_result([_alone(one, item, lost) for item in chunk])
        running[i] = chunk, made


def _alone(one: Callable[[Item], Output], item: Item, lost: Callable[[Item], Output]) -> Output:
    with _started(1) as pool:
        try:
            return pool.submit(one, item).result()
        except BrokenProcessPool:
            return lost(item)


def collect_seldom() -> None:
    """Make garbage collection rare in a process that only makes syntax trees."""
    gc.freeze()
    gc.set_threshold(OBJECTS)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Context manager in which garbage collection is rare."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
