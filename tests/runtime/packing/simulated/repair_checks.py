"""The repair kernel in Numba's simulator: sums of just what is flagged, in float64 as the measure.

Run by `tests/runtime/packing/test_packing.py` in a process of its own.
"""

import struct

import numpy as np
import pytest
from numba import cuda

from mixpert_py.runtime.kernels.abi import LARGE, NONFINITE, OUTLIER
from mixpert_py.runtime.packing.repair import LINES, words
from mixpert_py.runtime.packing.repair_kernels import CHAIN, FEW, repair_kernel
from tests.runtime.families import Array
from tests.runtime.packing.simulated.launches import GARBAGE, flat, operand
from tests.runtime.packing.simulated.simulation import simulation

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def repaired(
    a: Array,
    b: Array,
    c: Array,
    flags: tuple[Array, Array],
    outliers: tuple[Array, Array],
    block: int,
    alpha: float,
    threads: int,
    most: int,
    anew: int | None = None,
    replaces: bool = True,
) -> Array:
    """c (batch, m, n) after the kernel. anew: what the guard's word is, if there is one, and other
    flags with it. flags: (batch, m), (batch, n), batch 1 where shared;
    outliers: (batch, blocks, m), (batch, blocks, n). What lies past the flags looks set.
    """
    c = c.copy()
    left, right = operand(a, False).form, operand(b, True).form
    strides = [stride // c.itemsize for stride in c.strides]
    grid, lengths, rest = words(left, right, block, len(c), strides[0], strides[1], most)
    function, _ = repair_kernel(left.memory, right.memory, c.dtype.name, threads)
    ends = [(0, 31 - (x.size - 1) % 16) for x in flags]
    padded = zip((x.reshape(-1) for x in flags), ends, strict=True)
    marks = [np.pad(x, end, constant_values=GARBAGE) for x, end in padded]
    marks += [x.view(np.uint32) for x in marks] + [x.reshape(-1) for x in outliers]
    if anew is None:
        others = [*marks[:4], np.zeros(1, np.int32), 0]
    else:
        others = [*marks[:4], np.full(1, anew, np.int32), 1]
        wrong = [np.full_like(x, GARBAGE) for x in marks[:2]]
        wrong += [x.view(np.uint32) for x in wrong]
        if anew:
            marks[:4] = wrong
        else:
            others[:4] = wrong
    alpha = struct.unpack("d", struct.pack("d", alpha))[0]
    buffer = c.reshape(-1)
    with simulation():
        operands = flat(a), flat(b), buffer
        cuda.jit(function)[grid, threads](
            *operands, *marks, *others, *lengths, alpha, *rest, int(replaces)
        )
    return c


def wanted(
    a: Array,
    b: Array,
    c: Array,
    flags: tuple[Array, Array],
    outliers: tuple[Array, Array],
    block: int,
    alpha: float,
) -> tuple[Array, Array]:
    """What is to be there, in float64, and the size of what was added up."""
    k = a.shape[-1]
    batch = len(c)
    a, b = (np.broadcast_to(x.astype(np.float64), (batch, *x.shape[-2:])) for x in (a, b))
    spread = [
        np.repeat(np.broadcast_to(marks, (batch, *marks.shape[1:])), block, axis=1)[:, :k]
        for marks in outliers
    ]
    left_flags, right_flags = (np.broadcast_to(f, (batch, f.shape[1])) for f in flags)
    out_a = np.where((left_flags & OUTLIER)[:, :, None] > 0, spread[0].swapaxes(1, 2), 0)
    out_b = np.where((right_flags & OUTLIER)[:, None, :] > 0, spread[1], 0)
    with np.errstate(all="ignore"):
        parts = np.where(out_a, a, 0) @ b + np.where(out_a, 0, a) @ np.where(out_b, b, 0)
        whole = (left_flags[:, :, None] | right_flags[:, None, :]) & NONFINITE
        added = np.where(whole > 0, a @ b, parts)
        return c + alpha * added, np.abs(np.nan_to_num(a)) @ np.abs(np.nan_to_num(b))


def case(
    m: int, k: int, n: int, block: int, batch: int = 1, seed: int = 0, dtype: type = np.float32
) -> tuple[Array, Array, Array, tuple[Array, Array], tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    blocks = -(-k // block)
    a = rng.standard_normal((batch, m, k)).astype(dtype)
    b = rng.standard_normal((batch, k, n)).astype(dtype)
    c = rng.standard_normal((batch, m, n)).astype(dtype)
    flags, outliers = [], []
    for lines in (m, n):
        mark = rng.choice([0, 0, 0, 1, 2, 3], (batch, lines)).astype(np.uint8)
        out = (rng.random((batch, blocks, lines)) < 0.5).astype(np.uint8)
        out *= (mark[:, None] & OUTLIER) > 0
        if blocks == 1:
            out[:] = (mark[:, None] & OUTLIER) > 0
        flags.append(mark)
        outliers.append(out)
    return a, b, c, (flags[0], flags[1]), (outliers[0], outliers[1])


def check(
    a: Array,
    b: Array,
    c: Array,
    flags: tuple[Array, Array],
    outliers: tuple[Array, Array],
    block: int,
    alpha: float = 1.0,
    threads: int = 32,
    most: int = 3,
    anew: int | None = None,
) -> None:
    found = repaired(a, b, c, flags, outliers, block, alpha, threads, most, anew)
    exact, size = wanted(a, b, c, flags, outliers, block, alpha)
    unit = float(np.finfo(c.dtype).eps)
    rounding = (a.shape[-1] + 4) * unit * (abs(alpha) * size + np.abs(np.nan_to_num(c)))
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(found[~finite], exact[~finite])
    assert (np.abs(found - exact)[finite] <= rounding[finite]).all()
    marked = (flags[0] > 0)[:, :, None] | (flags[1] > 0)[:, None, :]
    untouched = np.broadcast_to(~marked, c.shape)
    np.testing.assert_array_equal(found[untouched], c[untouched])


@pytest.mark.parametrize(
    ("shape", "block", "orders"),
    [
        *(((1, 1, 1), 8, "CC"), ((5, 9, 7), 8, "FF"), ((3, 70, 10), 32, "CF")),
        *(((12, 33, 4), 32, "FC"), ((12, 33, 4), 128, "CC")),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_just_what_is_flagged_is_added(
    shape: tuple[int, int, int], block: int, orders: str, dtype: type
) -> None:
    m, k, n = shape
    a, b, c, flags, outliers = case(m, k, n, min(block, k), seed=sum(shape), dtype=dtype)
    left, right = (np.asarray(x[0], order=o) for x, o in zip((a, b), orders, strict=True))
    for alpha in (1.0, -2.5):
        check(left, right, c, flags, outliers, min(block, k), alpha, threads=64)


def test_nothing_flagged_changes_nothing_and_nothing_times_zero() -> None:
    a, b, c, flags, outliers = case(9, 40, 8, 32)
    check(a[0], b[0], c, flags, outliers, 32, alpha=0.0)
    for marks in (*flags, *outliers):
        marks[:] = 0
    check(a[0], b[0], c, flags, outliers, 32)


@pytest.mark.parametrize("anew", [0, 1])
@pytest.mark.parametrize("most", [0, 3])
def test_the_flags_of_what_was_packed_anew(anew: int, most: int) -> None:
    a, b, c, flags, outliers = case(5, 40, 7, 40, seed=3)
    check(a, b, c, flags, outliers, 40, most=most, anew=anew)


@pytest.mark.parametrize(
    ("dtype", "k", "block", "order"),
    [(np.float32, 40, 16, "CC"), (np.float64, 40, 40, "FF"), (np.float32, 530, 530, "CF")],
)
def test_many_flagged_lines(order: str, k: int, block: int, dtype: type) -> None:
    """More than are taken at once, beside columns of two tiles, and sums of several chains."""
    shape = (37, k, 70) if k < CHAIN else (9, k, 9)
    a, b, c, flags, outliers = case(*shape, block, seed=8, dtype=dtype)
    assert min((x & OUTLIER > 0).sum() for x in flags) > (FEW if k < CHAIN else 2)
    a[0, 5, 3], b[0, 30, -4] = np.nan, np.inf
    for marks, line in zip(flags, (5, -4), strict=True):
        marks[0, line] = NONFINITE
    for marks, line in zip(outliers, (5, -4), strict=True):
        marks[0, :, line] = 0
    a, b = np.asarray(a[0], order=order[0]), np.asarray(b[0], order=order[1])
    check(a, b, c, flags, outliers, block, -2.5, threads=64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, -2.5])
def test_what_overflowed_of_large_lines_is_made_again(alpha: float, dtype: type) -> None:
    """But not where nothing is large, a line has left, C was finite, or another matrix is in it."""
    a, b, c, flags, outliers = case(8, 40, 70, 40, seed=4, dtype=dtype)
    for marks in (*flags, *outliers):
        marks[:] = 0
    flags[0][0, 1], flags[1][0, 65] = LARGE, LARGE
    flags[0][0, 5], outliers[0][0, 0, 5] = OUTLIER, 1
    c[0, 1, ::3], c[0, ::2, 65], c[0, 1:6, 65], c[0, 0, 0] = np.inf, -np.inf, np.inf, np.inf
    found = repaired(a[0], b[0], c, flags, outliers, 40, alpha, 32, 3)
    expected = c.astype(np.float64)
    expected[0, 5] += alpha * (a[0, 5].astype(np.float64) @ b[0].astype(np.float64))
    large = (flags[0] == LARGE)[0, :, None] | (flags[1] == LARGE)[0]
    large[5] = False
    again = np.isinf(c[0]) & large
    assert again.sum() == 24 + 6
    made = alpha * (a[0].astype(np.float64) @ b[0].astype(np.float64))
    expected[0][again] = made[again]
    unit = 50 * float(np.finfo(dtype).eps) * abs(alpha)
    np.testing.assert_allclose(found, expected, rtol=unit, atol=40 * unit)
    kept = repaired(a[0], b[0], c, flags, outliers, 40, alpha, 32, 3, replaces=False)
    np.testing.assert_array_equal(kept[0, 1], c[0, 1])


def test_nan_and_inf_reach_what_they_reach_natively() -> None:
    a, b, c, flags, outliers = case(8, 40, 9, 40, seed=2)
    for marks in (*flags, *outliers):
        marks[:] = 0
    c[:] = 0
    a[0, 1, 3], a[0, 2, 4], a[0, 3, [5, 30]] = np.nan, np.inf, [np.inf, -np.inf]
    b[0, 4, 2], b[0, 7, 5] = 0, -np.inf
    flags[0][0, 1:4], flags[1][0, 5] = NONFINITE, NONFINITE
    flags[0][0, 6], outliers[0][0, 0, 6] = OUTLIER, 1
    check(a[0], b[0], c, flags, outliers, 40)
    found = repaired(a[0], b[0], c, flags, outliers, 40, 1.0, 32, 3)
    assert np.isnan(found[0, 2, 2])  # ∞ · 0
    assert np.isinf(found[0, 2, 3])
    assert np.isnan(found[0, 3]).any()
    assert np.isfinite(found[0, 0, :5]).all()


@pytest.mark.parametrize("lines", ["rows", "columns"])
def test_lines_past_a_tile(lines: str) -> None:
    """One row, or one column, far from the first of the grid's tiles."""
    shape = (LINES + 2, 3, 3) if lines == "rows" else (3, 3, LINES + 2)
    a, b, c, flags, outliers = case(*shape, 3, seed=3)
    for marks in (*flags, *outliers):
        marks[:] = 0
    flags[lines == "columns"][0, -1] = OUTLIER
    outliers[lines == "columns"][0, 0, -1] = 1
    check(a[0], b[0], c, flags, outliers, 3)


@pytest.mark.parametrize(
    ("m", "n", "most"), [(130, 70, 0), (1, 1, 1), (37, 133, 2), (300, 21, 3), (5, 300, 8)]
)
@pytest.mark.parametrize("shared", [False, True])
def test_one_flagged_line_of_a_stack(m: int, n: int, most: int, shared: bool) -> None:
    """Wherever it is: each product's tiles are made once, however blocks share them."""
    batch, places = 5, (0, min(16, m - 1), m - 1, m + n // 2, m + n - 1)
    rng = np.random.default_rng(m)
    a = rng.standard_normal((1 if shared else batch, m, 2)).astype(np.float32)
    b = rng.standard_normal((batch, 2, n)).astype(np.float32)
    c = rng.standard_normal((batch, m, n)).astype(np.float32)
    flags = np.zeros(a.shape[:2], np.uint8), np.zeros((batch, n), np.uint8)
    outliers = np.zeros((len(a), 1, m), np.uint8), np.zeros((batch, 1, n), np.uint8)
    for place, index in zip(places, (2, 4, 1, 0, 3), strict=True):
        in_a = place < m
        marks = flags[not in_a][0 if in_a and shared else index]
        marks[place - (not in_a) * m] = NONFINITE
        check(
            np.broadcast_to(a, (batch, m, 2)) if shared else a, b, c, flags, outliers, 2, most=most
        )
        marks[:] = 0


@pytest.mark.parametrize("shared", ["neither", "a", "b"])
def test_batches(shared: str) -> None:
    a, b, c, flags, outliers = case(5, 40, 6, 16, batch=3, seed=4)
    if shared == "a":
        a, flags, outliers = a[:1], (flags[0][:1], flags[1]), (outliers[0][:1], outliers[1])
        a = np.broadcast_to(a, (3, 5, 40))
    if shared == "b":
        b, flags, outliers = b[:1], (flags[0], flags[1][:1]), (outliers[0], outliers[1][:1])
        b = np.broadcast_to(b, (3, 40, 6))
    for most in (1, 2, 5):
        check(a, b, c, flags, outliers, 16, most=most)


def test_any_strides_and_types() -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((20, 90)).astype(np.float32)[::-2, ::-2]
    b = rng.standard_normal((9, 45)).T[::-1]
    _, _, c, flags, outliers = case(10, 45, 9, 16, seed=6, dtype=np.float64)
    check(a, b, c, flags, outliers, 16)


def test_threads_change_no_more_than_rounding() -> None:
    a, b, c, flags, outliers = case(5, 70, 6, 32, seed=7)
    check(a[0], b[0], c, flags, outliers, 32, threads=64)
    first = repaired(a[0], b[0], c, flags, outliers, 32, 1.0, 64, 3)
    second = repaired(a[0], b[0], c, flags, outliers, 32, 1.0, 64, 0)
    np.testing.assert_array_equal(first, second)
