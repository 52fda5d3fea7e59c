"""The tile kernel in Numba's simulator against the reference backend and the general kernel, bit
for bit.

Run by `tests/runtime/packing/test_tiles.py` in a process of its own.
"""

import numpy as np
import pytest

from mixpert_py.runtime.packed import Packed
from mixpert_py.runtime.packing.blocks import TileTuning
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import OutlierRule
from tests.every_check import some
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.expected import compare, reference
from tests.runtime.packing.simulated import launches
from tests.runtime.packing.simulated.tile_launches import SMALL, pack


def scheme_of(name: str) -> Scheme:
    found = get(name)
    assert isinstance(found, Scheme)
    return found


NAMES = "mixpert-I", "mixpert-II", "mixpert-III", "mixpert-IV", "mixpert-full"
IV, FULL = scheme_of("mixpert-IV"), scheme_of("mixpert-full")
SUBNORMAL = np.finfo(np.float32).smallest_subnormal

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def check(
    a: Array, b: Array, scheme: Scheme, rule: OutlierRule = "loss", tuning: TileTuning = SMALL
) -> tuple[Packed, Packed]:
    """Packs both operands, and compares all that is left with the reference's."""
    found = pack(a, b, scheme, rule, tuning)
    references = []
    for x, splitter, one in zip(
        (a, b.swapaxes(-1, -2)), (scheme.left, scheme.right), found, strict=True
    ):
        stack = x if x.ndim == 3 else x[None]
        for batch in range(one.layout.batch):
            references.append(reference(stack[batch], splitter, scheme, rule))
            compare(one, one.layout, batch, references[-1], splitter, scheme, False, x.dtype)
    return references[0], references[-1]


def operands(
    family: str, m: int, k: int, n: int, order: str = "CC", seed: int = 0
) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        a, b = FAMILIES[family](np.random.default_rng(seed), m, k, n)
        a, b = a.astype(np.float32), b.astype(np.float32)
    return np.asarray(a, order=order[0]), np.asarray(b, order=order[1])


# Two meet every family, the others every fourth.
MET = [
    (name, place)
    for order, name in enumerate(NAMES)
    for place in range(len(FAMILIES))
    if name in ("mixpert-IV", "mixpert-full") or (place + order) % 4 == 0
]


@pytest.mark.parametrize(("name", "place"), MET)
def test_every_family(name: str, place: int) -> None:
    order = ("CC", "FF", "CF", "FC")[(place + len(name)) % 4]
    check(*operands(list(FAMILIES)[place], 17, 40, 9, order), scheme_of(name))


