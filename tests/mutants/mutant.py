"""One mistake in the product's source, and the tests that are to find it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In `path`, `old` (which stands there once) becomes `new`; one test of `tests` must fail.

    Paths are relative to the root of the repository; `tests` holds files and folders.
    """

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
