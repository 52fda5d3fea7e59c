"""How well a model of a matrix instruction agrees with the chip: bit by bit."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mixpert_py.runtime.model.numerics import AnyAccumulation, accumulate
from mixpert_py.runtime.probes.numerics_families import FLOATS, INTEGERS, Array, Family
from mixpert_py.runtime.probes.numerics_features import Multiply, Shape, same

SEED = 20210210
AT_ONCE = 1 << 14  # matrices


class Difference(NamedTuple):
    """The first element that differs: its row of A, column of B, its C, and both results."""

    row: list[float]
    column: list[float]
    addend: float
    chip: float
    model: float


class Agreement(NamedTuple):
    """How results agree on one family of random matrices. zeros: the number of elements that differ
    only in the sign of zero.
    """

    family: str
    matrices: int
    elements: int
    differing: int
    zeros: int
    first: Difference | None


def agree(
    multiply: Multiply,
    how: AnyAccumulation,
    shape: Shape,
    count: int,
    families: dict[str, Family] | None = None,
) -> Iterator[Agreement]:
    """Compare the model with the chip on `count` random matrices, in equal parts of each family.

    NaN are compared as all others: by their bits.
    """
    if families is None:
        families = INTEGERS if shape.element == "int8" else FLOATS
    each = -(-count // len(families))
    for name, family in families.items():
        random = np.random.default_rng(SEED)
        elements = differing = zeros = 0
        first = None
        for start in range(0, each, AT_ONCE):
            a, b, c = family(random, min(AT_ONCE, each - start), shape)
            chip, model = multiply(a, b, c), accumulate(a, b, c, how)
            wrong = ~same(chip, model)
            elements += wrong.size
            differing += int(wrong.sum())
            zeros += int((wrong & (chip == 0) & (model == 0)).sum())
            if first is None and wrong.any():
                first = _difference(a, b, c, chip, model, tuple(np.argwhere(wrong)[0]))
        yield Agreement(name, each, elements, differing, zeros, first)


def _difference(
    a: Array, b: Array, c: Array, chip: Array, model: Array, at: tuple[int, int, int]
) -> Difference:
    matrix, row, column = at
    return Difference(
        a[matrix, row].tolist(),
        b[matrix, :, column].tolist(),
        c[at].item(),
        chip[at].item(),
        model[at].item(),
    )
