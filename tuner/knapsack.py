"""One option of each kind, so that the values are least and the weights within a capacity."""

from collections.abc import Sequence
from itertools import product
from math import exp, log, prod

ENUMERATED = 20_000  # combinations
BISECTIONS = 100
LEAST, MOST = log(1e-60), log(1e60)  # multipliers

Rows = Sequence[Sequence[float]]


def choose(values: Rows, weights: Rows, capacity: float) -> tuple[int, ...] | None:
    """The options' numbers; None if nothing fits.

    values, weights: kind → option → number ≥ 0. The best choice where the combinations are few;
    else that of a Lagrange multiplier, with what room is left filled one option at a time.
    """
    if prod(len(row) for row in values) <= ENUMERATED:
        fitting = (
            (_total(values, picked), picked)
            for picked in product(*(range(len(row)) for row in values))
            if _total(weights, picked) <= capacity
        )
        return min(fitting, default=(0.0, None))[1]
    return _relaxed(values, weights, capacity)


def _relaxed(values: Rows, weights: Rows, capacity: float) -> tuple[int, ...] | None:
    def at(multiplier: float) -> tuple[int, ...]:
        return tuple(
            min(range(len(row)), key=lambda i: row[i] + (multiplier * its[i] if its[i] else 0.0))
            for row, its in zip(values, weights, strict=True)
        )

    if _total(weights, at(0.0)) <= capacity:
        return at(0.0)
    best = tuple(min(range(len(row)), key=row.__getitem__) for row in weights)
    if _total(weights, best) > capacity:
        return None
    low, high = LEAST, MOST
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        picked = at(exp(middle))
        if _total(weights, picked) <= capacity:
            best, high = picked, middle
        else:
            low = middle
    return _filled(values, weights, capacity, best)


def _filled(
    values: Rows, weights: Rows, capacity: float, picked: tuple[int, ...]
) -> tuple[int, ...]:
    while True:
        room = capacity - _total(weights, picked)
        better = [
            (row[i] - row[picked[kind]], kind, i)
            for kind, row in enumerate(values)
            for i in range(len(row))
            if row[i] < row[picked[kind]] and weights[kind][i] - weights[kind][picked[kind]] <= room
        ]
        if not better:
            return picked
        _, kind, i = min(better)
        picked = (*picked[:kind], i, *picked[kind + 1 :])


def _total(rows: Rows, picked: Sequence[int]) -> float:
    return sum(row[i] for row, i in zip(rows, picked, strict=True))
