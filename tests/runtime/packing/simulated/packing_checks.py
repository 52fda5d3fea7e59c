"""The packing kernel in Numba's simulator against the reference backend, bit for bit.

Run by `tests/runtime/packing/test_packing.py` in a process of its own.
"""

from dataclasses import replace

import numpy as np
import pytest

from mixpert_py.runtime.packed import Packed
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import BF16, FP16, TF32, FloatSlices, OutlierRule
from tests.every_check import some
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.expected import compare, reference
from tests.runtime.packing.simulated.launches import pack

INT8X6, INT8X10 = EMULATIONS["int8x6"], EMULATIONS["int8x10"]
MIXPERT = EMULATIONS["mixpert-IV"]

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def check(
    a: Array,
    b: Array,
    scheme: Scheme,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    threads: int = 16,
) -> tuple[Packed, Packed]:
    """Packs both operands, and compares all that is left with the reference's."""
    found = pack(a, b, scheme, block=block, rule=rule, measure=measure, threads=threads)
    scheme = scheme.with_block(block)
    result = np.result_type(a, b)
    references = []
    for x, splitter, one in zip(
        (a, b.swapaxes(-1, -2)), (scheme.left, scheme.right), found, strict=True
    ):
        stack = x if x.ndim == 3 else x[None]
        for batch in range(one.layout.batch):
            wide = stack[batch].astype(result)
            references.append(reference(wide, splitter, scheme, rule))
            compare(one, one.layout, batch, references[-1], splitter, scheme, measure, x.dtype)
    return references[0], references[-1]


def operands(
    family: str, m: int, k: int, n: int, dtype: type = np.float32, order: str = "CC", seed: int = 0
) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        a, b = FAMILIES[family](np.random.default_rng(seed), m, k, n)
        a, b = a.astype(dtype), b.astype(dtype)
    return np.asarray(a, order=order[0]), np.asarray(b, order=order[1])


# One of each kind meets every family, the others every sixth.
KINDS = ("int8x6", "int8x10", "mixpert-IV", "mixpert-II", "fp16x3", "legemm", "bf16x6", "tf32x3")
MET = [
    (name, place)
    for order, name in enumerate(EMULATIONS)
    for place in range(len(FAMILIES))
    if name in KINDS or (place + order) % 6 == 0
]


@pytest.mark.parametrize(("name", "place"), MET)
def test_every_family(name: str, place: int) -> None:
    family = list(FAMILIES)[place]
    order = ("CC", "FF", "CF", "FC")[place % 4]
    dtype = (np.float32, np.float32, np.float64)[(place + len(name)) % 3]
    a, b = operands(family, 9, 70, 8, dtype, order)
    check(a, b, EMULATIONS[name], measure=place % 2 == 0)


SHAPES = [
    (1, 1, 1),
    (3, 2, 5),
    (8, 64, 8),
    (7, 63, 9),
    (17, 65, 8),
    (16, 128, 15),
    (2, 129, 31),
    (1, 256, 1),
    (33, 31, 1),
    (64, 256, 8),
    (8, 255, 40),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "name", ["int8x6", "int8x10", "mixpert-IV", "mixpert-II", "fp16x3", "tf32x3"]
)
def test_every_shape(name: str, shape: tuple[int, int, int]) -> None:
    order = ("CC", "FF")[shape[1] % 2]
    a, b = operands("normal", *shape, np.float32, order, seed=1)
    check(a, b, EMULATIONS[name])


@pytest.mark.parametrize("rule", ["none", "ratio", "loss"])
@pytest.mark.parametrize("name", ["int8x1", "int8x6", "int8x10", "mixpert-full"])
@pytest.mark.parametrize("family", ["spread 4", "spikes", "uniform [0, 1)"])
def test_rules_for_outliers(name: str, rule: OutlierRule, family: str) -> None:
    a, b = operands(family, 17, 70, 18, seed=2)
    a = np.maximum(a, np.float32(0.5)) if family == "uniform [0, 1)" else a
    left, _ = check(a, b, EMULATIONS[name], rule=rule)
    if rule == "none":
        assert not left.outlier.any()
    if rule == "ratio":
        assert left.outlier.any() == (family != "uniform [0, 1)")


