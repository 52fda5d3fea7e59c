"""Python's garbage collector, told that syntax trees are made and dropped as a whole."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two collections; Python's own 700 cost a quarter of the time of a rewriting.
OBJECTS = 200_000


def collect_seldom() -> None:
    """For a process that makes syntax trees and nothing else."""
    gc.freeze()
    gc.set_threshold(OBJECTS)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """The same for a while."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
