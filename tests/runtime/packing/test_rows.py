"""Packing by whole rows: the kernels in Numba's simulator, the host's part, and all on a GPU."""

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.packing import rows
from mixpert_py.runtime.packing.launch import PackingTask, prepare
from mixpert_py.runtime.packing.operand import DevicePacked, Form, Operand
from mixpert_py.runtime.packing.rows import ROWS, RowTuning, row_config, row_threads, rows_suit
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import FloatSlices
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES
from tests.runtime.packing.child import run
from tests.runtime.packing.expected import reference

INT8X6 = EMULATIONS["int8x6"]


@pytest.mark.parametrize("checks", ["row_checks", "row_float_checks"])
def test_kernels_in_the_simulator(checks: str) -> None:
    assert "passed" in run(f"tests/runtime/packing/simulated/{checks}.py", simulated=True)


def form(rows: int, k: int, batch: int = 1) -> Form:
    return Form("float32", batch, rows, k, rows * k, k, 1, True)


FORMS = form(64, 1000), form(40, 1000)
FLOATS = {name for name, scheme in EMULATIONS.items() if isinstance(scheme.left, FloatSlices)}


def test_all_of_k_as_one_block_suits() -> None:
    suited = {
        name
        for name, scheme in EMULATIONS.items()
        if rows_suit(PackingTask(scheme, "both", FORMS, "float32"))
    }
    assert suited == {"int8x1", "int8x3", "int8x6", "int8x8"} | FLOATS
    halves = PackingTask(EMULATIONS["fp16x3"], "both", FORMS, "float32")
    assert rows_suit(halves._replace(rule="ratio"))
    assert not rows_suit(halves._replace(rule="none", measure=True))
    digits = PackingTask(INT8X6, "both", FORMS, "float32")
    assert rows_suit(digits._replace(rule="none"))
    assert not rows_suit(digits._replace(measure=True))
    assert not rows_suit(digits._replace(rule="ratio"))
    assert not rows_suit(digits._replace(scheme=INT8X6.with_block(512)))


@pytest.mark.parametrize("k", [1, 8, 64, 100, 1024, 2049, 8192, 8193, 16384, 40000])
@pytest.mark.parametrize("itemsize", [4, 8])
def test_threads_hold_rows_or_read_them_twice(k: int, itemsize: int) -> None:
    threads, items, again = row_threads(k, itemsize)
    assert items * itemsize == 16
    assert again == (threads * items * 8 < k)
    assert threads == 256 or again or threads * items * 4 < k


@pytest.mark.parametrize("k", [1, 64, 100, 1024, 8192, 40000])
@pytest.mark.parametrize("rows", [1, 127, 1000, 8192])
def test_every_row_is_somebodys(k: int, rows: int) -> None:
    forms = form(rows, k, batch=2), form(33, k)
    how = row_config(PackingTask(INT8X6, "both", forms, "float32"))
    first, share_log, length, steps = how.lengths
    assert (length, steps) == (k, how.layouts[0].steps)
    assert 8 <= 1 << share_log <= how.threads
    strips = [words[-1] for words in how.words]
    for x, count in zip(forms, strips, strict=True):
        assert (count - 1) * (how.threads >> share_log) < x.rows
        assert x.rows <= count * (how.threads >> share_log)
    assert (first, how.grid) == (2 * strips[0], 2 * strips[0] + strips[1])


@pytest.mark.parametrize("empty", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
def test_nothing_is_not_packed(empty: tuple[int, int, int]) -> None:
    rows, k, batch = empty
    with pytest.raises(ShapeError, match="nothing to pack"):
        row_config(PackingTask(INT8X6, "left", (form(rows, k, batch=batch),), "float32"))


def packed_alike(
    operands: tuple[Operand, Operand], scheme: Scheme, result: str
) -> list[DevicePacked]:
    """Both in one launch if they are contiguous and split alike, else each in its own."""
    forms = operands[0].form, operands[1].form
    task = PackingTask(scheme, "both", forms, result, device=operands[0].device)
    along = [x.k_stride == 1 for x in forms]
    parts: list[tuple[PackingTask, tuple[Operand, ...]]] = [(task, operands)]
    if along[0] != along[1] or (not along[0] and scheme.left != scheme.right):
        parts = [(one, (x,)) for one, x in zip(task.each(), operands, strict=True)]
    found: list[DevicePacked] = []
    for part, its in parts:
        config = row_config if part.forms[0].k_stride == 1 else rows.panel_config
        found += prepare(config(part)).pack(its, 0)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(67, 64, 40), (130, 1033, 290), (9, 5000, 300), (40, 20001, 44)])
def test_bits_on_the_device(order: str, dtype: type, shape: tuple[int, int, int]) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows
    from tests.runtime.gpu.layout import lay_out

    a, b = FAMILIES["normal"](np.random.default_rng(0), *shape)
    a, b = a.astype(dtype), b.astype(dtype)
    a[3], b[:, 4] = np.rint(a[3] * 20), np.rint(b[:, 4] * 20)
    a[5, 7], b[11, 8] = np.nan, -np.inf
    a[6] = -0.0039375  # a one beside it: all second digits are −128
    a[6, 1] = 1
    b[:, 9] = a[6]
    x, y = (cupy.array(one, order=letter) for one, letter in zip((a, b), order, strict=True))
    operands = by_rows(x), by_columns(y)
    packed = [packed_alike(operands, INT8X6, np.dtype(dtype).name) for _ in range(2)]
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
    from tests.runtime.gpu.layout import lay_out

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
    packed = packed_alike((by_rows(x), by_columns(y)), scheme, a.dtype.name)
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
@pytest.mark.parametrize(
    "tuning", [RowTuning(items=1), RowTuning(items=2), RowTuning(512)], ids=str
)
@pytest.mark.parametrize("name", ["int8x6", "fp16x3"])
def test_sizes_of_launches_change_no_bit(tuning: RowTuning, name: str) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_rows

    x = cupy.random.default_rng(1).standard_normal((300, 3000), dtype=np.float32)
    x[7, 8] = 1e6
    operand = by_rows(x)
    task = PackingTask(EMULATIONS[name], "left", (operand.form,), "float32")
    one, other = (prepare(row_config(task, how)).pack((operand,), 0)[0] for how in (ROWS, tuning))
    for part in ("slices", "scales", "flags"):
        mine, theirs = (packed.view(part).get() for packed in (one, other))
        if part == "slices":
            mine, theirs = (slices[..., : one.rows, :] for slices in (mine, theirs))
        np.testing.assert_array_equal(mine, theirs)
