"""Packing by whole rows: the kernels in Numba's simulator, the host's part, and all on a GPU."""

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.packing.rows import Tuning, row_packing, shares, suits
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES
from mixpert_py.runtime.splitter import FloatSlices
from tests.runtime.families import FAMILIES
from tests.runtime.packing.child import run
from tests.runtime.packing.expected import reference

EMULATIONS = {name: entry for name, entry in SCHEMES.items() if isinstance(entry, Scheme)}
INT8X6 = EMULATIONS["int8x6"]
SPLITTERS = INT8X6.left, INT8X6.right


@pytest.mark.parametrize("checks", ["row_checks", "row_float_checks"])
def test_kernels_in_the_simulator(checks: str) -> None:
    assert "passed" in run(f"tests/runtime/packing/simulated/{checks}.py", simulated=True)


def test_kernels_compile() -> None:
    assert "passed" in run("tests/runtime/packing/row_compiled_checks.py", simulated=False)


def form(rows: int, k: int, order: str = "C", memory: str = "float32", batch: int = 1) -> Form:
    strides = (k, 1) if order == "C" else (1, rows)
    return Form(memory, batch, rows, k, rows * k, *strides, True)


FLOATS = {name for name, scheme in EMULATIONS.items() if isinstance(scheme.left, FloatSlices)}


def test_all_of_k_as_one_block_suits() -> None:
    forms = form(64, 1000), form(40, 1000, "F")
    suited = {
        name
        for name, scheme in EMULATIONS.items()
        if suits((scheme.left, scheme.right), forms, scheme.lengths(1000)[1], False, "loss")
    }
    assert suited == {"int8x1", "int8x3", "int8x6", "int8x8"} | FLOATS
    halves = EMULATIONS["fp16x3"].left, EMULATIONS["fp16x3"].right
    assert suits(halves, forms, 1000, False, "ratio")
    assert not suits(halves, forms, 1000, True, "none")
    assert suits(SPLITTERS, forms, 1000, False, "none")
    assert not suits(SPLITTERS, forms, 1000, True, "loss")
    assert not suits(SPLITTERS, forms, 1000, False, "ratio")
    assert not suits(SPLITTERS, forms, 999, False, "loss")
    apart = form(64, 1000)._replace(row_stride=2000, k_stride=2)
    assert not suits(SPLITTERS, (apart, forms[1]), 1000, False, "loss")


@pytest.mark.parametrize("k", [1, 8, 64, 100, 1024, 2049, 8192, 8193, 16384, 40000])
@pytest.mark.parametrize("itemsize", [4, 8])
def test_threads_hold_rows_or_read_them_twice(k: int, itemsize: int) -> None:
    threads, items, again = shares(k, itemsize)
    assert items * itemsize <= 16
    assert again == (threads * items * 8 < k)
    assert threads == 256 or again or threads * items * 4 < k


@pytest.mark.parametrize("k", [1, 64, 100, 1024, 8192, 40000])
@pytest.mark.parametrize("rows", [1, 127, 1000, 8192])
@pytest.mark.parametrize("orders", ["CF", "FC"])
def test_every_element_is_somebodys(k: int, rows: int, orders: str) -> None:
    forms = form(rows, k, orders[0], batch=2), form(33, k, orders[1])
    how = row_packing(SPLITTERS, forms, "float32", "loss")
    threads, _, _, _, across = how.constants
    for x, cover, place in zip(forms, how.covers, how.layouts, strict=True):
        if cover.along:
            assert cover.strips * (threads >> cover.share_log) >= x.rows
            assert 8 <= 1 << cover.share_log <= threads
        else:
            assert (cover.strips - 1) * 32 * across < x.rows <= cover.strips * 32 * across
            assert (cover.looks - 1) * cover.look < k <= cover.looks * cover.look
            assert (cover.pieces - 1) * cover.piece < place.steps * 64
            assert place.steps * 64 <= cover.pieces * cover.piece
            assert cover.piece % 64 == 0


@pytest.mark.parametrize(("k", "alone"), [(1, False), (1024, False), (4096, True), (40000, True)])
def test_two_rows_to_a_block_where_threads_do(k: int, alone: bool) -> None:
    forms = form(64, k), form(40, k)
    how = row_packing(SPLITTERS, forms, "float32", "loss")
    threads, _, again, found, _ = how.constants
    assert found == alone == (1 << how.covers[0].share_log == threads)
    how = row_packing(SPLITTERS, forms, "float32", "loss", Tuning(together=2))
    assert how.constants[2:4] == (again, again)
    assert how.covers[0].strips == 64 if again else how.covers[0].strips <= 32


