"""The row kernels in Numba's simulator against the reference backend, bit for bit.

Run by `tests/runtime/packing/test_rows.py` in a process of its own.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mixpert_py.runtime.packed import Packed
from mixpert_py.runtime.packing import rows
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import Digits, OutlierRule
from tests.every_check import EVERY_CHECK
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.expected import compare, reference
from tests.runtime.packing.simulated.row_launches import (
    SMALL,
    SMALL_PANELS,
    SMALL_ROWS,
    Tuning,
    pack,
)

INT8X6 = get("int8x6")
assert isinstance(INT8X6, Scheme)

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def check(
    a: Array, b: Array, scheme: Scheme, rule: OutlierRule = "loss", tuning: Tuning = SMALL
) -> tuple[Packed, Packed]:
    """Packs both operands, and compares all that is left with the reference's."""
    found = pack(a, b, scheme, rule, tuning)
    result = np.result_type(a, b)
    references = []
    for x, splitter, one in zip(
        (a, b.swapaxes(-1, -2)), (scheme.left, scheme.right), found, strict=True
    ):
        stack = x if x.ndim == 3 else x[None]
        place = one.layout
        slices = one.slices.reshape(place.batch, place.steps, place.count, place.rows8, 64)
        for batch in range(place.batch):
            wanted = reference(stack[batch].astype(result), splitter, scheme, rule)
            gone = wanted.nonfinite | wanted.outlier.any(axis=1)
            # What is flagged is worth nothing; digits are not cleared.
            assert not (one.scales.reshape(place.batch, -1)[batch][gone] & 511).any()
            cleared = slices.copy()
            if isinstance(splitter, Digits):
                cleared[batch][:, :, np.flatnonzero(gone)] = 0
            left = SimpleNamespace(slices=cleared, scales=one.scales, flags=one.flags)
            compare(left, place, batch, wanted, splitter, scheme, False, x.dtype)
            references.append(wanted)
    return references[0], references[-1]


def operands(
    family: str, m: int, k: int, n: int, dtype: type = np.float32, order: str = "CC", seed: int = 0
) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        a, b = FAMILIES[family](np.random.default_rng(seed), m, k, n)
        a, b = a.astype(dtype), b.astype(dtype)
    return np.asarray(a, order=order[0]), np.asarray(b, order=order[1])


def digits(count: int, fitted: bool) -> Scheme:
    """All of K in one block."""
    splitter = Digits(count, block=None, fitted=fitted)
    return replace(INT8X6, left=splitter, right=splitter)


@pytest.mark.parametrize("place", range(len(FAMILIES)), ids=list(FAMILIES))
def test_every_family(place: int) -> None:
    dtype = (np.float32, np.float32, np.float64)[place % 3]
    check(*operands(list(FAMILIES)[place], 9, 70, 10, dtype, ("CC", "FF")[place % 2]), INT8X6)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("fitted", [False, True], ids=["bare", "fitted"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_count(count: int, fitted: bool, dtype: type) -> None:
    a, b = operands("spread 1", 6, 70, 7, dtype, seed=1)
    a[2] = np.rint(a[2] * 100)
    b[:, 3] = np.rint(b[:, 3])
    a[4], b[:, 5] = 0, 0
    check(a, b, digits(count, fitted))


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 2, 5), (7, 63, 9), (33, 65, 34), (2, 64, 32), (8, 129, 31), (5, 256, 8)],
    ids=str,
)
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_every_shape(shape: tuple[int, int, int], order: str) -> None:
    check(*operands("normal", *shape, np.float32, order, seed=2), INT8X6)


@pytest.mark.parametrize("k", [257, 520])
@pytest.mark.parametrize("items", [1, 2])
def test_rows_longer_than_their_threads_hold(k: int, items: int) -> None:
    a, b = operands("normal", 3, k, 2, seed=3)
    a[1, -1] = b[-1, 0] = 100  # what is largest is read last
    check(a, b, INT8X6, tuning=Tuning(SMALL_ROWS._replace(items=items)))
    check(b.T, a.T, INT8X6, tuning=Tuning(SMALL_ROWS._replace(items=items)))


@pytest.mark.parametrize("k", [65, 200])
@pytest.mark.parametrize("threads", [64, 128])
def test_blocks_of_many_rows(k: int, threads: int) -> None:
    a, b = operands("normal", 5, k, 3, seed=3)
    a[3, 2] = np.nan
    check(
        a,
        b,
        INT8X6,
        tuning=Tuning(SMALL_ROWS._replace(threads=threads), SMALL_PANELS._replace(threads=threads)),
    )


@pytest.mark.parametrize("longest", [1, 3])
def test_blocks_that_do_not_wait_see_the_same(longest: int) -> None:
    a, b = operands("spread 1", 34, 140, 9, order="FC", seed=3)
    a[3, 2] = np.nan
    a[4], b[:, 5] = np.rint(a[4]), np.rint(b[:, 5] * 10)
    a[33, :] = -0.0039375
    a[33, 100] = 1
    for patience in (0, 1):
        of_panels = rows.PanelTuning(32, patience, longest, 1)
        check(a, b, INT8X6, tuning=Tuning(SMALL_ROWS, of_panels))


def test_as_many_threads_as_on_a_device() -> None:
    a, b = operands("normal", 3, 600, 34, seed=4)
    check(a, b, INT8X6, tuning=Tuning(rows.RowTuning(), rows.PanelTuning(patience=1)))


