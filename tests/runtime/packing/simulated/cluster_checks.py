"""The cluster kernel in Numba's simulator, where a cluster is one block, against the reference
backend, bit for bit.

Run by `tests/runtime/packing/test_clusters.py` in a process of its own.
"""

import numpy as np
import pytest

from mixpert_py.runtime.packing.rows import ClusterTuning as Clusters
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import FP16, FloatSlices, OutlierRule
from tests.every_check import EVERY_CHECK
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.simulated.row_checks import (
    INT8X6,
    SMALLEST,
    digits,
    operands,
    ruled_by_ones,
)
from tests.runtime.packing.simulated.row_checks import check as check_with
from tests.runtime.packing.simulated.row_float_checks import EMULATIONS, FP16X3, floats
from tests.runtime.packing.simulated.row_launches import Tuning

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def held_by(*threads: int) -> Tuning:
    """One block, of the first of these that holds K."""
    shapes = tuple((one, 1) for one in threads)
    return Tuning(of_clusters=Clusters(shapes, shapes))


SMALL = held_by(64, 128, 256, 512)


def check(
    a: Array, b: Array, scheme: Scheme, rule: OutlierRule = "loss", tuning: Tuning = SMALL
) -> tuple[int, int]:
    """Rows that are not finite, and that left, of both operands."""
    both = check_with(a, b, scheme, rule, tuning)
    return (
        sum(int(one.nonfinite.sum()) for one in both),
        sum(int(one.outlier.any(axis=1).sum()) for one in both),
    )


@pytest.mark.parametrize("place", range(len(FAMILIES)), ids=list(FAMILIES))
def test_every_family(place: int) -> None:
    dtype = (np.float32, np.float32, np.float64)[place % 3]
    check(*operands(list(FAMILIES)[place], 9, 60, 10, dtype, ("CC", "FC")[place % 2]), INT8X6)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("fitted", [False, True], ids=["bare", "fitted"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_count(count: int, fitted: bool, dtype: type) -> None:
    a, b = operands("spread 1", 6, 70, 7, dtype, "FC", seed=1)
    a[2] = np.rint(a[2] * 100)
    b[:, 3] = np.rint(b[:, 3])
    a[4], b[:, 5] = 0, 0
    check(a, b, digits(count, fitted))


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 2, 5), (7, 63, 9), (33, 65, 34), (2, 64, 32), (8, 129, 31), (5, 500, 8)],
    ids=str,
)
@pytest.mark.parametrize("scheme", [INT8X6, FP16X3, EMULATIONS["tf32x3"]], ids=lambda x: x.name)
def test_every_shape(shape: tuple[int, int, int], scheme: Scheme) -> None:
    a, b = operands("normal", *shape, order="FC", seed=2)
    check(a, b, scheme)
    if shape == (7, 63, 9):
        check(a, b, scheme, tuning=held_by(256))


@pytest.mark.parametrize("name", EMULATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_scheme_of_floats(name: str, dtype: type) -> None:
    a, b = operands("normal", 18, 60, 17, dtype, "FC", seed=5)
    a[3, 50] = np.nan
    a[16, 0], a[16, 59] = np.inf, -np.inf
    b[41, 2] = np.inf
    a[5, 40], a[6, 40], b[3, 11] = -65504, np.nextafter(dtype(65504), np.inf, dtype=dtype), 1e5
    a[7] = np.ldexp(a[7], -130)
    gone, _ = check(a, b, EMULATIONS[name])
    assert gone == 3


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_other_floats(count: int, scaled: bool) -> None:
    a, b = operands("spread 4", 9, 70, 8, order="FC", seed=8)
    check(a, b, floats(FloatSlices(FP16, count, "zero", 11, scaled)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scheme", [INT8X6, digits(1, True), digits(4, True)])
def test_small_integers_have_bare_units(dtype: type, scheme: Scheme) -> None:
    rng = np.random.default_rng(5)
    tops = np.array([1, 2, 100, 127, 128, 255, 256, 16383, 32639, 32640, 32767, 32768, 65535])
    a = np.rint(rng.uniform(-1, 1, (26, 40)) * np.repeat(tops, 2)[:, None])
    a[:, 7] = np.repeat(tops, 2)
    a[1::2, 9] += 0.5
    a = np.concatenate([a, a[::5] * 2.0**-80, a[::5] * SMALLEST[np.dtype(dtype).name]])
    check(np.asfortranarray(a.astype(dtype)), np.ascontiguousarray(a.T.astype(dtype)), scheme)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scheme", [digits(2, True), INT8X6, FP16X3], ids=["2", "3", "fp16x3"])
def test_the_ends_of_the_range(dtype: type, scheme: Scheme) -> None:
    info = np.finfo(dtype)
    a, _ = operands("normal", 10, 40, 8, dtype, seed=7)
    a[0] = info.smallest_subnormal * np.arange(-20, 20)
    a[1] = np.where(a[1] > 0, info.max, -info.max)
    a[2] = info.smallest_subnormal
    a[3] = np.ldexp(a[3], info.maxexp - 4)
    a[4] = np.ldexp(a[4], info.minexp - 5)
    a[5, ::2] = info.max
    a[6] = np.ldexp(a[6], np.arange(-20, 20))
    a[7] = -0.0
    a[8] = np.ldexp(dtype(1) - info.epsneg, np.arange(40))
    a[9, :2] = info.max, info.smallest_subnormal
    check(np.asfortranarray(a), np.ascontiguousarray(a.T), scheme)


@pytest.mark.parametrize(
    ("scheme", "k", "rest"),
    [
        (INT8X6, 70, -0.0039375),  # the second digit of all but one is −128
        (digits(1, False), 1152, 0.0077),  # less than half of the unit
        *[(digits(1, True), 4672, 0.0038)] * EVERY_CHECK,
    ],
    ids=["crowded", "lossy", *["lossy, fitted"] * EVERY_CHECK],
)
def test_what_one_entry_rules_leaves(scheme: Scheme, k: int, rest: float) -> None:
    a = ruled_by_ones(4, k, rest)
    a[1, 3] = np.nan
    tuning = held_by(-(-k // 64) * 64)
    operands = np.asfortranarray(a), np.ascontiguousarray(a.T)
    assert check(*operands, scheme, "loss", tuning) == (2, 4)
    if k < 1000 or EVERY_CHECK:  # a thousand threads take seconds, and nothing is ever lost so
        assert check(*operands, scheme, "none", tuning) == (2, 0)


def test_views_and_batches() -> None:
    rng = np.random.default_rng(10)
    a = rng.standard_normal((2, 60, 41)).astype(np.float32)
    b = rng.standard_normal((2, 60, 37)).astype(np.float32)
    a[0, 4, 4] = b[1, 3, 33] = np.nan
    gone, _ = check(a.swapaxes(1, 2), b, INT8X6)
    assert gone == 2
    check(a[0].T, np.broadcast_to(b[0], (2, 60, 37)), INT8X6)
    check(a[0, :, 1:10].T, b[0, ::-1, 3:], INT8X6)  # not aligned, and backwards


def test_operands_of_two_types() -> None:
    a, b = operands("normal", 9, 70, 10, order="FC")
    check(a, b.astype(np.float64), INT8X6)
    check(a.astype(np.float64) * (1 + 1e-12), b, INT8X6)
