"""How much is checked: by default enough to see a mistake, all with EVERY_CHECK=1 set."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

Case = TypeVar("Case")

EACH = 3
EVERY_CHECK = bool(os.environ.get("EVERY_CHECK"))


def some(cases: Iterable[Case], each: int = EACH) -> list[Case]:
    """The first case and every third (or `each`-th) one after it; all with EVERY_CHECK=1."""
    return [*cases][:: 1 if EVERY_CHECK else each]


def examples(count: int) -> int:
    """So many of Hypothesis's examples, a third by default."""
    return count if EVERY_CHECK else count // EACH


def sweep(*given: Iterable[Any], together: int = 2) -> list[tuple[Any, ...]]:
    """Cases out of the product of the axes that hold each pair of two axes' values.

    The whole product, in the same order, with EVERY_CHECK=1. together: 1 where it is enough that
    the cases hold each value of each axis.
    """
    axes = [list(axis) for axis in given]
    if EVERY_CHECK:
        return list(itertools.product(*axes))
    if together == 1:
        count = max(map(len, axes))
        return [tuple(axis[i % len(axis)] for axis in axes) for i in range(count)]
    return _pairwise(axes)


def _pairwise(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Greedily, the case next that holds the most pairs which none before it held."""
    candidates = list(itertools.product(*(range(len(axis)) for axis in axes)))
    if len(axes) < 3:
        chosen = candidates
    else:
        chosen, held = [], set[tuple[tuple[int, int], ...]]()
        pairs = {case: set(itertools.combinations(enumerate(case), 2)) for case in candidates}
        while new := max(candidates, key=lambda case: len(pairs[case] - held)):
            if pairs[new] <= held:
                break
            chosen.append(new)
            held |= pairs[new]
    return [
        tuple(axis[index] for axis, index in zip(axes, case, strict=True))
        for case in sorted(chosen)
    ]
