"""Small products in one launch: the host's part, and on a GPU the bits of the ordinary path."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import small
from mixpert_py.runtime.gpu.small import definitions_of, launch_words, safe_squares, suits
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.model.tile import HOPPER, PORTABLE, Chip
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import FIT, Digits
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES

INT8X6 = EMULATIONS["int8x6"]
SUITED = ["int8x6", "int8x3", "int8x1"]
H200 = Chip(HOPPER, 132, 227 * 1024)


def form(rows: int = 128, k: int = 128, order: str = "C", batch: int = 1000) -> Form:
    """Of A in C order, or of B's columns in Fortran's."""
    strides = (k, 1) if order == "C" else (1, rows)
    return Form("float32", batch, rows, k, rows * k, *strides, True)


def fits(a: Form, b: Form, scheme: Scheme = INT8X6, batch: int = 1000, **more: Any) -> bool:
    return suits(a, b, scheme, **({"batch": batch, "chip": H200} | more))


def test_integer_schemes_of_fitted_digits_suit() -> None:
    suited = {name for name, it in EMULATIONS.items() if fits(form(), form(order="F"), it)}
    assert suited == set(SUITED)
    assert fits(form(), form(), INT8X6.with_block(1000))
    assert not fits(form(), form(), INT8X6.with_block(100))


@pytest.mark.parametrize(
    ("a", "b", "more"),
    [
        (form(), form(), {"batch": 31}),
        (form(257), form(), {}),
        (form(), form(257), {}),
        (form(k=257), form(k=257), {}),
        (form()._replace(memory="float64"), form(), {}),
        (form(), form()._replace(row_stride=256, k_stride=2), {}),
        (form(), form()._replace(row_stride=small.WIDEST_STRIDE + 1), {}),
        (form(), form(), {"rule": "none"}),
        (form(), form(), {"measure": True}),
        (form(), form(), {"chip": Chip(PORTABLE, 132, 227 * 1024)}),
        (form(k=256), form(k=256), {"chip": Chip(HOPPER, 132, 99 * 1024)}),
    ],
    ids=str,
)
def test_what_does_not_suit(a: Form, b: Form, more: dict[str, Any]) -> None:
    assert not fits(a, b, **more)


@pytest.mark.parametrize(("k", "steps"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 4), (256, 4)])
def test_blocks_find_room_for_all_of_k(k: int, steps: int) -> None:
    assert fits(form(k=k), form(k=k))
    assert small.steps_of(k) == steps
    reserved = 1024  # by the driver, for each block
    assert small._blocks(steps) * (small._shared(INT8X6, steps) + reserved) <= 228 * 1024


@pytest.mark.parametrize(
    ("x", "vector"),
    [
        (form(), True),
        (form(order="F"), True),
        (form(127), True),
        (form(127, order="F"), False),
        (form(k=127), False),
        (form()._replace(row_stride=130), False),
        (form()._replace(batch_stride=2), False),
        (form(batch=1)._replace(batch_stride=2), True),
        (form()._replace(aligned=False), False),
    ],
    ids=str,
)
def test_wide_loads_are_aligned_and_whole(x: Form, vector: bool) -> None:
    assert small._is_vector(x) == vector


def test_words_of_a_launch() -> None:
    a, b = form(200, 64, "C", batch=1), form(129, 64, "F", batch=50)
    grid, (left, right, rest) = launch_words(a, b, 50, 30_000, 140, 132)
    assert grid == 50 * 2 * 2
    assert left == (0, 64, 200, 64)
    assert right == (129 * 64, 129, 129, 64)
    assert rest == (30_000, 140, 2, 2, 3 * 132)


@pytest.mark.parametrize("name", SUITED)
def test_one_source_for_every_scheme(name: str) -> None:
    definitions = definitions_of(EMULATIONS[name], 2, False, True, True)
    text = source_text(small.FILE, definitions)
    assert len(dict(definitions)) == len(definitions)
    assert "#include" not in text
    ruled = dict(definitions)["SAFE"] != 0
    assert ruled == (name == "int8x6")


@pytest.mark.parametrize("name", SUITED)
def test_no_row_loses_as_much_as_the_rule_asks_for(name: str) -> None:
    """The kernel does not look at what rounding loses: see its first lines."""
    splitter = EMULATIONS[name].left
    assert isinstance(splitter, Digits)
    largest = 0.5 * 2.0**splitter.shift  # at least
    worth = (0.5 * FIT + 1) / 256  # of a unit, where the largest is that
    assert small.LONGEST * (1.25 * worth / largest) ** 2 < splitter.loss_limit**2


def test_rows_with_large_first_digits_are_safe() -> None:
    limit = 6144.0
    first = safe_squares(limit) / small.LONGEST  # of each of a row's entries, squared
    within = (np.sqrt(first) - 32_896 / 65_536) ** 2 * small.LONGEST
    # In units of 4^(8 · digits − 8); 4^-shift is 4^-7 beside that.
    assert limit * 4.0**-7 * within >= 2.0**14
    assert first < 127**2 / 50  # normal rows of 128 are far from it


BATCH = 3
SIZES = [(1, 1, 1), (7, 64, 65), (128, 64, 64), (64, 127, 129), (128, 128, 128), (129, 65, 7),
         (200, 129, 1), (65, 200, 200), (136, 256, 132)]  # fmt: skip
ORDERS = ["CC", "CF", "FC", "FF"]


def operands(family: str, m: int, k: int, n: int, batch: int = BATCH) -> tuple[Any, Any]:
    """(batch, m, k) and (batch, k, n) float32, by NumPy."""
    rng = np.random.default_rng(m + k + n)
    pairs = [FAMILIES[family](rng, m, k, n) for _ in range(batch)]
    with np.errstate(over="ignore", under="ignore"):
        a, b = (np.stack(some).astype(np.float32) for some in zip(*pairs, strict=True))
    return a, b


def on_device(x: Any, order: str) -> Any:
    import cupy

    if order == "C":
        return cupy.asarray(x)
    return cupy.asarray(np.ascontiguousarray(x.swapaxes(-1, -2))).swapaxes(-1, -2)


def ordinary(a: Any, b: Any, scheme: Scheme, out: Any) -> tuple[Any, Any]:
    """A·B into out by packed operands; the flags of both."""
    from mixpert_py.runtime.gpu.gemm import gemm
    from mixpert_py.runtime.packing import by_columns, by_rows, pack
    from mixpert_py.runtime.packing.repair import repair

    left, right = pack(by_rows(a), by_columns(b), scheme)
    gemm(left, right, scheme, out)
    repair(left, right, out)
    return left.view("flags").get(), right.view("flags").get()


def in_one(a: Any, b: Any, scheme: Scheme, out: Any) -> tuple[Any, Any]:
    """The same by the kernel for small products."""
    from mixpert_py.runtime.gpu.gemm import chip
    from mixpert_py.runtime.gpu.small import multiply_small
    from mixpert_py.runtime.packing import by_columns, by_rows
    from mixpert_py.runtime.packing.repair import repair

    if chip(0).family is not HOPPER:
        pytest.skip("a kernel for compute capability 9.0")
    left, right = multiply_small(by_rows(a), by_columns(b), scheme, out)
    repair(left, right, out)
    return left.view("flags").get(), right.view("flags").get()


def same_bits(first: Any, second: Any) -> None:
    nowhere = np.isnan(first)
    np.testing.assert_array_equal(nowhere, np.isnan(second))
    np.testing.assert_array_equal(first.view(np.uint32)[~nowhere], second.view(np.uint32)[~nowhere])


def check(a: Any, b: Any, scheme: Scheme = INT8X6) -> tuple[Any, Any]:
    """That both paths agree about device arrays a and b, batches of products; the flags."""
    import cupy

    batch = max(x.shape[0] if x.ndim == 3 else 1 for x in (a, b))
    shape = (batch, a.shape[-2], b.shape[-1])
    wanted, found = (cupy.full(shape, np.nan, np.float32) for _ in range(2))
    theirs = ordinary(a, b, scheme, wanted)
    ours = in_one(a, b, scheme, found)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
    same_bits(found.get(), wanted.get())
    return ours


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bits_of_any_size(size: tuple[int, int, int]) -> None:
    a, b = operands("normal", *size)
    check(on_device(a, "C"), on_device(b, "C"))


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("size", [(128, 128, 128), (64, 127, 129)], ids=str)
@pytest.mark.parametrize("family", ["normal", "integers"])
def test_bits_in_any_layout(orders: str, size: tuple[int, int, int], family: str) -> None:
    a, b = operands(family, *size)
    check(on_device(a, orders[0]), on_device(b, orders[1]))


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ["CC", "FF"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_bits_of_any_family(family: str, orders: str) -> None:
    a, b = operands(family, 64, 100, 72)
    check(on_device(a, orders[0]), on_device(b, orders[1]))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["int8x3", "int8x1"])
def test_bits_of_other_schemes(name: str) -> None:
    for family in ("normal", "integers", "ties", "spikes"):
        a, b = operands(family, 130, 128, 64)
        check(on_device(a, "C"), on_device(b, "C"), EMULATIONS[name])


@pytest.mark.gpu
def test_units_that_are_not_fitted() -> None:
    splitter = replace(INT8X6.left, fitted=False)
    scheme = replace(INT8X6, name="bare", left=splitter, right=splitter)
    a, b = operands("normal", 100, 128, 128)
    check(on_device(a, "C"), on_device(b, "C"), scheme)


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ["CC", "FF"])
def test_rows_that_leave(orders: str) -> None:
    a, b = operands("normal", 128, 128, 128)
    a[0, 3, 5], a[1, 4, 6], a[2, 127, 0] = np.nan, np.inf, -np.inf
    b[0, 7, 8], b[1, 5, 127] = np.nan, -np.inf
    a[:, 9], b[:, :, 10] = 0, 0
    a[:, 11, 1:] = -0.0039375  # a one beside it: all second digits are −128
    a[:, 11, 0] = 1
    b[0, :, 12] = a[0, 11]
    a[:, 13] *= np.float32(2.0**-120)  # unit factors that would overflow
    a[:, 14] *= np.float32(2.0**-140)  # subnormal
    b[:, :, 15] *= np.float32(2.0**124)
    a_flags, b_flags = check(on_device(a, orders[0]), on_device(b, orders[1]))
    assert (a_flags == 1).sum() == 3
    assert (b_flags == 1).sum() == 2
    assert (a_flags == 2).sum() >= BATCH
    assert (b_flags == 2).sum() >= 1


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ["CC", "FF"])
def test_operands_that_all_products_share(orders: str) -> None:
    a, b = operands("normal", 130, 64, 140)
    a[0, 3, 5], b[0, 7, 8] = np.nan, np.inf
    x, y = on_device(a, orders[0]), on_device(b, orders[1])
    for left, right in ((x[0], y), (x[0][None], y), (x, y[0]), (x[0], y[0])):
        check(left, right)


@pytest.mark.gpu
def test_operands_with_gaps_and_off_their_alignment() -> None:
    a, b = operands("normal", 128, 128, 128)
    x, y = on_device(np.pad(a, ((0, 0), (0, 4), (1, 3))), "C"), on_device(b, "C")
    check(x[:, 2:130, 1:129], y)
    check(x[:, :128, 4:124], y[:, :120])


@pytest.mark.gpu
@pytest.mark.parametrize("gap", [1, 2, 4])
def test_out_with_a_row_stride(gap: int) -> None:
    import cupy

    a, b = (on_device(x, "C") for x in operands("normal", 130, 128, 128))
    wanted = cupy.empty((BATCH, 130, 128), np.float32)
    ordinary(a, b, INT8X6, wanted)
    room = cupy.full((BATCH, 131, 128 + gap), 7, np.float32)
    in_one(a, b, INT8X6, room[:, :130, :128])
    same_bits(room[:, :130, :128].get(), wanted.get())
    assert (room[:, 130] == 7).all()
    assert (room[:, :, 128:] == 7).all()


@pytest.mark.gpu
def test_many_products_and_two_runs_give_the_same_bits() -> None:
    import cupy

    rng = cupy.random.default_rng(1)
    a, b = (rng.standard_normal((1000, 128, 128), dtype=np.float32) for _ in range(2))
    first, second, wanted = (cupy.empty((1000, 128, 128), np.float32) for _ in range(3))
    in_one(a, b, INT8X6, first)
    in_one(a, b, INT8X6, second)
    ordinary(a, b, INT8X6, wanted)
    assert (first.view(np.uint32) == second.view(np.uint32)).all()
    assert (first.view(np.uint32) == wanted.view(np.uint32)).all()
