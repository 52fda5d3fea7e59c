"""A random product: all that is chosen about it, from a seed, and its operands."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from mixpert_py.bench.arrays import Array, Numbers, narrow, of_parts
from mixpert_py.bench.families import EVERYDAY, FAMILIES
from mixpert_py.runtime.dtypes import PRECISION
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES
from mixpert_py.runtime.splitter import Digits

Special = Literal["", "not finite", "overflow", "subnormal", "mixed units"]
Way = Literal["", "left packed", "right packed", "out"]

ALL = {**FAMILIES, **EVERYDAY}
# How often, of a hundred.
SPECIALS: dict[Special, int] = {
    "": 60,
    "not finite": 15,
    "overflow": 9,
    "subnormal": 8,
    "mixed units": 8,
}
# Powers of two that products of normal numbers are scaled to: about the ends of their type's range.
ENDS = {
    "overflow": {"float32": (112, 132), "float64": (1008, 1030)},
    "subnormal": {"float32": (-156, -118), "float64": (-1080, -1015)},
}
UNITS = 8.0  # rows, columns and K are scaled by powers of ten in ± this
WAYS: tuple[Way, ...] = ("", "left packed", "right packed", "out")
TILES = (64, 96, 128, 192, 256)
STEPS = (32, 64, 128, 256)
BLOCKS = (32, 64, 100, 128, 200, 256, 300, 512, 1000, 1024, 4096)
LAYOUTS = ("C", "F", "strided", "negative", "offset", "repeated")
STACKS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    *(((3,), (3,)), ((4,), ()), ((), (5,)), ((2, 3), (3,)), ((3, 1), (1, 2)), ((1,), (6,))),
    *(((0,), (0,)), ((2, 1, 2), (2, 2))),
)
DTYPES = (
    *(("float32", "float32"), ("float64", "float64")),
    *(("float32", "float64"), ("float64", "float32")),
)
COMPLEX = {"float32": "complex64", "float64": "complex128"}
# Which operands are complex, in one product of eight any.
COMPLEX_SIDES = ((False, False), (True, True), (True, False), (False, True))
BESIDE_REAL = (1.0, 2.0**-17)  # the size of imaginary parts
LARGEST_OF_STACK = 300
NAMES = ("faithful", *(name for name, entry in SCHEMES.items() if isinstance(entry, Scheme)))


@dataclass(frozen=True, slots=True)
class Side:
    """The layout of one operand in memory; a vector has no row, or no column, of its own."""

    dtype: str
    layout: str
    stack: tuple[int, ...]
    vector: bool

    @property
    def parts(self) -> int:
        """2 of a complex operand."""
        return 1 + self.dtype.startswith("complex")

    def __str__(self) -> str:
        words = (self.dtype, self.layout, self.stack or "", "vector" * self.vector)
        return " ".join(str(word) for word in words if word)


@dataclass(frozen=True, slots=True)
class Case:
    """One product (m, k) by (k, n). special: what is put among the operands of the family; way: an
    operand is packed beforehand, or the result goes into `out`.
    """

    seed: int
    scheme: str
    block: int | None
    family: str
    m: int
    k: int
    n: int
    left: Side
    right: Side
    special: Special
    way: Way = ""

    def __str__(self) -> str:
        block = f", block {self.block}" if self.block else ""
        rest = "".join(f", {word}" for word in (self.special, self.way) if word)
        return (
            f"{self.seed}: {self.scheme}{block}, {self.m} × {self.k} × {self.n}, "
            f"{self.left} by {self.right}, {self.family}{rest}"
        )


def draw(seed: int, largest: int = 4096, kinds: int = 0) -> Case:
    """The product of a seed, no dimension above `largest`.

    kinds: of so many kinds, which seeds have in turn: scheme, block, types, layouts, and the way it
    is asked for. 0: each has its own. Nearly every new kind is a kernel to compile.
    """
    rng = random.Random(seed)
    kind = seed % kinds if kinds else seed
    which = random.Random(f"kind {kind}") if kinds else rng
    scheme = which.choice(NAMES)
    entry = SCHEMES[scheme]
    takes_block = (
        isinstance(entry, Scheme) and isinstance(entry.left, Digits) and entry.left.group == 1
    )
    block = which.choice(BLOCKS) if takes_block and which.random() < 0.5 else None
    stacks = which.choice(STACKS) if which.random() < 0.12 else ((), ())
    vectors = (False, False)
    if stacks == ((), ()) and which.random() < 0.06:
        vectors = which.choice(((True, False), (False, True)))
    limit = min(largest, LARGEST_OF_STACK) if stacks != ((), ()) else largest
    dtypes = which.choices(DTYPES, (10, 4, 1, 1))[0]
    left, right = (
        Side(
            COMPLEX[dtype] if is_complex else dtype,
            which.choice(LAYOUTS) if not vector else "C",
            stack,
            vector,
        )
        for dtype, is_complex, stack, vector in zip(
            dtypes, _complex_sides(kind), stacks, vectors, strict=True
        )
    )
    special: Special = rng.choices(tuple(SPECIALS), tuple(SPECIALS.values()))[0]
    way: Way = which.choices(WAYS, (82, 6, 6, 6))[0]
    if "packed" in way and (block is not None or True in vectors):
        way = ""  # a packed operand has its own block, and is a matrix
    return Case(
        seed,
        scheme,
        block,
        rng.choice(tuple(ALL)),
        1 if vectors[0] else _length(rng, limit, TILES),
        _length(rng, limit, STEPS),
        1 if vectors[1] else _length(rng, limit, TILES),
        left,
        right,
        special,
        way,
    )


def _complex_sides(seed: int) -> tuple[bool, bool]:
    """By random numbers of its own: all else about a seed's product does not depend on them."""
    return random.Random(f"complex {seed}").choices(COMPLEX_SIDES, (35, 3, 1, 1))[0]


