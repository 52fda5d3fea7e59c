"""The kernel for stacks of tiny products in Numba's simulator: each element of C is one chain of
fused multiply-adds.

Run by `tests/runtime/packing/test_packing.py` in a process of its own.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numba import cuda

from mixpert_py.runtime.gpu.tiny import plan
from mixpert_py.runtime.kernels.tiny_block import Memory
from mixpert_py.runtime.kernels.tiny_kernels import tiny_kernel
from tests.runtime.families import Array
from tests.runtime.operands import chained
from tests.runtime.packing.simulated.launches import flat, operand, simulation

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")

View = Callable[[Array], Array]
BESIDE = np.float32(-7)  # what lies beside C


def multiplied(a: Array, b: Array, room: Array, view: View) -> tuple[Memory, Memory, bool]:
    """view(room) = A·B by the kernel. How it is read, and whether it is written by fours."""
    x, y, out = operand(a, False), operand(b, True), view(room)
    aligned = out.__array_interface__["data"][0] % 16 == 0
    constants, grid, threads, words = plan(x.form, y.form, len(out), out.strides, aligned)
    memory = flat(out)
    function, _ = tiny_kernel(*constants)
    with simulation():
        cuda.jit(function)[grid, threads](flat(a), flat(b), memory, *words)
    first = view(np.arange(room.size)).flat[0]
    room[...] = np.roll(memory, first)
    left, right, wide = constants[3:]
    return left, right, wide


def check(
    a: Array, b: Array, size: int | None = None, view: View | None = None
) -> tuple[Memory, Memory, bool]:
    """That all of C is right, to the bit but for NaN's, and nothing is written beside it."""
    wanted = chained(a, b)
    room = np.full(size or wanted.size, BESIDE)
    view = view or (lambda x: x.reshape(wanted.shape))
    read = multiplied(a, b, room, view)
    same(view(room), wanted)
    beside = np.ones(room.size, bool)
    beside[view(np.arange(room.size))] = False
    assert (room[beside] == BESIDE).all()
    return read


def same(found: Array, wanted: Array) -> None:
    nowhere = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nowhere)
    bits, others = (np.ascontiguousarray(x).view(np.uint32) for x in (found, wanted))
    np.testing.assert_array_equal(bits[~nowhere], others[~nowhere])


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# All that a thread may have: whole tiles and parts of them, one row, one column, chains of any rest
# of K, more lanes than a warp; blocks of 4 to 128 products, the last one full or not.
SIZES = {
    (16, 16, 16): 9,
    (4, 4, 4): 130,
    (5, 5, 5): 64,
    (3, 7, 2): 45,
    (1, 16, 16): 33,
    (16, 16, 1): 13,
    (1, 1, 1): 129,
    (12, 10, 8): 13,
    (6, 5, 12): 19,
    (20, 3, 28): 4,
    (32, 32, 32): 5,
    (31, 2, 9): 5,
}


@pytest.mark.parametrize("orders", ["CC", "FF"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, int, int], orders: str) -> None:
    (m, k, n), batch = size, SIZES[size]
    a, b = normal(batch, m, k), normal(batch, k, n, seed=1)
    if orders == "FF":
        a, b = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (a, b))
    left, right, wide = check(a, b)
    assert left.wide
    assert right.wide
    assert wide


LAYOUTS: dict[str, tuple[str, bool, View]] = {
    "transposed": ("across", True, lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)),
    "gaps": ("along", True, lambda x: np.pad(x, ((0, 0), (0, 2), (4, 4)))[:, :-2, 4:-4]),
    "odd gaps": ("along", False, lambda x: np.pad(x, ((0, 0), (0, 0), (0, 1)))[:, :, :-1]),
    "unaligned": ("along", False, lambda x: np.pad(x.ravel(), (1, 0))[1:].reshape(x.shape)),
    "reversed": ("along", False, lambda x: x[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1]),
    "stack reversed": ("along", True, lambda x: x[::-1].copy()[::-1]),
    "stack inside": ("stack", False, lambda x: np.stack([*x], axis=-1).transpose(2, 0, 1)),
    "every other": ("along", False, lambda x: x.repeat(3, 2).repeat(2, 1)[:, ::2, ::3]),
}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, side: int) -> None:
    order, wide, view = LAYOUTS[layout]
    pair = [normal(10, 8, 8), normal(10, 8, 8, seed=1)]
    pair[side] = view(pair[side])
    if layout == "every other" and side == 1:
        order = "along"
    assert check(pair[0], pair[1])[side] == (order, wide)


@pytest.mark.parametrize(("size", "side"), [((8, 8, 8), 0), ((5, 3, 6), 1)], ids=str)
def test_one_matrix_for_all(size: tuple[int, int, int], side: int) -> None:
    m, k, n = size
    pair = [normal(37, m, k), normal(37, k, n, seed=1)]
    one = pair[side][4]
    for pair[side] in (one, np.broadcast_to(one, (37, *one.shape))):
        check(*pair)


@pytest.mark.parametrize(
    ("k", "size", "view", "wide"),
    [
        (8, 10 * 9 * 12, lambda x: x.reshape(10, 9, 12)[:, 1:, 4:], True),
        (8, 10 * 8 * 9, lambda x: x.reshape(10, 8, 9)[..., 1:], False),
        (8, 10 * 8 * 8, lambda x: x.reshape(10, 8, 8).swapaxes(1, 2), False),
        (8, 10 * 8 * 8, lambda x: x.reshape(10, 8, 8)[::-1, ::-1, ::-1], False),
        (8, 20 * 8 * 8, lambda x: x.reshape(20, 8, 8)[::2], True),
        (7, 40 * 6 * 8, lambda x: x.reshape(40, 6, 8)[:, 1:, 2:], False),
        (7, 40 * 5 * 6, lambda x: x.reshape(5, 6, 40).transpose(2, 0, 1), False),
    ],
)
def test_out_of_any_strides(k: int, size: int, view: View, wide: bool) -> None:
    batch, m, n = view(np.zeros(size)).shape
    assert check(normal(batch, m, k), normal(batch, k, n, seed=1), size, view)[2] == wide


def test_what_is_not_finite_reaches_what_it_should() -> None:
    a, b = normal(10, 8, 8), normal(10, 8, 8, seed=1)
    a[0, 1, 2], a[1, 3, 4], a[2, 5, 6] = np.nan, np.inf, -np.inf
    b[0, 3, 2], b[3, 5, 1] = np.inf, np.nan
    a[4, 2, 2], b[4, 2, 3] = np.inf, 0  # an element that is NaN
    b[4, 2, 3] = 0
    a[5] *= np.float32(1e-30)
    b[5] *= np.float32(1e-12)  # subnormal
    a[6] *= np.float32(1e30)
    b[6] *= np.float32(1e12)  # overflows
    a[7], b[7, :4] = 0, -0.0
    a[8] *= np.float32(-1e-40)
    b[8] *= np.float32(1e-20)  # a zero with a sign
    check(a, b)