def ruled_by_ones(m: int, k: int, rest: float, every: int = 1) -> Array:
    """Small entries, and one in the middle of all rows but the last, or of a few."""
    a = np.full((m, k), rest, np.float32)
    a[:-1:every, k // 2] = 1
    return a


@pytest.mark.parametrize(
    ("scheme", "k", "rest"),
    [
        (INT8X6, 70, -0.0039375),  # the second digit of all but one is −128
        (EMULATIONS["int8x1"], 6000, 0.0038),  # less than half of the unit
        (MIXPERT, 70, 0.49 * 2.0**-20),
    ],
    ids=["crowded", "lossy", "tile"],
)
def test_what_one_entry_rules_leaves(scheme: Scheme, k: int, rest: float) -> None:
    a = ruled_by_ones(3 if k > 70 else 17, k, rest, scheme.left.group)
    left, right = check(a, a.T[:, :8], scheme, measure=True)
    assert left.outlier[0].any()
    assert right.outlier.any()
    assert not left.outlier.all()


@pytest.mark.parametrize(
    ("block", "k"), [(1, 20), (12, 110), (32, 110), (64, 150), (100, 270), (256, 270)]
)
@pytest.mark.parametrize("scheme", [INT8X6, INT8X10], ids=["fitted", "bare"])
def test_blocks_along_k(scheme: Scheme, block: int, k: int) -> None:
    a, b = operands("spread 1", 9, k, 8, seed=3)
    a[:, 40:90] = 0
    a[2] = 0
    b[k // 2 :, 3] = 0
    check(a, b, scheme, block=block, measure=True)


@pytest.mark.parametrize("block", [32, 128])
def test_blocks_of_very_different_size(block: int) -> None:
    a, b = operands("scaled inside", 9, 200, 8, np.float64, seed=4)
    a[:, 70:140] *= 2.0**-500
    a[3, 150] = 2.0**900
    check(a, b, INT8X6, block=block, measure=True)


@pytest.mark.parametrize(
    "name", ["int8x6", "int8x10", "mixpert-IV", "mixpert-II", "fp16", "bf16x6"]
)
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_rows_that_are_not_finite(name: str, order: str) -> None:
    a, b = operands("normal", 18, 100, 17, order=order, seed=5)
    a[3, 90] = np.nan
    a[16, 0], a[16, 99] = np.inf, -np.inf
    a[17] = -np.inf
    b[60, 16] = np.nan
    b[61, 2] = np.inf
    left, right = check(a, b, EMULATIONS[name], measure=True)
    assert left.nonfinite.sum() == 3
    assert right.nonfinite.sum() == 2


@pytest.mark.parametrize(("scheme", "rest"), [(INT8X6, -0.0039375), (MIXPERT, 0.49 * 2.0**-20)])
@pytest.mark.parametrize("block", [None, 32])
def test_outliers_beside_rows_that_are_not_finite(
    scheme: Scheme, rest: float, block: int | None
) -> None:
    a = ruled_by_ones(20, 70, rest, scheme.left.group)
    a[[1, 17], [20, 60]] = np.nan
    left, _ = check(a, a[:9].T, scheme, block=block if scheme is INT8X6 else None)
    assert left.nonfinite.sum() == 2
    assert left.outlier.any()


@pytest.mark.parametrize(
    "name", ["int8x6", "int8x3", "int8x10", "mixpert-full", "fp16x3", "bf16x9", "tf32x3"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_range(name: str, dtype: type) -> None:
    info = np.finfo(dtype)
    a, b = operands("normal", 10, 40, 8, dtype, seed=7)
    a[0] = info.smallest_subnormal * np.arange(-20, 20)
    a[1] = np.where(a[1] > 0, info.max, -info.max)
    a[2] = info.smallest_subnormal
    a[3] = np.ldexp(a[3], info.maxexp - 4)
    a[4] = np.ldexp(a[4], info.minexp - 5)
    a[5, ::2] = info.max
    a[6] = np.ldexp(a[6], np.arange(-20, 20))
    a[7] = -0.0
    a[8] = np.ldexp(dtype(1) - info.epsneg, np.arange(40))
    check(a, b, EMULATIONS[name], measure=True)


def test_halves_below_their_normal_range() -> None:
    """Every float16 is its own slice, and what lies between two is rounded as NumPy does."""
    halves = np.arange(1 << 10, dtype=np.uint16).view(np.float16).astype(np.float32)
    a = np.stack(
        [halves, -halves, halves * np.float32(1 + 2.0**-11), halves + np.float32(2.0**-25)]
    )
    b = np.ones((1024, 1), np.float32)
    check(a, b, EMULATIONS["fp16"])
    check(a, b, EMULATIONS["markidis-trunc"])


@pytest.mark.parametrize("element", [FP16, BF16, TF32], ids=lambda element: element.name)
@pytest.mark.parametrize("rounding", ["nearest", "zero"])
@pytest.mark.parametrize("step", [0, 11])
def test_every_way_to_slice_floats(element, rounding, step) -> None:
    for scaled in (False, True):
        splitter = FloatSlices(element, 2, rounding, step, scaled)
        scheme = replace(EMULATIONS["fp16x3"], element=element, left=splitter, right=splitter)
        a, b = operands("spread 4", 8, 70, 8, np.float32, "FC", seed=8)
        a[1], a[2] = np.ldexp(a[1], -110), np.ldexp(a[2], 80)
        a[3] = np.ldexp(a[3], np.linspace(-140, 100, 70).astype(int))
        b[:, 2] = np.ldexp(b[:, 2], -12)
        check(a, b, scheme, measure=True)


@pytest.mark.parametrize("name", ["int8x1", "int8x3", "int8x6"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [None, 32])
def test_what_two_digits_hold(name: str, dtype: type, block: int | None) -> None:
    """Each row at another side of a limit, reached in its second half; one entry decides.

    In two rows the first half is just held, and a later entry is not.
    """
    limits = [127, 128, 255, 32_639, 32_640, 65_278, 65_280, 2.0**-14, 2.0**-15, 3 * 2.0**-16]
    a = np.zeros((2 * len(limits) + 6, 70), dtype)
    for i, limit in enumerate(limits):
        a[2 * i, [3, 40]] = 1, limit
        a[2 * i + 1, [11, 69]] = 2, -limit
    info = np.finfo(dtype)
    a[-6, [0, 65]] = 1 + 2.0**-14, 2.0**-15
    a[-5, [0, 65]] = info.smallest_subnormal * np.array([2**20 + 2**6, 1])
    a[-4, [0, 1]] = info.max, info.smallest_subnormal
    a[-3, ::2] = info.smallest_subnormal * np.arange(35)
    a[-2, 5] = info.smallest_subnormal
    a[-1] = np.ldexp(np.arange(70), info.minexp - 4)
    found, _ = check(a, a.T[:, :9], EMULATIONS[name], block=block, measure=True)
    assert (found.significands == 1).any()
    assert (found.significands != 1).any()


def test_groups_that_two_digits_hold() -> None:
    splitter = replace(MIXPERT.left, fitted=True)
    scheme = replace(MIXPERT, left=splitter, right=replace(MIXPERT.right, fitted=True))
    a, b = operands("integers", 40, 70, 17, seed=14)
    a[20, 3], b[60, 16] = 2.0**-12, np.nan
    found, _ = check(a, b, scheme, measure=True)
    fits = (found.significands != 1).any(axis=1)
    assert fits.tolist() == [False] * 16 + [True] * 16 + [False] * 8


def views() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(9)
    a = rng.standard_normal((40, 300)).astype(np.float32)
    b = rng.standard_normal((150, 40)).astype(np.float32)
    column, row = a[:9, :1], a[:1, :150]
    return {
        "backwards": (a[8::-1, 149::-1], b[::-1, 8::-1]),
        "rows backwards": (a[8::-1, :150], b[:, 8::-1]),
        "every second": (a[:18:2, ::2], b[:, 1:19:2]),
        "offset": (a[1:10, 1:151], b[:, 1:10]),
        "one row for all": (np.broadcast_to(row, (9, 150)), b[:, :9]),
        "one column for all": (
            np.broadcast_to(column, (9, 150)),
            np.broadcast_to(b[:, :1], (150, 9)),
        ),
        "one number": (np.broadcast_to(a[0, 0], (9, 150)), b[:, :9]),
        "transposed and strided": (a.T[:150:1, :9].T, b.T[::3].T),
    }


@pytest.mark.parametrize("name", views())
def test_any_strides(name: str) -> None:
    a, b = views()[name]
    check(a, b, INT8X6)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(shared: bool) -> None:
    rng = np.random.default_rng(10)
    a = rng.standard_normal((2, 9, 70)).astype(np.float32)
    b = rng.standard_normal((70, 10) if shared else (2, 70, 10)).astype(np.float32)
    a[1, 4, 4] = np.nan
    if shared:
        b = np.broadcast_to(b, (2, 70, 10))
    found = pack(a, b, INT8X6, threads=16)
    assert found[1].layout.batch == (1 if shared else 2)
    check(a, b, INT8X6)
    check(a.swapaxes(1, 2).copy().swapaxes(1, 2), b, EMULATIONS["fp16x3"])


def test_operands_of_two_types() -> None:
    a, b = operands("normal", 9, 70, 10)
    for scheme in (INT8X6, INT8X10, EMULATIONS["fp16x3"]):
        check(a, b.astype(np.float64), scheme)
        check(a.astype(np.float64) * (1 + 1e-12), b, scheme)


def test_one_operand_alone() -> None:
    a, b = operands("normal", 9, 70, 10)
    (alone,) = pack(a, None, INT8X6, threads=16)
    both, _ = pack(a, b, INT8X6, threads=16)
    for name in ("slices", "scales", "flags"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(both, name))


@pytest.mark.parametrize("threads", [8, 64])
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_threads_do_not_matter(threads: int, order: str) -> None:
    a, b = operands("normal", 9, 250, 3, order=order, seed=11)
    check(a, b, INT8X6, threads=threads, measure=True)
    check(a, b, INT8X10, threads=threads, measure=True)


@pytest.mark.parametrize("order", some(["CC", "FF"]))
def test_as_many_threads_as_on_a_device(order: str) -> None:
    """Enough of K that some of it is kept in shared memory, by two groups of threads."""
    a, b = operands("normal", 2, 2600, 1, order=order, seed=12)
    check(a, b, INT8X6, threads=512)
