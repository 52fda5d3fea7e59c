"""The packing kernels in Numba's simulator against the reference backend, bit for bit.

Run by `tests/runtime/packing/test_packing.py` in a process of its own.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.kernels.intrinsics import (
    cut_halves,
    first_half,
    nearest_halves,
    second_half,
)
from mixpert_py.runtime.packing.readers import Reader as Name
from mixpert_py.runtime.reference.slices import Packed
from mixpert_py.runtime.scheme import Scheme
from tests.runtime.families import Array
from tests.runtime.packing.cases import (
    CASES,
    CROWDED,
    DEFAULT,
    KERNELS,
    ORDERS,
    SCHEMES,
    WHOLE,
    Case,
    difficult,
    normal,
)
from tests.runtime.packing.expected import compare
from tests.runtime.packing.simulated.launches import pack

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def check(
    kernel: Name,
    a: Array,
    b: Array,
    scheme: Scheme,
    tuning: dict[str, Any] | None = None,
) -> list[Packed]:
    found = pack(kernel, a, b, scheme, tuning)
    result, wanted = np.result_type(a, b), []
    for x, one in zip((a, b.swapaxes(-1, -2)), found, strict=True):
        stack = x if x.ndim == 3 else x[None]
        for batch in range(one.layout.batch):
            wide = stack[batch].astype(result)
            wanted.append(compare(one, batch, wide, scheme, x.dtype, kernel in WHOLE))
    return wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_bits_of_the_reference(case: Case) -> None:
    check(case.kernel, *case.pair(), case.made_of)


TUNINGS: list[tuple[Name, str, int, dict[str, Any]]] = [
    ("strips", "int8x6", 250, {"threads": 8}),
    ("strips", "int8x10", 250, {"threads": 64}),
    ("strips", "int8x6", 2600, {"threads": 512}),  # of which some is kept in shared memory
    ("rows", "int8x6", 520, {"threads": 32, "most_threads": 32, "items": 1}),
    ("rows", "fp16x3", 520, {"threads": 32, "most_threads": 32, "items": 2}),
    ("rows", "fp16x3", 200, {"threads": 64, "most_threads": 64}),
    ("rows", "int8x6", 200, {"threads": 128, "most_threads": 128}),
    ("rows", "int8x6", 600, {}),
    ("panels", "int8x6", 140, {"threads": 32, "longest": 1, "blocks": 1}),
    ("panels", "fp16x3", 140, {"threads": 32, "longest": 3, "blocks": 1}),
    ("panels", "int8x6", 140, {"threads": 32, "longest": 3, "blocks": 1}),
    ("panels", "fp16x3", 200, {"threads": 128, "longest": 2, "blocks": 1}),
    ("panels", "int8x6", 400, {}),
    ("strips", "mixpert-IV", 200, {"threads": 32}),
    ("strips", "mixpert-full", 40, {"threads": 128}),
]


@pytest.mark.parametrize(("kernel", "name", "k", "tuning"), TUNINGS, ids=str)
def test_sizes_of_launches_change_no_bit(
    kernel: Name, name: str, k: int, tuning: dict[str, Any]
) -> None:
    m = {"panels": 34}.get(kernel, 5 if k < 2000 else 2)
    a, b = normal(m, k).astype(np.float32), normal(4, k, 1).astype(np.float32)
    a[1, -1], a[m - 1, 2] = 100, np.nan  # what is largest is read last
    b[2], b[3] = np.rint(b[2] * 10), CROWDED
    b[3, k // 2] = 1
    b = b if k < 2000 else b[3:]
    order = ORDERS[kernel][0]
    a, b = np.asarray(a, order=order[0]), np.asarray(b, order=order[1]).T
    check(kernel, a, b, SCHEMES[name], tuning=tuning)


VIEWS = {
    "backwards": lambda x: x[4::-1, 69::-1],
    "rows backwards": lambda x: x[4::-1, :70],
    "every second": lambda x: x[:10:2, :140:2],
    "every second row": lambda x: x[:10:2, :70],
    "offset": lambda x: x[1:6, 1:71],
    "one row for all": lambda x: np.broadcast_to(x[:1, :70], (5, 70)),
    "one column for all": lambda x: np.broadcast_to(x[:5, :1], (5, 70)),
    "one number": lambda x: np.broadcast_to(x[0, 0], (5, 70)),
}


ALONG = [*VIEWS][1:-2]  # in which one direction stays contiguous; the others are for strips alone
ALONG.remove("every second")


@pytest.mark.parametrize(
    ("kernel", "view"),
    [(kernel, view) for kernel in KERNELS for view in (VIEWS if kernel == "strips" else ALONG)],
)
def test_any_strides(kernel: Name, view: str) -> None:
    x, scheme = VIEWS[view](normal(10, 140).astype(np.float32)), SCHEMES[DEFAULT[kernel][0]]
    order = ORDERS[kernel]
    if "CC" in order:
        check(kernel, x, x.T, scheme)
    if "FF" in order:
        check(kernel, x.T, x, scheme)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_batches_and_operands_of_two_types(kernel: Name, shared: bool) -> None:
    rows = 34 if kernel in ("panels", "clusters") else 10
    a = np.stack([normal(7, 40, seed) for seed in (0, 1)]).astype(np.float32)
    b = np.stack([normal(rows, 40, seed) for seed in (2, 3)]).astype(np.float32)
    a[1, 4, 4], b[:, -1, 3] = np.nan, np.inf
    along = ORDERS[kernel][0] == "CC"
    if not along:
        a, b = (x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in (a, b))
    b = np.broadcast_to(b[0], b.shape) if shared else b
    scheme, other = (SCHEMES[name] for name in DEFAULT[kernel][:2])
    assert pack(kernel, a, b.swapaxes(1, 2), scheme)[1].layout.batch == (1 if shared else 2)
    gone = sum(int(one.nonfinite.sum()) for one in check(kernel, a, b.swapaxes(1, 2), scheme))
    assert gone == (2 if shared else 3)
    if not shared:
        check(kernel, a[0], b[1].astype(np.float64).T, scheme)
        check(kernel, a[0].astype(np.float64) * (1 + 1e-12), b[1].T, other)


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_operand_alone(kernel: Name) -> None:
    a, b = (np.asarray(x[-11:], order=ORDERS[kernel][0][0]) for x in difficult(np.float32))
    scheme = SCHEMES[DEFAULT[kernel][0]]
    (alone,), (both, _) = pack(kernel, a, None, scheme), pack(kernel, a, b.T, scheme)
    for name in ("scales", "flags", "outliers"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(both, name))
    shape, rows = (-1, both.layout.rows8, 64), both.layout.rows
    np.testing.assert_array_equal(*(x.slices.reshape(shape)[:, :rows] for x in (alone, both)))


def test_halves_two_at_a_time() -> None:
    """What the machine is asked for, of all signs and both halves."""
    numbers = [0.0, -0.0, 1.0, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 1 + 2.0**-11, 65504, 1e-30]
    for first, second in product([*numbers, *[-one for one in numbers]], repeat=2):
        for made, nearest in ((nearest_halves, True), (cut_halves, False)):
            word = made(np.float32(first), np.float32(second))
            for x, found in ((first, first_half(word)), (second, second_half(word))):
                assert abs(found - x) <= 2.0 ** (-11 if nearest else -10) * max(abs(x), 2.0**-14)
                assert nearest or abs(found) <= abs(x)
                assert found != 0 or not np.signbit(found)
