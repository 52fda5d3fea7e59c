"""Random products of integers and booleans, compared with exact arithmetic modulo 2^w.

Small products are compared with Python's integers. Of others each element is compared with NumPy's
own loop in 64 bits, and one element with Python's integers. Costs are changed so that `exact` makes
products of every size. One of four parts has small panels, one of 64 sums as short as any.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from mixpert_py.runtime import exact_integers, worth
from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.tracing.trace import Trace
from tests.benchmarks import machine
from tests.contract.table import VIEWS
from tests.runtime.integers import EVERY_SIZE, PAIRS, entries

PART = 500  # products that a process makes of one seed
MOST_WORK = 1 << 16  # multiplications of a product
MOST_IN_PYTHON = 1 << 9
LONGEST = 1 << 17  # of sums
STACKS: tuple[tuple[Any, Any], ...] = (((), ()), ((3,), ()), ((), (2,)), ((2, 1), (3,)))
LIMITS = ((exact_integers.PANEL, exact_integers.CACHED), (1 << 11, 1 << 8))  # PANEL and CACHED
SUMS = ("EXACT_MATRIX", "EXACT_CAST", "EXACT_RESULT")
COSTS = {name: getattr(worth, name) for name in SUMS}
KINDS = ("small", "full", "ends")
LAYOUTS = tuple(VIEWS.values())


def drawn(rng: np.random.Generator) -> tuple[Array, Array]:
    """Operands of any types, ranges and layouts: matrices, stacks and empty ones."""
    if rng.random() < 0.001:
        m, k, n = 1, LONGEST, 2
    else:
        m, k, n = (round(2 ** (most * rng.random() ** 3)) for most in (7, 17, 7))
    one, other = STACKS[max(0, int(rng.integers(-8, len(STACKS))))]
    while m * k * n > MOST_WORK:
        m, k, n = (-(-size // 2) for size in (m, k, n))
    if rng.random() < 0.02:
        m, k, n = (size * int(rng.integers(2)) for size in (m, k, n))
    types = PAIRS[rng.integers(len(PAIRS))]
    found = []
    for dtype, shape in zip(types, ((*one, m, k), (*other, k, n)), strict=True):
        kind = KINDS[rng.integers(3)] if rng.random() < 0.5 else str(rng.integers(1, 64))
        x = entries(rng, dtype, shape, kind)
        found.append(LAYOUTS[rng.integers(len(LAYOUTS))](x) if x.size else x)
    return found[0], found[1]


def in_python(a: Array, b: Array, dtype: "np.dtype[Any]") -> Array:
    """A·B modulo 2^w by Python's integers."""
    sums: Array = np.asarray(np.matmul(a.astype(object), b.astype(object)), object)
    if dtype.kind == "b":
        return sums.astype(bool)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.asarray(sums & int(np.iinfo(unsigned).max), unsigned).view(dtype)


def is_right(value: Array, a: Array, b: Array, rng: np.random.Generator) -> bool:
    """Whether `value` has the type, the shape and every bit of A·B."""
    dtype = np.result_type(a, b)
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if (type(value), value.dtype, value.shape) != (np.ndarray, dtype, shape):
        return False
    if value.size * a.shape[-1] <= MOST_IN_PYTHON:
        return np.array_equal(value, in_python(a, b, dtype))
    wide = (x.astype("u8") for x in (a, b))  # modulo 2^64
    sums = np.matmul(*wide)
    wanted = sums != 0 if dtype.kind == "b" else sums.astype(f"u{dtype.itemsize}").view(dtype)
    stack, i, j = (0,) * (value.ndim - 2), rng.integers(shape[-2]), rng.integers(shape[-1])
    one = in_python(a[(0,) * (a.ndim - 2)][i], b[(0,) * (b.ndim - 2)][:, j], dtype)
    return np.array_equal(value, wanted) and bool(value[(*stack, i, j)] == one)


def made(rng: np.random.Generator, a: Array, b: Array) -> tuple[Any, str]:
    """A·B by a random spelling of our own, with or without `out`, and the scheme that made it."""
    given: dict[str, Any] = {}
    call: Callable[..., Any] = matmul
    turn = rng.random()
    if turn < 0.3:
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        out: Array = np.empty(shape, np.result_type(a, b))
        some = a if rng.random() < 0.5 else b
        if (some.shape, some.dtype) == (shape, out.dtype) and some.flags.writeable:
            out = some  # an operand
        elif rng.random() < 0.6:
            out = np.asfortranarray(out)[..., ::-1]
        given = {"native": np.matmul, "out": out}
    elif turn < 0.5 and a.ndim == b.ndim:
        call = partial(einsum, "bij,bjk->bik" if a.ndim == 3 else "...ij,...jk->...ik")
    elif turn < 0.6 and a.ndim == b.ndim == 2:
        call = dot
    trace = Trace()
    with use(Context(trace=trace)):
        value = call(a, b, site="bits", **given)
    if given and value is not given["out"]:
        return None, "another array than `out`"
    (scheme,) = trace.sites["bits"].schemes
    return value, scheme


def part(seed: int, number: int) -> tuple[Counter[str], list[str]]:
    """PART products: the number of those of each scheme and kind, and which are wrong."""
    exact_integers.PANEL, exact_integers.CACHED = LIMITS[number % 4 == 1]  # type: ignore[misc]
    for name, value in (EVERY_SIZE | (COSTS if number % 64 else dict.fromkeys(SUMS, 0.0))).items():
        setattr(worth, name, value)
    rng, counts, wrong = np.random.default_rng([seed, number]), Counter[str](), []
    for turn in range(PART):
        a, b = drawn(rng)
        one, other = a.copy(), b.copy()  # `out` may be an operand
        value, scheme = made(rng, a, b)
        if not is_right(value, one, other, rng):
            wrong.append(f"seed {seed}, part {number}, product {turn}: {a.shape} {a.dtype} …")
        counts[scheme] += 1
        if scheme == "exact":
            counts[f"{a.dtype} · {b.dtype}"] += 1
            counts["sums of 2^16 and more"] += a.shape[-1] >= 1 << 16
    return counts, wrong


def check(products: int, seed: int, jobs: int) -> Iterator[dict[str, Any]]:
    """At least so many products by `exact`, in several processes; others that are drawn are checked
    too. Gives what is known after every few parts.
    """
    counts, wrong, number = Counter[str](), list[str](), 0
    with ProcessPoolExecutor(jobs) as pool:
        while counts["exact"] < products:
            numbers = range(number, number + 20 * jobs)
            number = numbers.stop
            for found, bad in pool.map(partial(part, seed), numbers):
                counts += found
                wrong += bad
            yield {
                "machine": machine.machine(),
                "seed": seed,
                "parts": number,
                "counts": dict(sorted(counts.items())),
                "wrong": wrong,
            }


def sentence(result: dict[str, Any]) -> str:
    counts, facts = result["counts"], result["machine"]
    long = counts.get("sums of 2^16 and more", 0)
    return (
        f"{counts['exact']:,} random products by `exact`, {long:,} of them sums of 2^16 to 2^17 "
        f"terms: {len(result['wrong'])} wrong. Seed {result['seed']}, {facts['date']}.\n"
    )
