"""A random product for the contract of `faithful`: A of one family, B of another, both scaled."""

import math
import random
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from mixpert_py.bench.arrays import Array, of_parts
from tests.soak.random_products.case import ALL, BESIDE_REAL, UNITS, Side, Way, laid_out

NAMES = tuple(ALL)
LARGEST = 512
GUARDED = 0.5  # of products
LONG = 0.25  # of these: K drawn anew, LONG_K at least
LONG_K = 128  # from which more powers of two may lie between entries of a row that stays
LAYOUTS = ("C", "F", "strided", "negative", "offset")
UNIFORM = 0.25  # of lengths; the others are uniform in their logarithm
PACKED = 1 / 8
COMPLEX = 1 / 16
STACKED = 1 / 16
LENGTHS_OF_STACKS = (2, 3, 4)
# Which operands are complex, or stacks, where any is.
SIDES = ((True, True), (True, False), (False, True))
MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Scales:
    """The dimensions scaled by powers of ten: rows of A, columns of B, K (A·D and D⁻¹·B)."""

    rows: bool
    columns: bool
    inside: bool

    def __str__(self) -> str:
        found = {"rows": self.rows, "columns": self.columns, "K": self.inside}
        names = [name for name, is_scaled in found.items() if is_scaled]
        return f"scaled {', '.join(names)}" if names else ""


@dataclass(frozen=True, slots=True)
class Pair:
    """One product (m, k) by (k, n), A of the first family and B of the second.

    guarded: on a GPU it is prepared for a wider scheme besides, as large products are. way: an
    operand is packed beforehand.
    """

    seed: int
    families: tuple[str, str]
    m: int
    k: int
    n: int
    scales: Scales
    left: Side
    right: Side
    way: Way
    guarded: bool

    @property
    def is_complex(self) -> bool:
        """Whether any operand is."""
        return 2 in (self.left.parts, self.right.parts)

    @property
    def is_stack(self) -> bool:
        """Whether any operand is one."""
        return self.left.stack != () or self.right.stack != ()

    def __str__(self) -> str:
        guarded = "guarded" if self.guarded else ""
        words = (str(self.scales), f"{self.left} by {self.right}", self.way, guarded)
        rest = "".join(f", {word}" for word in words if word)
        return f"{self.seed}: {' by '.join(self.families)}, {self.m} × {self.k} × {self.n}{rest}"


def draw(seed: int, largest: int = LARGEST) -> Pair:
    """The product of a seed, no dimension above `largest` or below 1."""
    rng = random.Random(seed)
    guarded = rng.random() < GUARDED
    m, k, n = (_length(rng, largest) for _ in range(3))
    if guarded and largest >= LONG_K and rng.random() < LONG:
        k = rng.randint(LONG_K, largest)
    is_complex = rng.choice(SIDES) if rng.random() < COMPLEX else (False, False)
    is_stack = rng.choice(SIDES) if rng.random() < STACKED else (False, False)
    stack = (rng.choice(LENGTHS_OF_STACKS),)
    left, right = (
        Side(
            "complex64" if has_parts else "float32",
            rng.choice(LAYOUTS),
            stack if is_one else (),
            False,
        )
        for has_parts, is_one in zip(is_complex, is_stack, strict=True)
    )
    ways: tuple[Way, ...] = ("left packed", "right packed")
    return Pair(
        seed,
        (rng.choice(NAMES), rng.choice(NAMES)),
        m,
        k,
        n,
        Scales(*(rng.random() < 0.5 for _ in range(3))),
        left,
        right,
        rng.choice(ways) if rng.random() < PACKED else "",
        guarded,
    )


def _length(rng: random.Random, largest: int) -> int:
    if rng.random() < UNIFORM:
        return rng.randint(1, largest)
    return min(largest, int(math.exp(rng.uniform(0, math.log(largest + 1)))))


def operands(pair: Pair, xp: ModuleType) -> tuple[Array, Array]:
    """a (…, m, k) and b (…, k, n) of NumPy or CuPy, all of it finite.

    Product by NumPy on either: small arrays are made faster there than a GPU is told to.
    """
    rng = np.random.default_rng(pair.seed)
    scale = np.ones(pair.k)
    if pair.scales.inside:
        scale = _powers(rng, pair.k)
    a, b = (
        laid_out(xp.asarray(_operand(pair, rng, which, scale)), side.layout, xp)
        for which, side in enumerate((pair.left, pair.right))
    )
    return a, b


def _operand(pair: Pair, rng: np.random.Generator, which: int, scale: Array) -> Array:
    """A where `which` is 0, B where it is 1; scale: of K."""
    side = pair.right if which else pair.left
    count = math.prod(side.stack)
    sizes = (1.0, rng.choice(BESIDE_REAL))[: side.parts]
    made = []
    for size in sizes:
        matrices = [size * _matrix(pair, rng, which, scale) for _ in range(count)]
        # What is scaled out of range is the largest number: the contract is of finite operands.
        part = np.stack(matrices).clip(-MOST, MOST).astype(np.float32)
        made.append(part.reshape(*side.stack, *part.shape[1:]))
    return of_parts(*made)


def _matrix(pair: Pair, rng: np.random.Generator, which: int, scale: Array) -> Array:
    """One part of one matrix, float64."""
    m, k, n = pair.m, pair.k, pair.n
    x = ALL[pair.families[which]](rng, m, k, n)[which]
    if which:
        x = x / scale[:, None]
        return x * _powers(rng, n) if pair.scales.columns else x
    x = x * scale
    return x * _powers(rng, m)[:, None] if pair.scales.rows else x


def _powers(rng: np.random.Generator, count: int) -> Array:
    return 10.0 ** rng.uniform(-UNITS, UNITS, count)
