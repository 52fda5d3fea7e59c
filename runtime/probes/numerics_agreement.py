"""How well a model of a matrix instruction, or plain arithmetic, agrees with the chip: in bits."""

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
    """Of one family of random matrices. zeros: of the elements that differ, those that differ only
    in the sign of zero.
    """

    family: str
    matrices: int
    elements: int
    differing: int
    zeros: int
    first: Difference | None


class Bits(NamedTuple):
    """Leading bits of 23 that a result shares with a candidate, over random sums.

    That many: 23 less the bits of their distance in units of the last place. enough: the share of
    sums that agree in 21 or more.
    """

    candidate: str
    least: int
    median: int
    enough: float


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


def leading_bits(multiply: Multiply, shape: Shape, count: int = 10_000) -> list[Bits]:
    """`count` sums of products of random halves, as the chip, half and single precision make them.

    The profile of EGEMM-TC, §3.2 and fig. 3, which finds that 21 bits agree with single precision;
    of uniform [0, 1) operands and addends, one sum per matrix.
    """
    random = np.random.default_rng(SEED)
    a = random.random((count, shape.m, shape.k)).astype(np.float16)
    b = random.random((count, shape.k, shape.n)).astype(np.float16)
    c = random.random((count, shape.m, shape.n), np.float32)
    seen = multiply(a, b, c)[:, 0, 0]
    found = []
    for name, dtype in (("half", np.float16), ("single", np.float32)):
        total = c[:, 0, 0].astype(dtype)
        for x, y in zip(a[:, 0].T.astype(dtype), b[:, :, 0].T.astype(dtype), strict=True):
            total = total + x * y
        distance = np.abs(_ordered(seen) - _ordered(total.astype(np.float32)))
        bits = 23 - np.ceil(np.log2(distance + 1.0)).astype(int).clip(max=23)
        found.append(Bits(name, int(bits.min()), int(np.median(bits)), float(np.mean(bits >= 21))))
    return found


def _ordered(x: Array) -> Array:
    """Integers as far apart as the numbers are in units of the last place; all are positive."""
    return x.view(np.int32).astype(np.int64)


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