@pytest.mark.parametrize("empty", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
def test_nothing_is_not_packed(empty: tuple[int, int, int]) -> None:
    rows, k, batch = empty
    with pytest.raises(ShapeError, match="nothing to pack"):
        row_packing(SPLITTERS[:1], (form(rows, k, batch=batch),), "float32", "loss")


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(67, 64, 40), (130, 1033, 290), (9, 5000, 300), (40, 20001, 44)])
def test_bits_on_the_device(order: str, dtype: type, shape: tuple[int, int, int]) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows
    from mixpert_py.runtime.packing.rows import pack_rows
    from tests.runtime.cuda.layout import lay_out

    a, b = FAMILIES["normal"](np.random.default_rng(0), *shape)
    a, b = a.astype(dtype), b.astype(dtype)
    a[3], b[:, 4] = np.rint(a[3] * 20), np.rint(b[:, 4] * 20)
    a[5, 7], b[11, 8] = np.nan, -np.inf
    a[6] = -0.0039375  # a one beside it: all second digits are −128
    a[6, 1] = 1
    b[:, 9] = a[6]
    x, y = (cupy.array(one, order=letter) for one, letter in zip((a, b), order, strict=True))
    name = np.dtype(dtype).name
    packed = [pack_rows((by_rows(x), by_columns(y)), SPLITTERS, name) for _ in range(2)]
    for one, again, wide in zip(*packed, (a, b.T), strict=True):
        wanted = reference(wide, INT8X6.left, INT8X6, "loss")
        flags = wanted.nonfinite + 2 * wanted.outlier.any(axis=1)
        assert (flags > 0).sum() == 2
        laid = lay_out(wanted, INT8X6.left, INT8X6, wide.shape[1])
        for found in (one, again):
            np.testing.assert_array_equal(found.view("flags").get()[0], flags)
            scales = found.view("scales").get()[0, 0]
            np.testing.assert_array_equal(scales[flags == 0], laid.scales[0][flags == 0])
            assert not (scales[flags > 0] & 511).any()
            slices = found.view("slices").get()[0][:, :, : len(flags)]
            kept = laid.slices[: one.steps, :, : len(flags)]
            np.testing.assert_array_equal(slices[:, :, flags == 0], kept[:, :, flags == 0])


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(FLOATS))
@pytest.mark.parametrize("shape", [(67, 64, 40), (130, 1033, 290), (9, 9001, 60)])
def test_bits_of_floats_on_the_device(
    order: str, dtype: type, name: str, shape: tuple[int, int, int]
) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows
    from mixpert_py.runtime.packing.rows import pack_rows
    from tests.runtime.cuda.layout import lay_out

    a, b = FAMILIES["normal"](np.random.default_rng(0), *shape)
    a, b = a.astype(dtype), b.astype(dtype)
    a[1], b[:, 2] = a[1] * 2.0**-14, b[:, 2] * 2.0**-20  # halves that are subnormal
    a[2] = np.ldexp(a[2], np.arange(shape[1]) % 60 - 50)
    a[3, 1::2] = -0.0
    a[4] = np.rint(a[4] * 1000) * 2.0**-27  # ties among subnormal halves
    a[5, 7], b[11, 8] = np.nan, -np.inf
    a[6, 8], b[12, 9] = 1e5, -65504
    if dtype is np.float64:
        a[7], b[:, 10] = a[7] * 2.0**-1030, b[:, 10] * 2.0**-1000
    x, y = (cupy.array(one, order=letter) for one, letter in zip((a, b), order, strict=True))
    scheme = EMULATIONS[name]
    packed = pack_rows((by_rows(x), by_columns(y)), (scheme.left, scheme.right), a.dtype.name)
    for found, wide, splitter in zip(packed, (a, b.T), (scheme.left, scheme.right), strict=True):
        wanted = reference(wide, splitter, scheme, "loss")
        flags = wanted.nonfinite + 2 * wanted.outlier.any(axis=1)
        np.testing.assert_array_equal(found.view("flags").get()[0], flags)
        laid = lay_out(wanted, splitter, scheme, wide.shape[1])
        slices = found.view("slices").get()[0][:, :, : len(flags)]
        np.testing.assert_array_equal(slices, laid.slices[: found.steps, :, : len(flags)])
        scales = found.view("scales").get()[0, 0]
        np.testing.assert_array_equal(scales[flags == 0], laid.scales[0][flags == 0])
        assert not (scales[flags > 0] & 511).any()


@pytest.mark.gpu
@pytest.mark.parametrize("across", [1, 4])
@pytest.mark.parametrize("items", [1, 2, 4])
@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("name", ["int8x6", "fp16x3"])
def test_sizes_of_launches_change_no_bit(across: int, items: int, together: int, name: str) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows
    from mixpert_py.runtime.packing.rows import pack_rows

    rng = cupy.random.default_rng(1)
    x = rng.standard_normal((300, 3000), dtype=np.float32)
    y = rng.standard_normal((3000, 200), dtype=np.float32)
    tuning = Tuning(items=items, across=across, looks=32, pieces=64, together=together)
    operands = by_rows(x), by_columns(y)
    splitters = EMULATIONS[name].left, EMULATIONS[name].right
    for one, other in zip(
        pack_rows(operands, splitters, "float32"),
        pack_rows(operands, splitters, "float32", tuning=tuning),
        strict=True,
    ):
        for name in ("slices", "scales", "flags"):
            mine, theirs = (packed.view(name).get() for packed in (one, other))
            if name == "slices":
                mine, theirs = (slices[..., : one.rows, :] for slices in (mine, theirs))
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.gpu
def test_batches_and_one_operand_on_the_device() -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns
    from mixpert_py.runtime.packing.rows import pack_rows

    rng = cupy.random.default_rng(2)
    y = rng.standard_normal((3, 500, 200), dtype=np.float32)
    (stack,) = pack_rows((by_columns(y),), SPLITTERS[:1], "float32")
    assert stack.batch == 3
    for i in range(3):
        (one,) = pack_rows((by_columns(y[i]),), SPLITTERS[:1], "float32")
        for name in ("slices", "scales", "flags"):
            np.testing.assert_array_equal(one.view(name).get()[0], stack.view(name).get()[i])
