"""The rounding of floating-point slices by tensor cores, and the certificate of such products.

They add the products of a group to the sum so far in one step: each addend is cut at 2^-fraction of
the largest one's power of two, and the result is truncated to FP32, which takes 2 u = 2^-23 of it
(see `model.numerics`). With P the sum of the magnitudes of all products that the accumulator holds
by then, neither the largest addend nor the result exceeds P, for truncation makes nothing larger.
So a group of n products loses at most

    (n + 1) · 2^-fraction · P + 2 u · P.

An accumulator begins with zero and is a chain of instructions, term after term, depth of K after
depth of K. A product is in P from its own instruction to the chain's end: what these lose is what
rounding costs it. A chain covers a step of K, as the scheme is promoted; where one accumulator is
deferred, it covers all of K, and chains of the other one cover a whole segment of promotion. What
chains make enters an FP32 total, by one rounding to nearest, u, an accumulator and step: or one a
step, and one for each accumulator but the first, where a step's are combined before, and where one
is added in the end.

Where two slices of a term are together 2^-22 of the operands, or less, cutting the term's products
takes no more than these themselves. They pay for that once, and the chain only for the sum so far,
2^-fraction, and the truncation.

The largest addend is found by exponents, and subnormal elements have the smallest normal one's: so
each element counts for that at least. At the bottom of FP32's range an instruction may lose 2^-149
besides. Scaled rows reach 2^14 there, and products of FP16 numbers are multiples of 2^-48, so this
is less than the squares of u that the bounds include.
"""

import math

import numpy as np

from mixpert_py.runtime.certificates.certificate import Certificate, certify, joined, raised
from mixpert_py.runtime.model.numerics import Accumulation, depth_and_step
from mixpert_py.runtime.packed import Array, Measured
from mixpert_py.runtime.scheme import UNIT32, Scheme
from mixpert_py.runtime.splitter import FloatSlices, Splitter

NEGLIGIBLE = 22  # bits that the slices of a term are below the operands, for its cut to be its own

Rounding = dict[tuple[int, int], float]


def rounding(scheme: Scheme, k: int, how: Accumulation, *, hopper: bool) -> Rounding:
    """(left, right) of every term → bound on the rounding of its sums on tensor cores.

    Relative to the sum of the term's products by absolute value, as that of `Scheme.rounding` is.
    hopper: whether the kernels are Hopper's, which defer an accumulator where the scheme says so,
    and add each accumulator to the total by itself; the others combine a step's accumulators first.
    """
    depth, step = depth_and_step(scheme)
    sums = scheme.accumulators()
    deferred = hopper and scheme.deferred
    if deferred:
        step = scheme.promotion
    steps = math.ceil(k / step)
    together = deferred or not hopper
    additions = steps + len(sums) - 1 if together else steps * len(sums)
    bounds = {}
    for index, (_, runs) in enumerate(sums):
        terms = [(run.left + i, run.right - i) for run in runs for i in range(run.length)]
        along = k if deferred and index == 0 else min(k, step)
        costs = [_instruction(how, depth, k, _is_negligible(scheme, term)) for term in terms]
        rest = math.ceil(along / depth) * sum(costs)
        for term, cost in zip(terms, costs, strict=True):
            count = rest + additions * UNIT32
            own = 1.0 if _is_negligible(scheme, term) else 0.0
            bounds[term] = own + (count / (1 - count) if count < 1 else math.inf)
            rest -= cost
    return bounds


def _instruction(how: Accumulation, depth: int, k: int, negligible: bool) -> float:
    """The loss of an instruction, relative to everything that its accumulator then holds."""
    cut = 1 if negligible else min(how.group, k) + 1
    truncations = 2 if how.addend == "after" else 1
    group = math.ldexp(cut, -how.fraction) + truncations * 2 * UNIT32
    return math.ceil(depth / how.group) * group


def _is_negligible(scheme: Scheme, term: tuple[int, int]) -> bool:
    return scheme.element.bits * sum(term) >= NEGLIGIBLE


def certify_on_cores(
    scheme: Scheme,
    k: int,
    packed: tuple[Measured, Measured],
    units: tuple[Array, Array],
    dtype: np.dtype[np.floating],
    bounds: Rounding,
) -> Certificate:
    """The bound as `certify` states it, with sums that tensor cores round by `bounds`.

    packed: A and B as measured. units: of their rows and columns, powers of two.
    """
    left, right = packed
    bound = certify(scheme, k, left, right, dtype, dict.fromkeys(bounds, 0.0))
    rows = _counted(left, scheme.left, k, units[0])
    columns = _counted(right, scheme.right, k, units[1])
    weights = np.zeros((scheme.left.count, scheme.right.count))
    for term, weight in bounds.items():
        weights[term] = weight
    none = np.zeros(rows.shape[1]), np.zeros(columns.shape[1])
    right_factors = raised(weights @ columns, columns.max(axis=0, initial=0))
    sums = Certificate(raised(rows, rows).T, right_factors, 0.0, *none)
    return joined(bound, np.arange(rows.shape[1]), np.arange(columns.shape[1]), sums)


def _counted(measured: Measured, splitter: Splitter, k: int, units: Array) -> Array:
    """(count, rows): norms of slices whose elements count for the smallest normal one at least."""
    assert isinstance(splitter, FloatSlices)
    norms: Array = measured.slices + np.outer(splitter.normals, units) * k**0.5
    return norms
