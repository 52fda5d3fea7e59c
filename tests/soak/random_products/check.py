"""Whether a product holds what its scheme states: against FP64, element by element."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from operator import mul
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.bench.arrays import Array, parts, wide
from mixpert_py.bench.contract import allowed
from mixpert_py.runtime.certificates.certificate import MEASURING, Certificate
from mixpert_py.runtime.scheme import UNIT32, UNIT64
from mixpert_py.runtime.splitter import Residues
from tests.soak.random_products.slices import Slices

SLACK = 1 + 2.0**-30  # of norms that are recomputed here in float64
UNSEEN = 2.0**-75  # of a row: its squares underflow where norms are measured in single precision
ELEMENTS = 4  # of a product, that are compared in exact arithmetic
SMALL, LARGE = 2.0**-960, 2.0**1000  # beyond, float64 may not hold single slices of a row
Failures = list[str]


def by_formula(products: list[list[Array]]) -> tuple[Array, ...]:
    """The parts of a product from the products of its operands' parts, A's by B's."""
    if len(products) == len(products[0]) == 2:
        (rr, ri), (ir, ii) = products
        return rr - ii, ri + ir
    return tuple(one for row in products for one in row)


class Checked:
    """Two matrices, a (m, k) and b (k, n), and their product in float64, NaN and Inf apart.

    Elements whose row of A or column of B is not finite are compared with the native product in
    float64; the others with the product of everything finite. dtype: of the product that is
    checked; where it is complex, float64 is complex128, and errors are moduli.
    """

    def __init__(self, xp: ModuleType, a: Array, b: Array, dtype: np.dtype[Any]) -> None:
        self.xp, self.dtype, self.k = xp, dtype, a.shape[1]
        self.unit = UNIT32 if np.finfo(dtype).bits == 32 else UNIT64
        # A part of a complex element is a sum of 2 k products, and the modulus at most √2 parts.
        self.times = 3 if dtype.kind == "c" else 1
        self.given = wide(a), wide(b)
        keep = [xp.isfinite(x) for x in self.given]
        self.a, self.b = (xp.where(mask, x, 0.0) for mask, x in zip(keep, self.given, strict=True))
        self.rows, self.columns = keep[0].all(axis=1), keep[1].all(axis=0)
        if 0 in (*a.shape, *b.shape):
            self.exact = self.absolute = xp.zeros((a.shape[0], b.shape[1]))
        else:
            self.exact, self.absolute = self.a @ self.b, abs(self.a) @ abs(self.b)
        # What the product in float64 may itself be off.
        self.own = self.times * self.k * UNIT64 * self.absolute
        self.own[xp.isnan(self.own)] = np.inf  # 0 times a modulus that overflows
        # Elsewhere a sum on the way may overflow, as it may in the native product.
        self.most = float(np.finfo(dtype).max) * (1 - (self.k + 1) * self.unit) / self.times
        self.held = self.absolute <= self.most

    @property
    def finite(self) -> Array:
        """Elements that no NaN or Inf of an operand reaches."""
        return self.rows[:, None] & self.columns

    def special_values(self, value: Array, native: bool) -> Failures:
        """NaN and Inf must be exactly where, and what, they are natively, where nothing else may
        overflow on the way.

        What a complex element holds differs between BLAS libraries: there it must be what the
        formula of the parts makes, unless the product was `native`.
        """
        (a, b), made = self.given, wide(value)
        rows, columns = (self.xp.flatnonzero(~keep) for keep in (self.rows, self.columns))
        failures = []
        for name, x, y, here in (
            ("rows", a[rows], b, made[rows]),
            ("columns", a, b[:, columns], made[:, columns]),
        ):
            if not here.size:
                continue
            wrong = self.xp.isfinite(here) != self.xp.isfinite(x @ y)
            if not native or here.dtype.kind != "c":
                products = [[p @ q for q in parts(y)] for p in parts(x)]
                for one, other in zip(parts(here), by_formula(products), strict=True):
                    wrong |= self._special(one, other)
            sizes = (sum(self.xp.nan_to_num(abs(p), posinf=0.0) for p in parts(z)) for z in (x, y))
            wrong &= next(sizes) @ next(sizes) <= self.most
            if bool(wrong.any()):
                failures.append(f"NaN and Inf: {int(wrong.sum())} elements of their {name} differ")
        return failures

    def _special(self, one: Array, other: Array) -> Array:
        """A mask of the places at which two real arrays do not hold the same NaN or Inf."""
        xp = self.xp
        finite, nan = (at(one) & at(other) for at in (xp.isfinite, xp.isnan))
        return ~(finite | nan | (one == other))

    def certified(self, value: Array, certificate: Certificate) -> Failures:
        """|C − Ĉ| within the certificate's bound."""
        left, right = self.xp.asarray(certificate.left), self.xp.asarray(certificate.right)
        left = self.xp.where(self.rows[:, None], left, 0.0)
        right = self.xp.where(self.columns, right, 0.0)
        limit = replace(certificate, left=left, right=right).bound()
        return self._within("certificate", value, limit)

    def contracted(self, value: Array) -> Failures:
        """Hold a real product by `faithful` to (12 + k) · u · |A||B| + k · the smallest number."""
        limit = allowed(self.k, self.absolute, self._smallest)
        return self._within("contract", value, limit)

    def by_residues(self, value: Array, splitter: Residues, rng: random.Random) -> Failures:
        """The bound of `schemes.residues` for a few elements, in exact arithmetic."""
        failures, smallest = [], Fraction(self._smallest)
        for _ in range(ELEMENTS):
            i, j = (rng.randrange(length) for length in value.shape)
            made = float(value[i, j])
            if not (bool(self.finite[i, j] & self.held[i, j]) and math.isfinite(made)):
                continue
            row, column = (
                [Fraction(x) for x in line.tolist()] for line in (self.a[i], self.b[:, j])
            )
            exact = sum(map(mul, row, column), Fraction())
            # Squared, as norms are no fractions.
            norms = sum(x * x for x in row) * sum(x * x for x in column)
            entries = Fraction(2.2 * 2.0**-splitter.bits) ** 2 * self.k * norms
            rounding = Fraction(self.unit * (1 + 2.0**-20)) * abs(Fraction(made))
            beyond = abs(Fraction(made) - exact) - rounding - (self.k + 2) * smallest
            if beyond > 0 and beyond * beyond > entries:
                failures.append(f"residues: [{i}, {j}] is {made!r}, to be {float(exact)!r}")
        return failures

    def chained(self, value: Array) -> Failures:
        """The bound of any native product: (k + 1) · u · |A||B|, u the result's rounding."""
        limit = self.times * (self.k + 1) * self.unit * self.absolute * (1 + 2.0**-10)
        return self._within("native", value, limit + self.times * self.k * self._smallest)

    def executed(
        self,
        value: Array,
        rounding: dict[tuple[int, int], float],
        left: Slices,
        right: Slices,
    ) -> Failures:
        """|Ĉ − Σ A_p B_q over the scheme's terms| ≤ Σ ρ |A_p| |B_q|: the engine by itself.

        rounding: ρ by term. Where nothing left the slices, so nothing was added to what the terms
        make. Tensor cores do not normalize subnormal elements, so these count as the smallest
        normal one.
        """
        terms = list(rounding)
        rows = self.xp.concatenate([left.values[p] for p, _ in terms], axis=1)
        columns = self.xp.concatenate([right.values[q] for _, q in terms], axis=1)
        weights = self.xp.asarray([rounding[term] for term in terms]).repeat(self.k)
        made = rows @ columns.T
        # The last: what the sums here, in float64, may themselves be off.
        weights = weights * (1 + 2.0**-20) + len(terms) * self.k * UNIT64
        rows, columns = (
            self.xp.concatenate(
                [self.xp.maximum(abs(x.values[p]), x.least[p][:, None]) for p in order], axis=1
            )
            for x, order in zip((left, right), zip(*terms, strict=True), strict=True)
        )
        limit = rows * weights @ columns.T
        floor = (self.k + 2 + len(terms) * self.k) * self._smallest  # theirs, and those of `made`
        excess = abs(wide(value) - made) - limit - floor
        # What overflows so is multiplied natively.
        whole = (left.whole & self._sizable(self.a))[:, None] & right.whole
        whole &= self._sizable(self.b.T) & (abs(rows) @ abs(columns).T <= np.finfo(self.dtype).max)
        return self._failures("terms", value, made, excess, whole)

    def measured(self, left: Slices, right: Slices) -> Failures:
        """The norms that packing measured, against those of the slices themselves."""
        failures = []
        sides = (("A", left, self.a), ("B", right, self.b.T))
        for name, slices, exact in sides:
            residual = exact - slices.values.sum(axis=0)
            pairs = (
                ("norm", self._norms(exact), slices.norm),
                ("residual", self._norms(residual), slices.residual),
                *(
                    (f"slice {p}", self._norms(part), slices.norms[p])
                    for p, part in enumerate(slices.values)
                ),
            )
            for what, found, stated in pairs:
                most = self.xp.asarray(stated) * MEASURING * SLACK + UNSEEN * slices.norm
                short = ~(found <= most) & slices.whole & self._sizable(exact)
                if bool(short.any()):
                    failures.append(
                        f"{what} of {name} is no upper bound in {int(short.sum())} rows"
                    )
        return failures

    @property
    def _smallest(self) -> float:
        return float(np.finfo(self.dtype).smallest_subnormal)

    def _sizable(self, x: Array) -> Array:
        """Rows of which no slice underflows or overflows here."""
        norms = self._norms(x)
        in_range: Array = (norms == 0) | (norms >= SMALL) & (norms <= LARGE)
        return in_range

    def _norms(self, x: Array) -> Array:
        """2-norm of every row, also where squares leave float64's range."""
        if not x.size:
            return self.xp.zeros(len(x))
        x = abs(x)
        peak = x.max(axis=1)
        peak += peak == 0
        return peak * ((x / peak[:, None]) ** 2).sum(axis=1) ** 0.5

    def _within(self, what: str, value: Array, limit: Array) -> Failures:
        excess = abs(wide(value) - self.exact) - limit - self.own
        excess[self.xp.isinf(limit)] = -np.inf  # also where the difference is Inf: Inf - Inf
        return self._failures(what, value, self.exact, excess, self.finite)

    def _failures(
        self, what: str, value: Array, exact: Array, excess: Array, mask: Array
    ) -> Failures:
        own = wide(value)
        judged = self.finite & self.xp.isfinite(exact) & (self.held | self.xp.isfinite(own))
        bad = ~(excess <= 0) & mask & judged
        if not bool(bad.any()):
            return []
        place = int(self.xp.where(bad, abs(excess), -1.0).argmax())
        i, j = divmod(place, exact.shape[1])
        made, expected = own[i, j].item(), exact[i, j].item()
        return [
            f"{what}: {int(bad.sum())} elements beyond the bound, [{i}, {j}] is {made!r}, "
            f"to be {expected!r}, {float(excess[i, j]):.2e} too far"
        ]