SMALLEST = {"float32": 2.0**-149, "float64": 2.0**-1074}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "scheme",
    [INT8X6, digits(1, True), digits(4, True), digits(1, False), digits(2, False)],
    ids=["int8x6", "1", "4", "1, bare", "2, bare"],
)
def test_small_integers_have_bare_units(dtype: type, scheme: Scheme) -> None:
    """Whatever two digits hold; one bit more, or one element, and units are fitted.

    255 and 65279 lie halfway between what one digit, or two, can hold, and what they cannot.
    """
    rng = np.random.default_rng(5)
    tops = np.array([1, 2, 100, 127, 128, 255, 256, 16383, 32639, 32640, 32767, 65279, 65535])
    a = np.rint(rng.uniform(-1, 1, (26, 40)) * np.repeat(tops, 2)[:, None])
    a[:, 7] = np.repeat(tops, 2)
    a[1::2, 9] += 0.5
    a = np.concatenate([a, a[::5] * 2.0**-80, a[::5] * SMALLEST[np.dtype(dtype).name]])
    a[-3:, 20] = np.ldexp(1.0, -140)
    b = np.ascontiguousarray(a.T)
    left, _ = check(a.astype(dtype), b.astype(dtype), scheme)
    if scheme is INT8X6:
        assert (left.significands == 1).any()
        assert (left.significands != 1).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_ends_of_the_range(dtype: type, count: int) -> None:
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
    check(a, np.ascontiguousarray(a.T), digits(count, True))


@pytest.mark.parametrize("order", ["CC", "FF"])
@pytest.mark.parametrize("scheme", [INT8X6, digits(4, False)])
def test_rows_that_are_not_finite(order: str, scheme: Scheme) -> None:
    a, b = operands("normal", 18, 100, 17, order=order, seed=5)
    a[3, 90] = np.nan
    a[16, 0], a[16, 99] = np.inf, -np.inf
    a[17] = -np.inf
    b[60, 16] = np.nan
    b[61, 2] = np.inf
    left, right = check(a, b, scheme)
    assert left.nonfinite.sum() == 3
    assert right.nonfinite.sum() == 2


def ruled_by_ones(m: int, k: int, rest: float) -> Array:
    """Small entries, and one in the middle of all rows but the last."""
    a = np.full((m, k), rest, np.float32)
    a[:-1, k // 2] = 1
    return a


@pytest.mark.parametrize(
    ("scheme", "k", "rest"),
    [
        (INT8X6, 70, -0.0039375),  # the second digit of all but one is −128
        (digits(1, False), 1200, 0.0077),  # less than half of the unit
        *[(digits(1, True), 4800, 0.0038)] * EVERY_CHECK,
    ],
    ids=["crowded", "lossy", *["lossy, fitted"] * EVERY_CHECK],
)
def test_what_one_entry_rules_leaves(scheme: Scheme, k: int, rest: float) -> None:
    a = ruled_by_ones(4, k, rest)
    a[1, 3] = np.nan
    # Long ones take seconds, and what is never lost is the same at any length.
    rules: tuple[OutlierRule, ...] = ("loss", *["none"] * (EVERY_CHECK or k < 1000))
    for rule in rules:
        lost = rule == "loss"
        for one in check(a, np.ascontiguousarray(a.T), scheme, rule):
            assert one.nonfinite.tolist() == [False, True, False, False]
            assert one.outlier.any(axis=1).tolist() == [lost, False, lost, False]


def views() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(9)
    a = rng.standard_normal((40, 300)).astype(np.float32)
    b = rng.standard_normal((150, 40)).astype(np.float32)
    return {
        "rows backwards": (a[8::-1, :150], b[::-1, :9]),
        "every second": (a[:18:2, :150], b[::2, 1:11]),
        "offset": (a[1:10, 1:151], b[:, 1:10]),
        "one row for all": (np.broadcast_to(a[:1, :150], (9, 150)), b[:, :9]),
    }


@pytest.mark.parametrize("name", views())
def test_any_strides(name: str) -> None:
    a, b = views()[name]
    if a.shape[1] != b.shape[0]:
        a = a[:, : b.shape[0]]
    check(a, b, INT8X6)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(shared: bool) -> None:
    rng = np.random.default_rng(10)
    a = rng.standard_normal((2, 9, 70)).astype(np.float32)
    b = rng.standard_normal((70, 34) if shared else (2, 70, 34)).astype(np.float32)
    a[1, 4, 4] = b[..., 3, 33] = np.nan
    if shared:
        b = np.broadcast_to(b, (2, 70, 34))
    assert pack(a, b[..., :1], INT8X6)[1].layout.batch == (1 if shared else 2)
    check(a, b, INT8X6)
    check(a.swapaxes(1, 2).copy().swapaxes(1, 2), b, INT8X6)


def test_operands_of_two_types() -> None:
    a, b = operands("normal", 9, 70, 10)
    check(a, b.astype(np.float64), INT8X6)
    check(a.astype(np.float64) * (1 + 1e-12), b, INT8X6)


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_operand_alone(order: str) -> None:
    a, b = operands("normal", 9, 70, 10, order=order + "C")
    (alone,) = pack(a, None, INT8X6)
    both, _ = pack(a, b, INT8X6)
    for name in ("scales", "flags"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(both, name))
    shape = (-1, both.layout.rows8, 64)
    np.testing.assert_array_equal(
        alone.slices.reshape(shape)[:, :9], both.slices.reshape(shape)[:, :9]
    )