def _length(rng: random.Random, largest: int, multiples: tuple[int, ...]) -> int:
    """Few are 0 or 1, most are at a multiple of a tile or one off it, as many small as large."""
    kind = rng.random()
    if kind < 0.06:
        return min(int(kind < 0.04), largest)
    span = math.log2(max(largest, 9)) - 3
    cap = min(largest, round(2 ** (3 + span * math.sqrt(rng.random()))))
    if kind < 0.3 or cap < min(multiples):
        return rng.randint(1, max(cap, 1))
    step = rng.choice([multiple for multiple in multiples if multiple <= cap])
    return min(largest, step * round(cap / step) + rng.choice((-1, 0, 1)))


def operands(case: Case, xp: ModuleType) -> tuple[Array, Array]:
    """a (…, m, k) and b (…, k, n), or vectors, of NumPy or CuPy."""
    numbers = Numbers(xp, case.seed)
    family = ALL[case.family]
    count = max(1, math.prod(case.left.stack), math.prod(case.right.stack))
    sides = case.left, case.right
    # All parts of A and of B, the imaginary ones after the real ones.
    scaled = _scaled(case, numbers)
    drawn = [
        [scaled(*family(numbers, case.m, case.k, case.n)) for _ in range(count)]
        for _ in range(max(side.parts for side in sides))
    ]
    a, b = (
        _operand(case, side, numbers, [[pair[which] for pair in pairs] for pairs in drawn])
        for which, side in enumerate(sides)
    )
    return a[..., 0, :] if case.left.vector else a, b[..., 0] if case.right.vector else b


def _scaled(case: Case, numbers: Numbers) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the function that scales the operands of a family as the product's `special` says."""
    special, rng = case.special, random.Random(f"scales {case.seed}")
    if special == "mixed units":
        rows, inside, columns = (
            10.0 ** (numbers.uniform(-UNITS, UNITS, length) * rng.randint(0, 1))
            for length in (case.m, case.k, case.n)
        )
        return lambda a, b: (a * rows[:, None] * inside, b / inside[:, None] * columns)
    if special not in ENDS:
        return lambda a, b: (a, b)
    dtype = max(PRECISION[side.dtype] for side in (case.left, case.right))
    power = rng.randint(*ENDS[special][dtype])
    of_left = power // 2 if rng.random() < 0.5 else rng.choice((0, power))
    xp = numbers.xp
    return lambda a, b: (xp.ldexp(a, of_left), xp.ldexp(b, power - of_left))


def _operand(case: Case, side: Side, numbers: Numbers, drawn: list[list[Array]]) -> Array:
    """drawn: the matrices of its real part, and of the imaginary one where any operand has one."""
    sizes = [1.0] if side.parts == 1 else [1.0, numbers.choice(BESIDE_REAL, 1)]
    made = [
        _part(case, side, numbers, [x * size for x in matrices])
        for matrices, size in zip(drawn, sizes, strict=False)
    ]
    return laid_out(of_parts(*made), side.layout, numbers.xp)


def _part(case: Case, side: Side, numbers: Numbers, matrices: list[Array]) -> Array:
    xp, dtype = numbers.xp, PRECISION[side.dtype]
    x = xp.stack(matrices)[: math.prod(side.stack)]
    if case.special == "not finite" and x.size:
        x.reshape(-1)[numbers.integers(0, x.size, 3)] = xp.asarray([math.nan, math.inf, -math.inf])
    return narrow(x.reshape(*side.stack, *matrices[0].shape), np.dtype(dtype))


def laid_out(x: Array, layout: str, xp: ModuleType) -> Array:
    """The same matrices, or one row over and over for "repeated", in another place in memory."""
    rows, columns = x.shape[-2:]
    if layout == "F":
        return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if layout == "strided":
        wide = xp.zeros((*x.shape[:-2], 2 * rows, 3 * columns), x.dtype)
        wide[..., ::2, ::3] = x
        return wide[..., ::2, ::3]
    if layout == "negative":
        return x[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    if layout == "offset":  # not where a vector load could begin
        wide = xp.zeros((*x.shape[:-2], rows + 1, columns + 3), x.dtype)
        wide[..., 1:, 3:] = x
        return wide[..., 1:, 3:]
    if layout == "repeated" and rows:
        return xp.broadcast_to(x[..., :1, :], x.shape)
    return x
