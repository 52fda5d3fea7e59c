"""A random pair's product held, element by element, against the bound that `faithful` states."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from types import ModuleType
from typing import NamedTuple

import numpy as np

from mixpert_py.bench.arrays import Array, parts, wide
from mixpert_py.bench.contract import allowed
from mixpert_py.bench.judgement import UNIT
from mixpert_py.runtime.gpu import guard
from mixpert_py.runtime.request import result_shape
from mixpert_py.runtime.scheme import UNIT64
from tests.soak.random_products import backend as product_backend
from tests.soak.random_products import pair as pairs
from tests.soak.random_products.backend import Backend
from tests.soak.random_products.examine import Margin, Outcome, failed
from tests.soak.random_products.pair import Pair

# |A||B| up to which elements are held to the bound: none beyond float32's range, whatever float64
# has rounded.
MOST = pairs.MOST * (1 - 2.0**-40)
NOT_HELD = -1.0


def examine_seed(backend: str, seed: int, largest: int) -> Outcome:
    """The pair of a seed, in whatever process this is."""
    return examine(_backend(backend), pairs.draw(seed, largest))


_backend = cache(product_backend.backend)


def examine(backend: Backend, pair: Pair) -> Outcome:
    """Make a pair's product by `faithful` and hold it against the contract."""
    try:
        with np.errstate(all="ignore"):
            return _examined(backend, pair)
    except Exception as error:  # whatever it is, the seed that brings it about is wanted
        return failed(error)


@contextmanager
def all_guarded() -> Iterator[None]:
    """Prepare products of any size, in this process, as large ones are: see `guard`."""
    before, guard.LEAST = guard.LEAST, 1
    try:
        yield
    finally:
        guard.LEAST = before


def _examined(backend: Backend, pair: Pair) -> Outcome:
    a, b = pairs.operands(pair, backend.xp)
    is_guarded = pair.guarded and backend.name == "cuda"
    with all_guarded() if is_guarded else nullcontext():
        value = backend.value(a, b, "faithful", pair.way)
    ran = _kind(pair, is_guarded)
    shape, dtype = result_shape(a, b), np.result_type(a.dtype, b.dtype)
    if value.shape != shape or value.dtype != dtype:
        failure = f"the result is {value.dtype} {value.shape}, to be {dtype} {shape}"
        return Outcome(ran, [failure])
    elements, largest, failures = 0, 0.0, []
    for sums in _real_sums(backend.xp, a, b, value):
        ratios = _ratios(backend.xp, sums)
        found = [ratios.max(), (ratios != NOT_HELD).sum(dtype=np.float64)]
        most, held = backend.xp.stack(found).tolist()  # one wait for the device
        elements, largest = elements + int(held), max(largest, most)
        if most > 1:
            failures.append(_worst(sums, ratios))
    return Outcome(ran, failures, Margin(" by ".join(pair.families), elements, largest))


def _kind(pair: Pair, is_guarded: bool) -> str:
    """Which way a product took."""
    words = {
        "guarded": is_guarded,
        "complex": pair.is_complex,
        "a stack": pair.is_stack,
        pair.way: bool(pair.way),
    }
    return ", ".join(("faithful", *(word for word, holds in words.items() if holds)))


class _Sums(NamedTuple):
    """A real array of sums of products: value (…, m, n) is to be a @ b, a and b in float64.

    k: terms of each of so many `products`, which were rounded by themselves before they were added;
    a and b hold the terms of all.
    """

    name: str
    value: Array
    a: Array
    b: Array
    k: int
    products: int = 1


def _real_sums(xp: ModuleType, a: Array, b: Array, value: Array) -> Iterator[_Sums]:
    """The product itself, or its real and its imaginary part."""
    k = a.shape[-1]
    left, right = (tuple(map(wide, parts(x))) for x in (a, b))
    if len(left) == len(right) == 1:
        yield _Sums("", value, left[0], right[0], k)
    elif len(left) == len(right):
        (ar, ai), (br, bi) = left, right
        for name, part, x, y in (
            ("real part", value.real, (ar, -ai), (br, bi)),
            ("imaginary part", value.imag, (ar, ai), (bi, br)),
        ):
            together = xp.concatenate(x, axis=-1), xp.concatenate(y, axis=-2)
            yield _Sums(name, part, *together, k, 2)
    else:
        pairs_of_parts = [(x, y) for x in left for y in right]
        names = "real part", "imaginary part"
        for name, part, (x, y) in zip(names, parts(value), pairs_of_parts, strict=True):
            yield _Sums(name, part, x, y, k)


def _ratios(xp: ModuleType, sums: _Sums) -> Array:
    """|E| over what is allowed, ∞ where it is not finite; NOT_HELD where |A||B| overflows.

    Float64 holds products of two float32 numbers exactly, and all of their range. Its sums of n
    terms are off by n · 2^-53 · |A||B| at most, those of |A||B| too. Twice that is counted to |E|:
    no ratio here is less than the exact one, but for the division's own last places, and none is
    more by over 2^-27.

    Each part of a product of two complex operands is RN(x̂ ± ŷ), x̂ and ŷ within the bounds βx and
    βy of real products. RN is off by u · |x̂ ± ŷ| at most, by nothing where that is subnormal, and
    |x̂ ± ŷ| ≤ |C| + βx + βy. So |E| ≤ (1 + u) · (βx + βy) + u · |C|.
    """
    exact, absolute = sums.a @ sums.b, abs(sums.a) @ abs(sums.b)
    limit = allowed(sums.k, absolute)
    if sums.products == 2:
        # βx + βy: `absolute` is of both, what underflows is allowed to each.
        both = limit + allowed(sums.k, 0.0)
        limit = (1 + UNIT) * both + UNIT * abs(exact)
    own = 2 * sums.products * sums.k * UNIT64 * absolute
    ratios = (abs(wide(sums.value) - exact) + own) / limit
    ratios = xp.where(xp.isnan(ratios), np.inf, ratios)
    return xp.where(absolute <= MOST, ratios, NOT_HELD)


def _worst(sums: _Sums, ratios: Array) -> str:
    """The element that is furthest beyond its bound, and how many are."""
    count, flat = int((ratios > 1).sum()), int(ratios.argmax())
    place = tuple(int(i) for i in np.unravel_index(flat, ratios.shape))
    made, exact = float(sums.value[place]), float((sums.a @ sums.b)[place])
    of = f"{sums.name}: " if sums.name else ""
    return (
        f"{of}{count} of {ratios.size} elements beyond the bound, {list(place)} is {made!r}, to be "
        f"{exact!r}: {float(ratios[place]):.3g} times what is allowed"
    )
