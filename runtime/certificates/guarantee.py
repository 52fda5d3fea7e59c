"""The componentwise guarantee: a scheme that provably keeps grade A on these operands.

|C − Ĉ|ij ≤ k · 2^-24 · (|A| |B|)ij in every finite element, up to (k + 2) times the smallest
subnormal of the result: the bound of an FP32 dot product in any order of its sums.

`faithful` keeps it on all float32 operands of K ≥ 512, so nothing is measured there. For a shorter
K its bound is up to twelve roundings wider, and int8 schemes may be better: of float64 operands,
of short K, and where an int8 scheme was asked for, the spread of the operands decides.

Let L be the largest magnitude of a row of A (column of B), and u' the rounding of the terms' sums
(`Scheme.rounding`). By the digits' construction, with `Bounds` relative to L: an entry loses at
most δ, the slices below the first amount to η / 2, slice p is at most d_p, and zeros are exact. So

    |C − Ĉ|ij ≤ Σ_k |r||b| + (|a| + |r|)|s| + Σ_dropped |A_p||B_q| + u' (Σ_p |A_p|)(Σ_q |B_q|)

with |r| ≤ δ L_i, |s| ≤ δ L_j, |A_p| ≤ d_p L_i, Σ_p |A_p| ≤ |a| + η L_i. Two ways lead from there to
(|A||B|)ij, and the better one counts:

*dense*: if a share f of a row lies below 2^-t L_i, and a share f' of the column below 2^-t' L_j, at
least (1 − f − f') k products exceed 2^-(t + t') L_i L_j: (|A||B|)ij ≥ λ k L_i L_j. With ν the mean
magnitude over L, the sum is at most (|A||B|)ij times

    (δ ν_B + δ (ν_A + δ) + Σ_dropped d_p d_q) / λ + u' (1 + η (ν_A + ν_B + η) / λ)

*even*: if no entry but zero is below L / σ, the same holds term by term, and the factor is

    δ σ_A + (1 + δ σ_A) δ σ_B + Σ_dropped d_p d_q σ_A σ_B + u' (1 + η σ_A)(1 + η σ_B).
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mixpert_py.runtime.dtypes import name_of
from mixpert_py.runtime.scheme import UNIT32, UNIT64, Scheme
from mixpert_py.runtime.schemes import residues
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from mixpert_py.runtime.schemes.int8 import INT8X6, INT8X8, INT8X10
from mixpert_py.runtime.splitter import Digits, FloatSlices, Residues

LADDER = (INT8X6, INT8X8, INT8X10)
BY_RESIDUES = residues.SCHEMES[::-1]  # the fewest moduli first
# Of K, from which `faithful` keeps the guarantee by itself: see `fp16x3`. Of its other ways, rows
# made in FP32 keep it at any K, and six BF16 products from 134 on: see `wide_range`.
FAITHFUL_LEAST_K = 512
DEEPEST = 9  # halvings of a row's largest entry below which entries are counted
MEASURING = 1 + 2.0**-10  # what is measured is itself rounded
SMALLEST = {"float32": 2.0**-100, "float64": 2.0**-990}  # of L, for L · 2^-9 to be exact


@dataclass(frozen=True, slots=True)
class Spread:
    """How the magnitudes in rows of A, or columns of B, compare with their row's largest.

    The worst of all rows, each as a share of K: below[t]: entries less than 2^-t of the largest;
    mean: the mean magnitude over the largest. ratio: the largest over the smallest but zero.
    """

    below: tuple[float, ...]
    mean: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """What digits keep of an entry, relative to the largest of its row: see above."""

    loss: float
    lower: float
    slices: tuple[float, ...]

    @classmethod
    def of(cls, splitter: Digits | Residues, k: int) -> "Bounds":
        """A unit is at most 1.0127 · 2^-shift of the largest where fitted, else 2.01 · 2^-shift;
        an entry loses 1.25 units, else half of one; a digit is at most 128.

        Fitted digits are not where two of them hold a block. It loses nothing then, and drops no
        more: of two operands A_1 · B_2 may be twice as large, but A_2 · B_1 and A_2 · B_2 vanish.
        Residues have a unit of at most 2.2 · 2^-L of the row's norm, and √k times that of the
        largest; as rounded to integers, the operand is one slice.
        """
        if isinstance(splitter, Residues):
            loss = 1.1 * k**0.5 * 2.0**-splitter.bits
            return cls(loss, loss, (1.0,))
        digits = splitter
        unit = 1.0127 if digits.fitted else 2.01
        loss = unit * (1.25 if digits.fitted else 0.5) * 2.0**-digits.shift
        slices = tuple(unit * 2.0 ** (-8 * p) for p in range(digits.count))
        below = max(sum(slices[1:]), 2.01 * 2.0**-8)
        return cls(loss, 2 * below + loss, slices)


def componentwise(xp: ModuleType, a: Any, b: Any, name: str) -> str | None:
    """The scheme that keeps the guarantee: `name`, else one that takes its place; None: none does.

    On float32 operands of a long K `faithful` takes the place of any other, elsewhere the first of
    LADDER from `name` on, or of BY_RESIDUES where it is one of these. xp: NumPy or CuPy. a:
    (…, m, k), b: (…, k, n), float32 or float64. Where one of these is judged, A and B are read
    eleven times, and the device is waited for.
    """
    k = a.shape[-1]
    wide = "float64" in (name_of(a.dtype), name_of(b.dtype))
    rungs = BY_RESIDUES if any(scheme.name == name for scheme in BY_RESIDUES) else LADDER
    names = [scheme.name for scheme in rungs]
    judged = rungs[names.index(name) :] if name in names else rungs
    otherwise = None
    if not wide and k >= FAITHFUL_LEAST_K:
        if name not in names:
            return name if name == FP16X3.name else "faithful"
        judged, otherwise = judged[:1], "faithful"
    left, right = spread(xp, a, -1), spread(xp, b, -2)
    for scheme in judged:
        if factor(scheme, k, left, right, UNIT64 if wide else UNIT32) <= k * UNIT32:
            return scheme.name
    return otherwise


def moduli_needed(k: int, left: Spread, right: Spread) -> int | None:
    """The fewest moduli whose product of float64 operands of these spreads keeps, in every finite
    element, the bound of an FP64 dot product in any order of its sums; None where none does:

        |C − Ĉ|ij ≤ k · 2^-53 · (|A| |B|)ij, up to (k + 2) times the smallest subnormal.
    """
    for scheme in BY_RESIDUES:
        if factor(scheme, k, left, right, UNIT64) <= k * UNIT64:
            return scheme.products
    return None


def spread(xp: ModuleType, x: Any, axis: int) -> Spread:
    """x float32 or float64, rows along `axis`. Rows of zeros, and with NaN or Inf, do not count."""
    k = x.shape[axis]
    if x.size == 0:
        return Spread((0.0,) * (DEEPEST + 1), 0.0, 1.0)
    size = xp.abs(x)
    largest = size.max(axis=axis, keepdims=True)
    counts = (largest > 0) & xp.isfinite(largest)
    if bool((counts & (largest < SMALLEST[name_of(x.dtype)])).any()):
        return Spread((1.0,) * (DEEPEST + 1), 1.0, float("inf"))
    largest = xp.where(counts, largest, 1)
    below = [
        float(xp.where(counts, (size < largest * 2.0**-t).sum(axis=axis, keepdims=True), 0).max())
        for t in range(DEEPEST + 1)
    ]
    total = xp.where(counts, size.sum(axis=axis, keepdims=True, dtype="float64") / largest, 0)
    smallest = xp.where(size > 0, size, largest).min(axis=axis, keepdims=True)
    ratio = xp.where(counts, largest.astype("float64") / smallest, 1)
    return Spread(tuple(count / k for count in below), float(total.max()) / k, float(ratio.max()))


def factor(scheme: Scheme, k: int, left: Spread, right: Spread, unit: float) -> float:
    """A bound on |C − Ĉ|ij / (|A||B|)ij for operands of these spreads. unit: of C's precision."""
    assert not isinstance(scheme.left, FloatSlices)
    one = Bounds.of(scheme.left, k)  # B's digits are made like A's
    made = scheme.rounding(k, unit)
    rounding = max(made.values())
    dropped = sum(
        p * q
        for i, p in enumerate(one.slices)
        for j, q in enumerate(one.slices)
        if (i, j) not in made
    )
    loss, lower = one.loss, one.lower
    products = max(
        2.0 ** -(s + t) * (1 - f - g)
        for s, f in enumerate(left.below)
        for t, g in enumerate(right.below)
    )
    lost_a, lost_b = loss * left.ratio, loss * right.ratio
    even = lost_a + (1 + lost_a) * lost_b + dropped * left.ratio * right.ratio
    even += rounding * (1 + lower * left.ratio) * (1 + lower * right.ratio)
    if products <= 0:
        return even * MEASURING
    means = left.mean + right.mean
    dense = (loss * (means + loss) + dropped) / products
    dense += rounding * (1 + lower * (means + lower) / products)
    return min(even, dense) * MEASURING
