"""One random product, and its failures."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.bench.arrays import Array, narrow, of_parts, parts, wide
from mixpert_py.runtime.splitter import Residues
from tests.soak.random_products import backend as product_backend
from tests.soak.random_products.backend import Backend, Product
from tests.soak.random_products.case import Case, draw, operands
from tests.soak.random_products.check import Checked, by_formula

REPEAT = 8  # one product in so many is made twice


class Margin(NamedTuple):
    """How near a product came to its bound, in a sweep that compares all products with one bound.

    families: those of its operands. elements: how many were compared. ratio: the largest error over
    the allowed one, ∞ where something is not finite.
    """

    families: str
    elements: int
    ratio: float


class Outcome(NamedTuple):
    """The scheme that made a product, "native (reason)" or "failed"; and its failures."""

    ran: str
    failures: list[str]
    margin: Margin | None = None


def examine_seed(backend: str, seed: int, largest: int, kinds: int = 0) -> Outcome:
    """The product of a seed, in whatever process this is."""
    return examine(_backend(backend), draw(seed, largest, kinds))


_backend = cache(product_backend.backend)


def examine(backend: Backend, case: Case) -> Outcome:
    """Make a product and compare it with every bound that is stated for it."""
    try:
        with np.errstate(all="ignore"):
            a, b = operands(case, backend.xp)
            made = backend.product(a, b, case.scheme, case.block, case.way)
            name = f"{made.ran} ({made.reason})" if made.reason else made.ran
            return Outcome(name, list(_failures(backend, case, a, b, made)))
    except Exception as error:  # whichever it is, its seed is to be reported
        return failed(error)


def failed(error: Exception) -> Outcome:
    """The outcome of a product that was not made."""
    messages: list[str] = f"{type(error).__name__}: {error}".splitlines()
    return Outcome("failed", messages[:1])


def _failures(backend: Backend, case: Case, a: Array, b: Array, made: Product) -> Iterator[str]:
    value, dtype = made.value, np.result_type(a.dtype, b.dtype)
    shape = _shape(case, a, b)
    if value.shape != shape or value.dtype != dtype:
        yield f"the result is {value.dtype} {value.shape}, to be {dtype} {shape}"
        return
    if case.seed % REPEAT == 0:
        again = backend.product(a, b, case.scheme, case.block, case.way)
        for count in _differences(backend.xp, value, again.value):
            yield f"{count} elements differ when the product is made again"
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if stack:
        yield from _stacked(backend, case, a, b, made, stack)
        return
    rows = a[None, :] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    value = value.reshape(case.m, case.n)
    yield from _matrices(backend, case, rows, columns, made, value)


def _matrices(
    backend: Backend, case: Case, a: Array, b: Array, made: Product, value: Array
) -> Iterator[str]:
    """One product of two matrices, by every bound that is stated for what made it."""
    checked = Checked(backend.xp, a, b, value.dtype)
    yield from checked.special_values(value, made.ran == "native")
    if made.ran == "native":
        yield from checked.chained(value)
        return
    if made.certificate is None:
        yield "there is no certificate"
    else:
        yield from checked.certified(value, made.certificate)
    if case.scheme == "faithful" and value.dtype.kind == "f":
        yield from checked.contracted(value)
    if value.dtype.kind == "c":
        yield from _of_parts(backend, case, a, b, made, value)
        return
    scheme = backend.steps(a, b, made.ran, case.block)
    if scheme is not None and 0 not in (*a.shape, *b.shape):
        if isinstance(scheme.left, Residues):
            yield from checked.by_residues(value, scheme.left, random.Random(case.seed))
        slices = backend.slices(a, b, scheme)
        rounding = backend.rounding(scheme, a.shape[1], checked.unit)
        yield from checked.executed(value, rounding, *slices)
        yield from checked.measured(*slices)


def _of_parts(
    backend: Backend, case: Case, a: Array, b: Array, made: Product, value: Array
) -> Iterator[str]:
    """A complex product is, bit for bit, what its operands' parts make by themselves, and each of
    these real products is within every bound that is stated for it.
    """
    products, columns = [], _taken_apart(b)
    for x in _taken_apart(a):
        row = [backend.product(x, y, case.scheme, case.block) for y in columns]
        for y, alone in zip(columns, row, strict=True):
            for failure in _matrices(backend, case, x, y, alone, alone.value):
                yield f"of parts: {failure}"
        products.append([wide(alone.value) for alone in row])
    # `faithful` chooses by both shapes, but for an operand that is packed beforehand by its own.
    if case.scheme == "faithful" and "packed" in case.way:
        return
    # By way of float64, where every device keeps subnormals, a sum of two rounds to the same.
    made_of = (narrow(x, parts(value)[0].dtype) for x in by_formula(products))
    expected = of_parts(*made_of)
    for count in _differences(backend.xp, value, expected, case.special == "overflow"):
        yield f"{count} elements differ from what the parts make"


def _taken_apart(x: Array) -> tuple[Array, ...]:
    """The parts of an operand as complex products take them: C-contiguous of a complex one, a real
    one as it lies. What is repaired after a product on a GPU is summed by as many threads as suits
    the operand's layout, so another layout may round otherwise.
    """
    return tuple(part.copy() for part in parts(x)) if x.dtype.kind == "c" else (x,)


def _stacked(
    backend: Backend, case: Case, a: Array, b: Array, made: Product, stack: tuple[int, ...]
) -> Iterator[str]:
    """Every product of a stack is, bit for bit, what its two matrices make alone."""
    xp = backend.xp
    a, b = (xp.broadcast_to(x, (*stack, *x.shape[-2:])) for x in (a, b))
    for index in np.ndindex(*stack):
        alone = backend.product(a[index], b[index], case.scheme, case.block)
        value, bound = made.value[index], made.certificate
        # `faithful` may choose otherwise for the whole stack.
        if alone.ran == made.ran and made.ran not in ("native", "faithful"):
            for count in _differences(xp, value, alone.value, case.special == "overflow"):
                yield f"{count} elements of matrix {index} differ from those it has alone"
        if bound is not None:
            bound = replace(bound, left=bound.left[index], right=bound.right[index])
        one = replace(made, certificate=bound)
        yield from _matrices(backend, case, a[index], b[index], one, value)


def _differences(
    xp: ModuleType, one: Array, other: Array, overflows: bool = False
) -> Iterator[int]:
    """The number of elements that differ, if any do. overflows: whether the order of sums, which is
    BLAS's, decides between Inf and NaN, so that these are not compared.
    """
    differ = xp.zeros(one.shape, bool)
    for x, y in zip(parts(one), parts(other), strict=True):
        if overflows:
            differ |= (x != y) & (xp.isfinite(x) | xp.isfinite(y))
        else:
            differ |= (x != y) & ~(xp.isnan(x) & xp.isnan(y))
    if bool(differ.any()):
        yield int(differ.sum())


def _shape(case: Case, a: Any, b: Any) -> tuple[int, ...]:
    rows = () if case.left.vector else (case.m,)
    columns = () if case.right.vector else (case.n,)
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *rows, *columns)
