"""The repair kernel in Numba's simulator: sums of just what is flagged, in float64 as the measure.

Run by `tests/runtime/packing/test_packing.py` in a process of its own.
"""

from typing import NamedTuple

import numpy as np
import pytest
from numba import cuda

from mixpert_py.runtime.kernels.abi import LARGE, NONFINITE, OUTLIER
from mixpert_py.runtime.packing.repair import LINES, words
from mixpert_py.runtime.packing.repair_kernels import CHAIN, FEW, repair_kernel
from tests.runtime.families import Array
from tests.runtime.packing.simulated.launches import GARBAGE, flat, operand, simulation

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


class Flagged(NamedTuple):
    """c (batch, m, n) as a GEMM left it, and what packing has marked of a and b.

    flags: (batch, m), (batch, n), batch 1 where shared; outliers: (batch, blocks, m), (batch,
    blocks, n). symmetric: b is a transposed, and c symmetric.
    """

    a: Array
    b: Array
    c: Array
    flags: tuple[Array, Array]
    outliers: tuple[Array, Array]
    block: int
    symmetric: bool = False

    def unmarked(self) -> "Flagged":
        for marks in (*self.flags, *self.outliers):
            marks[:] = 0
        return self

    def laid_out(self, orders: str) -> "Flagged":
        a, b = (np.asarray(x[0], order=o) for x, o in zip(self[:2], orders, strict=True))
        return self._replace(a=a, b=b)

    def shared(self, which: str) -> "Flagged":
        """All products have the first matrix of one operand, if which is "a" or "b"."""
        if which == "neither":
            return self
        i, x = "ab".index(which), getattr(self, which)
        flags, outliers = (
            tuple(marks[: 1 if j == i else None] for j, marks in enumerate(pair))
            for pair in (self.flags, self.outliers)
        )
        changes = {which: np.broadcast_to(x[:1], x.shape), "flags": flags, "outliers": outliers}
        return self._replace(**changes)


