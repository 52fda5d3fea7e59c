"""One table of what packing kernels are given: Numba's simulator and a GPU both go through it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.packing.launch import PackingConfig, PackingTask, Which
from mixpert_py.runtime.packing.operand import Operand
from mixpert_py.runtime.packing.readers import (
    Reader,
    cluster_config,
    panel_config,
    row_config,
    strip_config,
)
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.floats import WIDER
from mixpert_py.runtime.splitter import BF16, FP16, TF32, Digits, FloatSlices
from tests.every_check import EVERY_CHECK
from tests.runtime.emulations import EMULATIONS, with_block
from tests.runtime.families import FAMILIES, Array

KERNELS: dict[Reader, Callable[..., PackingConfig]] = {
    "strips": strip_config,
    "rows": row_config,
    "panels": panel_config,
    "clusters": cluster_config,
}
WHOLE: tuple[Reader, ...] = ("rows", "panels", "clusters")
ANY = ("CC", "FF", "CF", "FC")
ORDERS = {"strips": ANY, "rows": ("CC",), "panels": ("FF",), "clusters": ("FF",)}
DEFAULT: dict[Reader, tuple[str, ...]] = {
    "strips": ("int8x6", "fp16x3", "int8x10", "mixpert-IV", "tf32x3"),
    **dict.fromkeys(WHOLE, ("int8x6", "fp16x3", "tf32x3")),
}


class Case(NamedTuple):
    """Operands that a kernel packs under a scheme. order: of A's rows, and of B's columns."""

    kernel: Reader
    operands: str
    scheme: str
    dtype: str = "float32"
    order: str = "CC"
    block: int | None = None

    @property
    def made_of(self) -> Scheme:
        return with_block(SCHEMES[self.scheme], self.block)

    def pair(self) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            a, b = OPERANDS[self.operands](np.dtype(self.dtype).type)
        return np.asarray(a, order=self.order[0]), np.asarray(b, order=self.order[1]).T


def digits(count: int, fitted: bool) -> Scheme:
    splitter = Digits(count, block=None, fitted=fitted)
    return replace(EMULATIONS["int8x6"], left=splitter, right=splitter)


def floats(*parts: Any) -> Scheme:
    splitter = FloatSlices(*parts)
    fp16x3 = EMULATIONS["fp16x3"]
    return replace(fp16x3, element=splitter.element, left=splitter, right=splitter)


SLICED = [
    *product([FP16], [1, 3], ["nearest", "zero"], [11], [False, True]),
    *product([BF16, TF32], [2], ["nearest", "zero"], [11], [False, True]),
]
SCHEMES: dict[str, Scheme] = {
    **EMULATIONS,
    "wider": WIDER,
    **{f"{n} digits, {'fitted' * f or 'bare'}": digits(n, f) for n in range(1, 5) for f in (0, 1)},
    **{" ".join(map(str, (p[0].name, *p[1:]))): floats(*p) for p in SLICED},
}


def plain(family: str, m: int = 9, k: int = 70, n: int = 10) -> Callable[[type], Any]:
    def made(dtype: type) -> tuple[Array, Array]:
        a, b = FAMILIES[family](np.random.default_rng(m + k), m, k, n)
        return a.astype(dtype), b.T.astype(dtype)

    return made


def normal(rows: int, k: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, k))


CROWDED = -0.0039375  # beside a one, all second digits are −128
HALVED = 0.49 * 2.0**-20  # beside a one, just not half a last digit of a tile


def difficult(dtype: type, k: int = 70) -> tuple[Array, Array]:
    """A row of every kind: what is not finite, leaves or may, and the ends of the range."""
    info, at = np.finfo(dtype), np.arange(k)
    x = normal(50, k).astype(dtype)
    x[1, k // 2], x[2, 0], x[2, -1], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4], x[5] = 0, -0.0
    x[6] = info.smallest_subnormal * (at - 20)
    x[7] = np.where(x[7] > 0, info.max, -info.max)
    x[8] = info.smallest_subnormal
    x[9], x[10] = np.ldexp(x[9], info.maxexp - 4), np.ldexp(x[10], info.minexp - 5)
    x[11, ::2] = info.max
    x[12] = np.ldexp(x[12], at % 40 - 20)
    x[13] = np.ldexp(1 - info.epsneg, at % 60)
    x[14, :2] = info.max, info.smallest_subnormal
    x[15], x[15, k // 2] = CROWDED, 1
    x[16, k // 3], x[17, k // 4] = 1e5, 1e6
    # Integers that one digit, two or three hold just, or just not.
    tops = [1, 100, 127, 128, 255, 256, 16383, 32639, 32640, 32767, 65279, 65535]
    x[18:30] = np.rint(np.random.default_rng(5).uniform(-1, 1, (12, k)) * np.array(tops)[:, None])
    x[18:30, k // 10] = tops
    x[19:30:3, k // 8] += dtype(0.5)
    x[27:30] *= dtype(2.0**-80)
    x[30, [0, k - 5]] = 1 + 2.0**-14, 2.0**-15
    x[31] = np.ldexp(np.rint(x[31] * 100), info.minexp - info.nmant)
    # What floats round or cannot hold: ties, subnormal halves, 65504 and what is above it.
    x[32] = np.ldexp(1 + 2.0**-11 * at / 8, -20 + at // 4)
    x[33] = -x[32]
    x[34] = np.rint(x[34] * 1000) * 2.0**-27
    x[35], x[35, 1::2] = 65504, -0.0
    x[36], x[37] = x[36] * 2.0**-14, np.ldexp(x[37], np.linspace(-140, 100, k).astype(int))
    x[38, 3] = 65504 + 2.0**-7
    x[39], x[40] = np.ldexp(x[39], -110), np.ldexp(x[40], 80)
    x[41:46, 3:] = np.ldexp(x[41:46, 3:], -148 + at[3:] // 2)  # the wider scheme holds two of them
    x[41:46, 0] = 2.0**19.9, 2.0**20, 2.0**61.9, 2.0**62, 1
    # Spans of which the last one that a row of fp16x3 may have, and the next one.
    x[46:49] = 1
    x[46, 5], x[47, 5], x[48, 5] = 2.0**-28, 2.0**-29, 2.0**-30
    x[49, 7] = np.nextafter(dtype(65504), dtype(np.inf))
    return x, x[[48, 30, 3, 21, 15, 33, 14, 8, 44, 26, 47]]


def apart(dtype: type) -> tuple[Array, Array]:
    """The ends of the range, each in 16 rows of its own: such share their exponents."""
    info, x = np.finfo(dtype), normal(16 * 7, 40).astype(dtype)
    x[:16] = info.smallest_subnormal * np.rint(x[:16] * 10)
    x[16:32] = np.where(x[16:32] > 0, info.max, -info.max)
    x[32:48] = info.smallest_subnormal
    x[48:64] = np.ldexp(x[48:64], info.minexp - 5)
    x[64:80, ::2] = info.max
    x[80:96] = -0.0
    x[96:] = np.ldexp(1 - info.epsneg, np.arange(40))
    return x, x[4::16].repeat(8, axis=0)


def near_a_power(dtype: type) -> tuple[Array, Array]:
    """Largest entries of tiles around 2^e − 2^(e − 22): digits want an exponent more from there."""
    near = 2 - np.array([1, 3, 16]) * 2.0**-23
    tops = np.concatenate([np.ldexp(near, e) for e in (-149, -99, -98, 126)])
    x = np.zeros((16 * len(tops), 3), dtype)
    x[::16, 1] = tops
    x[8::16, 2] = -x[::16, 1]
    return x, x[:48]


def losing_tiles(dtype: type) -> tuple[Array, Array]:
    """Tiles (0, 0), (0, 4) and (2, 2) of A lose too much; and rows beside them are not finite."""
    x = np.full((44, 135), HALVED, dtype)
    x[3, [20, 130]] = x[39, 70] = 1
    x[16:30] = normal(14, 135)
    x[17, 60], x[17, :50] = np.nan, 1000  # counts for nothing in its tiles
    x[20, 0], x[20, 134], x[43] = np.inf, -np.inf, -np.inf
    return x, x[[3, 5, 17, 20, 21, 22, 23, 24, 39]]


def halves(dtype: type) -> tuple[Array, Array]:
    """Every float16 below the normal range is its own slice; between two it is rounded."""
    x = np.arange(1 << 10, dtype=np.uint16).view(np.float16).astype(dtype)
    rows = np.stack([x, -x, x * dtype(1 + 2.0**-11), x + dtype(2.0**-25)])
    return rows, rows[2:]


def blocks(dtype: type) -> tuple[Array, Array]:
    """Blocks of K that are zeros, or very much larger than others, and one that is ruled by one."""
    x = normal(11, 266).astype(dtype)
    x[:, 40:90] = x[2] = 0
    x[4, 100:200] *= dtype(2.0**-100)
    x[5, 150] = 2.0**100
    x[6, 135:], x[7] = 0, np.rint(x[7] * 20)
    x[8], x[8, 30], x[9, 20] = CROWDED, 1, np.nan
    x[10] = CROWDED
    x[10, ::33] = 1
    return x, x[6:]


def flat(rows: int, k: int, rest: float) -> Callable[[type], Any]:
    def made(dtype: type) -> tuple[Array, Array]:
        x = np.full((rows, k), rest, dtype)
        x[:-1, k // 2], x[1, 3] = 1, np.nan
        return x, x[::-1]

    return made


SHAPES = [(1, 1, 1), (3, 2, 5), (8, 64, 8), (7, 63, 9), (17, 65, 34), (33, 31, 1), (2, 129, 31)]
SHAPES += [(5, 256, 8), (2, 20, 1)]
LONG = [257, 513, 2049, 4097, 8192, 16384, 20001]  # of K, on a GPU alone
OPERANDS: dict[str, Callable[[type], Any]] = {
    **{name: plain(name) for name in FAMILIES},
    **{str(shape): plain("normal", *shape) for shape in SHAPES},
    **{f"difficult, {k} long": lambda dtype, k=k: difficult(dtype, k) for k in LONG},
    "two panels": plain("spread 1", 34, 140, 9),
    "difficult": difficult,
    "apart": apart,
    "near a power": near_a_power,
    "losing tiles": losing_tiles,
    "halves": halves,
    "blocks": blocks,
    "lossy": flat(3, 1200, 0.0077),  # less than half of the unit of one digit
}


def suited(kernel: Reader) -> list[str]:
    if kernel == "strips":
        return [*SCHEMES]
    return [name for name in SCHEMES if not name.startswith(("mixpert", "int8x10"))]


def every(kernel: Reader) -> list[Case]:
    """Each scheme on what is difficult, each family and shape; all pairs with EVERY_CHECK=1."""
    orders, types, defaults = ORDERS[kernel], ("float32", "float64"), DEFAULT[kernel]
    if EVERY_CHECK:
        pairs = [("difficult", name) for name in suited(kernel)]
        pairs += product([*FAMILIES, *map(str, SHAPES)], defaults)
        return [Case(kernel, *it, t, order) for it in pairs for t in types for order in orders]
    # Panels and clusters share what they do to elements with rows: each meets a third of it.
    third = {"panels": slice(0, None, 3), "clusters": slice(1, None, 3)}.get(kernel, slice(None))
    each = slice(None, None, 1 if kernel == "strips" else 3)
    others = [*[*FAMILIES][each], *map(str, SHAPES)]
    pairs = [("difficult", name) for name in suited(kernel)[third]]
    pairs += [(name, defaults[i % len(defaults)]) for i, name in enumerate(others)]
    return [
        Case(kernel, *pair, types[i % len(types)], orders[i // 2 % len(orders)])
        for i, pair in enumerate(pairs)
    ]


CASES: list[Case] = [
    *(case for kernel in KERNELS for case in every(kernel)),
    *(
        Case(kernel, "difficult", name, dtype, ORDERS[kernel][-1])
        for kernel in ("strips", *WHOLE)
        for name, dtype in product(("int8x6", "fp16x3"), ("float32", "float64"))
    ),
    Case("strips", "halves", "fp16"),
    Case("rows", "halves", "fp16"),
    Case("strips", "halves", "markidis-trunc", order="FF"),
    Case("panels", "halves", "markidis-trunc", order="FF"),
    *(Case(it, "lossy", "1 digits, bare", order=ORDERS[it][0]) for it in ("strips", *WHOLE)),
    *(Case(kernel, "two panels", "int8x6", order="FF") for kernel in WHOLE[1:]),
    Case("strips", "(2, 20, 1)", "int8x6", block=1),
    *(
        Case("strips", "blocks", name, dtype, order, block)
        for block, name, dtype, order in (
            *((12, "int8x10", "float64", "FF"), (32, "int8x6", "float64", "CC")),
            *((64, "int8x3", "float32", "FC"), (100, "int8x10", "float32", "FF")),
            (256, "int8x6", "float32", "CF"),
        )
    ),
    Case("strips", "spikes", "int8x6", order="CF"),
    Case("strips", "spikes", "mixpert-full"),
    Case("strips", "losing tiles", "mixpert-IV"),
    Case("strips", "losing tiles", "mixpert-full", order="FF"),
    Case("strips", "losing tiles", "mixpert-II", order="FC"),
    Case("strips", "difficult", "fp16x3", "float64"),
    Case("strips", "difficult", "legemm", order="FF"),
    Case("strips", "apart", "mixpert-IV"),
    Case("strips", "apart", "mixpert-full", order="FF"),
    Case("strips", "near a power", "mixpert-IV"),
    Case("strips", "near a power", "mixpert-full", order="FF"),
]
CASES_OF_A_GPU = [
    Case(kernel, f"difficult, {k} long", name, dtype, order)
    for kernel in ("strips", *WHOLE)
    for k in LONG
    for name in ("int8x6", "fp16x3", "int8x3")
    for dtype in ("float32", "float64")
    for order in ORDERS[kernel][:2]
    if kernel != "clusters" or k <= (16384 if dtype == "float32" else 4096)
]


def parts(kernel: Reader, task: PackingTask, xs: list[Operand]) -> list[Any]:
    """The launches that a task takes: only rows and strips are packed together unlike."""
    if len(xs) == 2 and kernel in WHOLE[1:] and task.sides[0] != task.sides[1]:
        return [(one, [x]) for one, x in zip(task.each(), xs, strict=True)]
    return [(task, xs)]


def task_of(xs: list[Operand], scheme: Scheme) -> PackingTask:
    """For A and B, or A alone."""
    result = max(x.memory for x in xs)
    which: Which = "both" if len(xs) == 2 else "left"
    return PackingTask(scheme, which, tuple(x.form for x in xs), result, xs[0].device)
