"""Shares work among several processes, any of which may be killed or run out of memory."""

import gc
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from mixpert_py.sources.in_memory import OBJECTS

Item = TypeVar("Item")
Output = TypeVar("Output")

# Items that a process is handed together: few, so that all processes end at about the same time.
MOST_AT_ONCE = 8


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
    while items:
        done = 0
        try:
            with _started(jobs) as pool:
                for result in pool.map(one, items, chunksize=size):
                    done += 1
                    yield result
            return
        except BrokenProcessPool:
            # The others are ended with the process that died, and it is not known which one did.
            # They are begun in order, so most likely it worked on one of these; else the next pool
            # breaks in the same way, with fewer items left.
            some = items[done : done + jobs * size]
        yield from (_alone(one, item, lost) for item in some)
        items = items[done + len(some) :]


def _started(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, initializer=collect_seldom)


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
