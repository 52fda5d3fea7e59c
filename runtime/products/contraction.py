"""Contractions: what subscripts of einsum mean, and which sums over products are of matrices."""

from collections.abc import Sequence
from functools import lru_cache
from string import ascii_letters, ascii_uppercase
from typing import Any, NamedTuple

import numpy as np

# What np.einsum_path raises for paths that are none; np.einsum then says so itself.
NO_PATH = (IndexError, KeyError, RuntimeError, TypeError, ValueError)


class Sum(NamedTuple):
    """A sum of products: a letter for every axis of each operand, and of the result."""

    inputs: tuple[str, ...]
    output: str


class Contraction(NamedTuple):
    """A sum over products that is (stack, rows, sum) @ (stack, sum, columns).

    Each is the letters of some indices; left, right and output are as they were given.
    """

    left: str
    right: str
    output: str
    stack: str
    rows: str
    sum: str
    columns: str


class Step(NamedTuple):
    """One contraction of a path: which of the waiting operands; the result waits behind them."""

    positions: tuple[int, ...]
    terms: Sum


def read(operands: Sequence[Any]) -> tuple[str | None, tuple[Any, ...]]:
    """Subscripts and arrays out of the arguments of np.einsum, in either form.

    Subscripts are None where lists of indices hold anything but numbers below 26 and Ellipsis.
    """
    if operands and isinstance(operands[0], str):
        return operands[0], tuple(operands[1:])
    count = len(operands) // 2
    arrays, lists = operands[: 2 * count : 2], operands[1 : 2 * count : 2]
    parts = [_letters(indices) for indices in (*lists, *operands[2 * count :])]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None, tuple(arrays)
    inputs, output = ",".join(known[:count]), known[count:]
    return "->".join([inputs, *output]), tuple(arrays)


def _letters(indices: Any) -> str | None:
    if not isinstance(indices, (list, tuple)):
        return None
    if not all(i is Ellipsis or (type(i) is int and 0 <= i < 26) for i in indices):
        return None
    return "".join("..." if i is Ellipsis else ascii_uppercase[i] for i in indices)


@lru_cache(maxsize=256)
def expand(subscripts: str, ndims: tuple[int, ...]) -> Sum | None:
    """Subscripts with letters in place of every ellipsis, and with their output.

    ndims: how many dimensions each operand has. None where np.einsum has to judge them.
    """
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    parts = inputs.split(",")
    named = [part.replace("...", "", 1) for part in (*parts, output)]
    if len(parts) != len(ndims) or not all(i in ascii_letters for part in named for i in part):
        return None
    extra = [ndim - len(part) for ndim, part in zip(ndims, named, strict=False)]
    if any(e < 0 or (e and "..." not in part) for e, part in zip(extra, parts, strict=True)):
        return None
    longest = max(extra)
    spare = "".join(i for i in ascii_letters if i not in subscripts)
    if longest > len(spare) or (arrow and longest and "..." not in output):
        return None
    dots = spare[:longest]
    terms = tuple(
        part.replace("...", dots[longest - e :]) for part, e in zip(parts, extra, strict=True)
    )
    letters = "".join(named[:-1])
    if not arrow:
        output = "..." + "".join(i for i in sorted(set(letters)) if letters.count(i) == 1)
    output = output.replace("...", dots)
    if len(set(output)) < len(output) or not set(output) <= set("".join(terms)):
        return None
    return Sum(terms, output)


@lru_cache(maxsize=256)
def contraction(terms: Sum) -> Contraction | None:
    """The product of matrices that a sum is; None: it is another.

    Others: an index twice in one operand or summed in one alone, no sum over both, and products of
    vectors alone, which give one number (of a stack) each.
    """
    if len(terms.inputs) != 2:
        return None
    (left, right), output = terms
    once = set(left) ^ set(right)
    if any(len(set(part)) < len(part) for part in (left, right)) or not once <= set(output):
        return None
    found = Contraction(
        left,
        right,
        output,
        stack="".join(i for i in output if i not in once),
        rows="".join(i for i in output if i in once and i in left),
        sum="".join(i for i in left if i not in output),
        columns="".join(i for i in output if i in once and i in right),
    )
    return found if found.sum and once else None


def path(terms: Sum, shapes: tuple[tuple[int, ...], ...], optimize: Any) -> tuple[Step, ...] | None:
    """The order in which np.einsum would contract its operands; None if it has to judge that.

    shapes: of the operands, no index of two sizes. optimize: as in np.einsum; False: "greedy".
    """
    wanted = tuple(optimize) if isinstance(optimize, list) else optimize
    try:
        return _path(terms, shapes, "greedy" if wanted is False else wanted)
    except NO_PATH:
        return None


@lru_cache(maxsize=256)
def _path(terms: Sum, shapes: tuple[tuple[int, ...], ...], optimize: Any) -> tuple[Step, ...]:
    if isinstance(optimize, tuple) and optimize and optimize[0] == "einsum_path":
        optimize = list(optimize)
    written = f"{','.join(terms.inputs)}->{terms.output}"
    stands = [np.broadcast_to(0.0, shape) for shape in shapes]
    (_, *order), _ = np.einsum_path(written, *stands, optimize=optimize)
    waiting = list(terms.inputs)
    steps = []
    for positions in order:
        taken = tuple(waiting[at] for at in positions)
        waiting = [part for at, part in enumerate(waiting) if at not in positions]
        wanted = set(terms.output).union(*waiting)
        made = "".join(dict.fromkeys(i for part in taken for i in part if i in wanted))
        steps.append(Step(tuple(positions), Sum(taken, made if waiting else terms.output)))
        waiting.append(made)
    return tuple(steps)