def case(
    m: int, k: int, n: int, block: int, batch: int = 1, seed: int = 0, dtype: type = np.float32
) -> Flagged:
    rng = np.random.default_rng(seed)
    blocks = -(-k // block)
    a, b, c = (rng.standard_normal((batch, *s)).astype(dtype) for s in ((m, k), (k, n), (m, n)))
    flags, outliers = [], []
    for lines in (m, n):
        mark = rng.choice([0, 0, 0, 1, 2, 3], (batch, lines)).astype(np.uint8)
        out = (rng.random((batch, blocks, lines)) < (0.5 if blocks > 1 else 2)).astype(np.uint8)
        flags.append(mark)
        outliers.append(out * ((mark[:, None] & OUTLIER) > 0))
    return Flagged(a, b, c, (flags[0], flags[1]), (outliers[0], outliers[1]), block)


def repaired(
    job: Flagged,
    threads: int = 32,
    most: int = 3,
    anew: int | None = None,
) -> Array:
    """c after the kernel. anew: what the guard's word is, if there is one, and other flags with it.
    What lies past the flags looks set.
    """
    c = job.c.copy()
    left, right = operand(job.a, False).form, operand(job.b, True).form
    strides = c.strides[0] // c.itemsize, c.strides[1] // c.itemsize
    grid, numbers = words((left, right), job.block, len(c), strides, most, symmetric=job.symmetric)
    function, _ = repair_kernel(left.memory, right.memory, c.dtype.name, threads)
    padded = ((x.reshape(-1), (0, 31 - (x.size - 1) % 16)) for x in job.flags)
    marks = [np.pad(x, end, constant_values=GARBAGE) for x, end in padded]
    marks += [x.view(np.uint32) for x in marks] + [x.reshape(-1) for x in job.outliers]
    others = [*marks[:4], np.full(1, anew or 0, np.int32), int(anew is not None)]
    if anew is not None:
        wrong = [np.full_like(x, GARBAGE) for x in marks[:2]]
        (marks if anew else others)[:4] = wrong + [x.view(np.uint32) for x in wrong]
    with simulation():
        operands = flat(job.a), flat(job.b), c.reshape(-1)
        cuda.jit(function)[grid, threads](*operands, *marks, *others, *numbers)
    return c


def wanted(job: Flagged) -> tuple[Array, Array]:
    """What is to be there, in float64, and the size of what was added up."""
    batch, k = len(job.c), job.a.shape[-1]
    a, b = (np.broadcast_to(x.astype(np.float64), (batch, *x.shape[-2:])) for x in job[:2])
    spread = [
        np.repeat(np.broadcast_to(marks, (batch, *marks.shape[1:])), job.block, axis=1)[:, :k]
        for marks in job.outliers
    ]
    left, right = (np.broadcast_to(flags, (batch, flags.shape[1])) for flags in job.flags)
    out_a = np.where((left & OUTLIER)[:, :, None] > 0, spread[0].swapaxes(1, 2), 0)
    out_b = np.where((right & OUTLIER)[:, None, :] > 0, spread[1], 0)
    with np.errstate(all="ignore"):
        parts = np.where(out_a, a, 0) @ b + np.where(out_a, 0, a) @ np.where(out_b, b, 0)
        whole = (left[:, :, None] | right[:, None, :]) & NONFINITE
        added = np.where(whole > 0, a @ b, parts)
        return job.c + added, np.abs(np.nan_to_num(a)) @ np.abs(np.nan_to_num(b))


def check(job: Flagged, threads: int = 32, most: int = 3, anew: int | None = None) -> Array:
    """That C is right after the kernel; returns it."""
    found = repaired(job, threads, most, anew)
    exact, size = wanted(job)
    unit = float(np.finfo(job.c.dtype).eps)
    rounding = (job.a.shape[-1] + 4) * unit * (size + np.abs(np.nan_to_num(job.c)))
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(found[~finite], exact[~finite])
    assert (np.abs(found - exact)[finite] <= rounding[finite]).all()
    marked = (job.flags[0] > 0)[:, :, None] | (job.flags[1] > 0)[:, None, :]
    untouched = np.broadcast_to(~marked, job.c.shape)
    np.testing.assert_array_equal(found[untouched], job.c[untouched])
    return found


@pytest.mark.parametrize(
    ("shape", "block", "orders"),
    [
        *(((1, 1, 1), 1, "CC"), ((5, 9, 7), 8, "FF"), ((3, 70, 10), 32, "CF")),
        *(((12, 33, 4), 32, "FC"), ((12, 33, 4), 33, "CC")),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_just_what_is_flagged_is_added(
    shape: tuple[int, int, int], block: int, orders: str, dtype: type
) -> None:
    job = case(*shape, block, seed=sum(shape), dtype=dtype).laid_out(orders)
    check(job, threads=64)


def test_nothing_flagged_changes_nothing() -> None:
    check(case(9, 40, 8, 32).laid_out("CC").unmarked())


@pytest.mark.parametrize("anew", [0, 1])
@pytest.mark.parametrize("most", [0, 3])
def test_the_flags_of_what_was_packed_anew(anew: int, most: int) -> None:
    check(case(5, 40, 7, 40, seed=3), most=most, anew=anew)


@pytest.mark.parametrize(
    ("dtype", "k", "block", "orders"),
    [(np.float32, 40, 16, "CC"), (np.float64, 40, 40, "FF"), (np.float32, 530, 530, "CF")],
)
def test_many_flagged_lines(orders: str, k: int, block: int, dtype: type) -> None:
    """More than are taken at once, beside columns of two tiles, and sums of several chains."""
    m, n = (37, 70) if k < CHAIN else (14, 9)
    job = case(m, k, n, block, seed=8, dtype=dtype)
    assert (job.flags[0] > 0).sum() > FEW
    job.a[0, 5, 3], job.b[0, 30, -4] = np.nan, np.inf
    for marks, out, line in zip(job.flags, job.outliers, (5, -4), strict=True):
        marks[0, line], out[0, :, line] = NONFINITE, 0
    check(job.laid_out(orders), threads=64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_overflowed_of_large_lines_is_made_again(dtype: type) -> None:
    """But not where nothing is large, a line has left, or C was finite."""
    job = case(8, 40, 70, 40, seed=4, dtype=dtype).unmarked().laid_out("CC")
    a, b, c, flags, outliers, *_ = job
    flags[0][0, 1], flags[1][0, 65] = LARGE, LARGE
    flags[0][0, 5], outliers[0][0, 0, 5] = OUTLIER, 1
    c[0, 1, ::3], c[0, ::2, 65], c[0, 1:6, 65], c[0, 0, 0] = np.inf, -np.inf, np.inf, np.inf
    found = repaired(job)
    made = a.astype(np.float64) @ b.astype(np.float64)
    expected = c.astype(np.float64)
    expected[0, 5] += made[5]
    large = (flags[0] == LARGE)[0, :, None] | (flags[1] == LARGE)[0]
    large[5] = False
    again = np.isinf(c[0]) & large
    assert again.sum() == 24 + 6
    expected[0][again] = made[again]
    unit = 50 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=unit, atol=40 * unit)


def test_nan_and_inf_reach_what_they_reach_natively() -> None:
    job = case(8, 40, 9, 40, seed=2).unmarked()
    a, b, c, flags, outliers, *_ = job
    c[:] = 0
    a[0, 1, 3], a[0, 2, 4], a[0, 3, [5, 30]] = np.nan, np.inf, [np.inf, -np.inf]
    b[0, 4, 2], b[0, 7, 5] = 0, -np.inf
    flags[0][0, 1:4], flags[1][0, 5] = NONFINITE, NONFINITE
    flags[0][0, 6], outliers[0][0, 0, 6] = OUTLIER, 1
    found = check(job)
    assert np.isnan(found[0, 2, 2])  # ∞ · 0
    assert np.isinf(found[0, 2, 3])
    assert np.isnan(found[0, 3]).any()
    assert np.isfinite(found[0, 0, :5]).all()


@pytest.mark.parametrize(
    ("m", "n", "most", "shared"),
    [
        *((130, 70, 0, "neither"), (1, 1, 1, "a"), (37, 133, 2, "a"), (300, 21, 3, "neither")),
        *((300, 21, 3, "a"), (5, 300, 8, "neither"), (5, 300, 8, "a")),
        *((LINES + 2, 3, 3, "neither"), (3, LINES + 2, 0, "a")),  # past the first tile
    ],
)
def test_one_flagged_line_of_a_stack(m: int, n: int, most: int, shared: str) -> None:
    """Wherever it is: each product's tiles are made once, however blocks share them."""
    batch = 5 if max(m, n) < LINES else 2
    job = case(m, 2, n, 2, batch).unmarked().shared(shared)
    for place, index in zip((0, m - 1, m + n // 2, m + n - 1), (2, 4, 0, 3), strict=True):
        in_a = place < m
        marks = job.flags[not in_a][0 if in_a and shared == "a" else index % batch]
        marks[place - (not in_a) * m] = NONFINITE
        check(job, most=most)
        marks[:] = 0


@pytest.mark.parametrize(
    ("m", "k", "block", "count"),
    [*((70, 40, block, count) for block in (16, 40) for count in (3, 40)), (LINES + 3, 4, 4, 1)],
)
def test_of_a_symmetric_product_both_halves_have_the_same_bits(
    m: int, k: int, block: int, count: int
) -> None:
    """Whatever is marked: few lines of a tile or many, and NaN; the other tile's are few."""
    job = case(m, k, 1, block, seed=count)
    marks, outliers = job.flags[0], job.outliers[0]
    marks[0, count:-2], outliers[0, :, count:-2] = 0, 0
    marks[0, -1], outliers[0, :, -1] = OUTLIER, 1
    half = np.tril(np.random.default_rng(1).standard_normal((m, m))).astype(np.float32)
    c = (half + np.tril(half, -1).T)[np.newaxis]
    job.a[0, 1, 2], marks[0, 1], outliers[0, :, 1] = np.nan, NONFINITE, 0
    pairs = {"flags": (marks, marks), "outliers": (outliers, outliers)}
    job = job._replace(b=job.a.swapaxes(1, 2), c=c, symmetric=True, **pairs)
    found = check(job, threads=64)
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))
    assert (found != c).any()


def test_what_overflowed_of_a_symmetric_product_is_made_again_in_both_halves() -> None:
    job = case(70, 40, 70, 40, seed=4).unmarked()
    job.flags[0][0, [3, 66]], job.c[:] = LARGE, 1
    job.c[0, 3, [5, 66]] = job.c[0, [5, 66], 3] = np.inf
    flags, outliers = job.flags[0], job.outliers[0]
    pairs = {"flags": (flags, flags), "outliers": (outliers, outliers)}
    job = job._replace(b=job.a.swapaxes(1, 2), symmetric=True, **pairs)
    found = repaired(job)
    assert np.isfinite(found).all()
    assert (found != job.c).sum() == 4
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))


@pytest.mark.parametrize("shared", ["neither", "a", "b"])
def test_batches(shared: str) -> None:
    job = case(20, 40, 20, 16, batch=3, seed=4).shared(shared)
    for most in (1, 2, 5):
        check(job, most=most, threads=64)


def test_any_strides_and_types() -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((20, 90)).astype(np.float32)[::-2, ::-2]
    b = rng.standard_normal((9, 45)).T[::-1]
    check(case(10, 45, 9, 16, seed=6, dtype=np.float64)._replace(a=a, b=b))


def test_blocks_that_share_tiles_change_no_bit() -> None:
    job = case(5, 70, 6, 32, seed=7)
    np.testing.assert_array_equal(repaired(job, threads=64), repaired(job, threads=64, most=0))
