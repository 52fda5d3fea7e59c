"""The row kernels in Numba's simulator where slices are floats, bit for bit as the reference's.

Run by `tests/runtime/packing/test_rows.py` in a process of its own.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from mixpert_py.runtime.kernels.intrinsics import (
    cut_halves,
    first_half,
    nearest_halves,
    second_half,
)
from mixpert_py.runtime.packing import rows
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES
from mixpert_py.runtime.schemes.wide_range import WIDER
from mixpert_py.runtime.splitter import BF16, FP16, TF32, Element, FloatSlices
from tests.every_check import EVERY_CHECK
from tests.runtime.families import FAMILIES
from tests.runtime.packing.simulated.row_checks import check, operands
from tests.runtime.packing.simulated.row_launches import SMALL_ROWS, Tuning

EMULATIONS = {
    name: entry
    for name, entry in SCHEMES.items()
    if isinstance(entry, Scheme) and isinstance(entry.left, FloatSlices)
}
FP16X3 = EMULATIONS["fp16x3"]
EACH = 4 if EVERY_CHECK else 8  # of the families, for schemes that differ in few statements

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def floats(splitter: FloatSlices) -> Scheme:
    return replace(FP16X3, element=splitter.element, left=splitter, right=splitter)


@pytest.mark.parametrize("name", EMULATIONS)
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_every_scheme(name: str, order: str) -> None:
    for i, family in enumerate(FAMILIES):
        dtype = np.float64 if (i + len(name)) % 3 == 0 else np.float32
        if (i + len(name)) % EACH == 0 or name == "fp16x3":
            check(*operands(family, 7, 70, 6, dtype, order), EMULATIONS[name])


WAYS = [*product([FP16], [1, 2, 3], ["nearest", "zero"], [0, 10, 11])]
WAYS += [*product([BF16, TF32], [2], ["nearest", "zero"], [0, 11])]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("element", "count", "rounding", "step"), WAYS)
def test_every_way_to_slice(
    element: Element, count: int, rounding: str, step: int, scaled: bool
) -> None:
    splitter = FloatSlices(element, count, rounding, step, scaled)  # type: ignore[arg-type]
    a, _ = operands("spread 4", 9, 70, 8, seed=8)
    a[1], a[2] = np.ldexp(a[1], -110), np.ldexp(a[2], 80)
    a[3] = np.ldexp(a[3], np.linspace(-140, 100, 70).astype(int))
    a[4] = np.ldexp(a[4], -12)
    a[5] = np.ldexp(1 + 2.0**-11 * np.arange(70) / 8, -20 + np.arange(70) // 4)  # ties
    a[6] = -a[5]
    a[7] = 65504
    a[7, 1::2] = -0.0
    a[8, 3] = 65504 + 2.0**-7
    for dtype in (np.float32, np.float64):
        check(a.astype(dtype), a.T.copy().astype(dtype), floats(splitter))


@pytest.mark.parametrize("name", ["fp16", "markidis-trunc", "fp16x3"])
def test_halves_below_their_normal_range(name: str) -> None:
    """Every float16 is its own slice, and what lies between two is rounded as NumPy does."""
    halves = np.arange(1 << 10, dtype=np.uint16).view(np.float16).astype(np.float32)
    a = np.stack(
        [halves, -halves, halves * np.float32(1 + 2.0**-11), halves + np.float32(2.0**-25)]
    )
    tuning = Tuning(SMALL_ROWS._replace(most_threads=128))
    check(a, -a.T, EMULATIONS[name], tuning=tuning)
    check(np.asfortranarray(a), np.asfortranarray(a.T), EMULATIONS[name], tuning=tuning)


def test_halves_two_at_a_time() -> None:
    """What the machine is asked for, of all signs and both halves."""
    numbers = [0.0, -0.0, 1.0, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 1 + 2.0**-11, 65504, 1e-30]
    for first, second in product([*numbers, *[-one for one in numbers]], repeat=2):
        for halves, nearest in ((nearest_halves, True), (cut_halves, False)):
            word = halves(np.float32(first), np.float32(second))
            for x, found in ((first, first_half(word)), (second, second_half(word))):
                assert abs(found - x) <= 2.0 ** (-11 if nearest else -10) * max(abs(x), 2.0**-14)
                assert nearest or abs(found) <= abs(x)
                assert found != 0 or not np.signbit(found)


@pytest.mark.parametrize("order", ["CC", "FF"])
@pytest.mark.parametrize("name", ["fp16", "fp16x3", "legemm", "bf16x6", "tf32x3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_leave_are_zeros(order: str, name: str, dtype: type) -> None:
    a, b = operands("normal", 18, 100, 17, dtype, order, seed=5)
    a[3, 90] = np.nan
    a[16, 0], a[16, 99] = np.inf, -np.inf
    a[17] = -np.inf
    b[60, 16] = np.nan
    b[61, 2] = np.inf
    a[5, 40], a[6, 40], b[3, 11] = -65504, np.nextafter(dtype(65504), np.inf, dtype=dtype), 1e5
    left, right = check(a, b, EMULATIONS[name])
    assert left.nonfinite.sum() == 3
    assert right.nonfinite.sum() == 2
    within = name not in ("fp16", "legemm")
    assert left.outlier.sum() == right.outlier.sum() == (0 if within else 1)


@pytest.mark.parametrize("name", ["fp16x3", "bf16x9", "tf32x3", "wider"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_range(name: str, dtype: type) -> None:
    info = np.finfo(dtype)
    a, _ = operands("normal", 14, 40, 8, dtype, seed=7)
    a[10:, 3:] = np.ldexp(a[10:, 3:], np.arange(-148, -111))  # the wider scheme holds two of these
    a[10:, 0] = 2.0**19.9, 2.0**20, 2.0**61.9, 2.0**62
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
    scheme = WIDER if name == "wider" else EMULATIONS[name]
    check(a, np.ascontiguousarray(a.T), scheme)
    check(np.asfortranarray(a), np.asfortranarray(a.T), scheme)


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 2, 5), (7, 31, 9), (33, 33, 34), (2, 64, 32), (8, 129, 31), (5, 256, 8)],
    ids=str,
)
@pytest.mark.parametrize("order", ["CC", "FF"])
@pytest.mark.parametrize("name", ["fp16x3", "tf32x3"])
def test_every_shape(shape: tuple[int, int, int], order: str, name: str) -> None:
    check(*operands("normal", *shape, np.float32, order, seed=2), EMULATIONS[name])


@pytest.mark.parametrize("k", [257, 520])
def test_rows_longer_than_their_threads_hold(k: int) -> None:
    a, b = operands("normal", 3, k, 2, seed=3)
    a[1, -1] = b[-1, 0] = np.nan  # what is read last
    for items in (1, 2):
        check(a, b, FP16X3, tuning=Tuning(SMALL_ROWS._replace(items=items)))
        check(b.T, a.T, FP16X3, tuning=Tuning(SMALL_ROWS._replace(items=items)))


def test_as_many_threads_as_on_a_device() -> None:
    a, b = operands("normal", 3, 600, 34, seed=4)
    b[500, 33] = np.inf
    check(a, b, FP16X3, tuning=Tuning(rows.RowTuning(), rows.PanelTuning(patience=1)))


def test_batches_and_operands_of_two_types() -> None:
    rng = np.random.default_rng(10)
    a = rng.standard_normal((2, 9, 70)).astype(np.float32)
    b = rng.standard_normal((2, 70, 34))
    a[1, 4, 4] = b[1, 3, 33] = np.nan
    check(a, b.astype(np.float32), FP16X3)
    check(a[1], b[1], FP16X3)
    check(a[1].astype(np.float64) * (1 + 1e-12), b[0].astype(np.float32), FP16X3)