SHAPES = [
    (1, 1, 1),
    (3, 2, 5),
    (8, 64, 8),
    (7, 63, 9),
    (17, 65, 8),
    (16, 128, 15),
    (2, 129, 31),
    (33, 31, 1),
    (33, 32, 20),
    (32, 256, 8),
    (8, 255, 20),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_every_shape(shape: tuple[int, int, int], order: str) -> None:
    check(*operands("normal", *shape, order, seed=1), IV)


@pytest.mark.parametrize("order", ["CC", "FF"])
@pytest.mark.parametrize(
    "tuning", [TileTuning(64), TileTuning(64, broad=1), TileTuning(256)], ids=str
)
@pytest.mark.parametrize("shape", [(40, 60, 17), (20, 40, 70), (18, 200, 5)], ids=str)
def test_blocks_of_more_warps(order: str, tuning: TileTuning, shape: tuple[int, int, int]) -> None:
    a, b = operands("normal", *shape, order, seed=2)
    a[17, -1], b[3, 4] = np.nan, np.inf
    check(a, b, IV, tuning=tuning)


@pytest.mark.parametrize("rule", ["none", "loss"])
@pytest.mark.parametrize("name", ["mixpert-I", "mixpert-II", "mixpert-IV"])
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_tiles_that_lose_too_much_leave(rule: OutlierRule, name: str, order: str) -> None:
    a = np.full((40, 140), 0.49 * 2.0**-20, np.float32)
    a[3, [20, 130]] = a[39, 70] = 1
    b = np.asarray(a.T, order=order[1])
    left, right = check(np.asarray(a, order=order[0]), b, scheme_of(name), rule)
    # Of A, tiles (0, 0), (0, 4) and (2, 2); the row of tiles between them keeps all of its own.
    lost = rule == "loss"
    assert left.outlier[[0, 15, 16, 39]].sum(axis=1).tolist() == [2 * lost, 2 * lost, 0, lost]
    assert right.outlier.any() == lost


@pytest.mark.parametrize("name", ["mixpert-II", "mixpert-IV", "mixpert-full"])
@pytest.mark.parametrize("order", ["CC", "FF"])
@pytest.mark.parametrize("rule", ["none", "loss"])
def test_rows_that_are_not_finite(name: str, order: str, rule: OutlierRule) -> None:
    """What they hold elsewhere counts for nothing: the largest of tiles that are finite, too."""
    a, b = operands("normal", 36, 70, 18, order, seed=5)
    a[3, 60] = np.nan
    a[3, :50] *= 1000
    a[16, 0], a[16, 69] = np.inf, -np.inf
    a[34] = -np.inf
    b[60, 16] = np.nan
    b[:30, 16] = 1e30
    b[61, 2] = np.inf
    left, right = check(a, b, scheme_of(name), rule)
    assert left.nonfinite.sum() == 3
    assert right.nonfinite.sum() == 2


def test_outliers_beside_rows_that_are_not_finite() -> None:
    a = np.full((20, 70), 0.49 * 2.0**-20, np.float32)
    a[0, 35] = a[16, 35] = 1
    a[[1, 17], [20, 60]] = np.nan
    left, _ = check(a, np.ascontiguousarray(a[:9].T), IV)
    assert left.nonfinite.sum() == 2
    assert left.outlier.any()


@pytest.mark.parametrize("scheme", [IV, FULL], ids=["IV", "full"])
def test_the_ends_of_the_range(scheme: Scheme) -> None:
    """A column of B is another kind of row, 8 to a tile; so each kind has a tile of its own."""
    info = np.finfo(np.float32)
    a, _ = operands("normal", 16 * 9, 40, 8, seed=7)
    a[:16] = SUBNORMAL * np.rint(a[:16] * 10)
    a[16:32] = np.where(a[16:32] > 0, info.max, -info.max)
    a[32:48] = SUBNORMAL
    a[48:64] = np.ldexp(a[48:64], info.maxexp - 4)
    a[64:80] = np.ldexp(a[64:80], info.minexp - 5)
    a[80:96, ::2] = info.max
    a[96:112] = np.ldexp(a[96:112], np.arange(-20, 20))
    a[112:128] = -0.0
    a[128:] = np.ldexp(np.float32(1) - info.epsneg, np.arange(40))
    check(a, np.ascontiguousarray(a.T), scheme)


@pytest.mark.parametrize("scheme", [IV, FULL], ids=["IV", "full"])
@pytest.mark.parametrize("exponent", [-149, -140, -126, -107, -99, -98, 0, 127])
def test_where_rounding_needs_the_room(scheme: Scheme, exponent: int) -> None:
    """Largest entries around 2^e − 2^(e − 22), from which three digits want one exponent more."""
    # Without EVERY_CHECK, what is just beyond and just within; so also for the tiles of B.
    near = 2.0 - np.array(some([0, 1, 2, 3, 4, 8, 16])) * 2.0**-23
    a = np.zeros((16 * len(near), 3), np.float32)
    a[::16, 1] = np.ldexp(near, exponent).astype(np.float32)
    a[~np.isfinite(a)] = np.finfo(np.float32).max
    a[8::16, 2] = -a[::16, 1]
    check(a, np.ascontiguousarray(a.T), scheme)


def test_ties_go_to_even() -> None:
    a = np.arange(-64, 64, dtype=np.float32).reshape(4, 32) / 2
    a[0, 0] = 2.0**20 + 1
    check(a, np.ascontiguousarray(a.T), IV)


def views() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(9)
    a = rng.standard_normal((40, 300)).astype(np.float32)
    b = rng.standard_normal((150, 40)).astype(np.float32)
    return {
        "rows backwards": (a[18::-1, :150], b[::-1, :19]),
        "every second": (a[:38:2, :75], b[::2, 1:21]),
        "offset": (a[1:20, 1:151], b[:, 1:20]),
        "one row for all": (np.broadcast_to(a[:1, :150], (19, 150)), b[:, :9]),
    }


@pytest.mark.parametrize("name", views())
def test_strides(name: str) -> None:
    check(*views()[name], IV)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(shared: bool) -> None:
    rng = np.random.default_rng(10)
    a = rng.standard_normal((2, 18, 40)).astype(np.float32)
    b = rng.standard_normal((40, 20) if shared else (2, 40, 20)).astype(np.float32)
    a[1, 4, 4] = b[..., 3, 17] = np.nan
    if shared:
        b = np.broadcast_to(b, (2, 40, 20))
    assert pack(a, b, IV)[1].layout.batch == (1 if shared else 2)
    check(a if shared else a.swapaxes(1, 2).copy().swapaxes(1, 2), b, IV)


@pytest.mark.parametrize("name", ["mixpert-II", "mixpert-IV"])
@pytest.mark.parametrize("family", ["normal", "spread 4", "spikes"])
def test_as_the_general_kernel(name: str, family: str) -> None:
    """Scales of what is zero as well, which no product depends on."""
    a, b = operands(family, 21, 70, 17, seed=11)
    a[:16, 32:64] = b[:, 8:16] = 0
    a[20, 3] = np.nan
    ours = pack(a, b, scheme_of(name))
    theirs = launches.pack(a, b, scheme_of(name))
    for mine, other in zip(ours, theirs, strict=True):
        rows, rows8 = mine.layout.rows, mine.layout.rows8
        for one in ("scales", "flags", "outliers"):
            np.testing.assert_array_equal(getattr(mine, one), getattr(other, one))
        np.testing.assert_array_equal(
            mine.slices.reshape(-1, rows8, 64)[:, :rows],
            other.slices.reshape(-1, rows8, 64)[:, :rows],
        )


def test_one_operand_alone() -> None:
    a, b = operands("normal", 17, 70, 10)
    (alone,) = pack(a, None, IV)
    both, _ = pack(a, b, IV)
    for name in ("scales", "flags", "outliers"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(both, name))
    shape = (-1, both.layout.rows8, 64)
    np.testing.assert_array_equal(
        alone.slices.reshape(shape)[:, :17], both.slices.reshape(shape)[:, :17]
    )
