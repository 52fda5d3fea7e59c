"""Packing by tiles: the kernel in Numba's simulator, the host's part, and all on a GPU."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.packing import blocks
from mixpert_py.runtime.packing.blocks import TILES, TileTuning, tile_config, tiles_suit
from mixpert_py.runtime.packing.launch import PackingTask, Which, prepare
from mixpert_py.runtime.packing.operand import DevicePacked, Form, Operand
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.child import run
from tests.runtime.packing.expected import compare, reference

MIXPERT = sorted(name for name in EMULATIONS if name.startswith("mixpert"))
IV = EMULATIONS["mixpert-IV"]
SPLITTERS = IV.left, IV.right
ORDERS = ["CC", "CF", "FC", "FF"]


def test_kernel_in_the_simulator() -> None:
    assert "passed" in run("tests/runtime/packing/simulated/tile_checks.py", simulated=True)


def form(rows: int, k: int, order: str = "C", batch: int = 1) -> Form:
    strides = (k, 1) if order == "C" else (1, rows)
    return Form("float32", batch, rows, k, rows * k if batch > 1 else 0, *strides, True)


@pytest.mark.parametrize("k", [1, 31, 32, 1000])
def test_tiles_of_sevens_suit(k: int) -> None:
    forms = form(64, k), form(40, k, "F")
    suited = {
        name
        for name, scheme in EMULATIONS.items()
        if tiles_suit(PackingTask(scheme, "both", forms, "float32"))
    }
    assert suited == set(MIXPERT)


def test_what_the_general_kernel_keeps() -> None:
    forms = form(64, 1000), form(40, 1000, "F")
    rules: tuple[OutlierRule, ...] = "loss", "none", "ratio"
    task = PackingTask(IV, "both", forms, "float32")
    assert [tiles_suit(task._replace(rule=rule)) for rule in rules] == [True, True, False]
    assert not tiles_suit(task._replace(measure=True))
    assert not tiles_suit(task._replace(result="float64"))
    longer = [replace(splitter, block=64) for splitter in SPLITTERS]
    assert not tiles_suit(task._replace(scheme=replace(IV, left=longer[0], right=longer[1])))
    for other in (
        forms[0]._replace(memory="float64"),
        forms[0]._replace(row_stride=2000, k_stride=2),
        forms[0]._replace(k=0),
    ):
        assert not tiles_suit(task._replace(forms=(other, forms[1])))


@pytest.mark.parametrize("k", [1, 64, 65, 100, 1024, 8192])
@pytest.mark.parametrize("rows", [1, 16, 127, 1000, 8192])
@pytest.mark.parametrize("orders", ORDERS)
def test_every_element_is_somebodys(k: int, rows: int, orders: str) -> None:
    forms = form(rows, k, orders[0], batch=2), form(33, k, orders[1])
    how = tile_config(PackingTask(IV, "both", forms, "float32"))
    total, warps = 0, TILES.threads // 32
    for x, words, place in zip(forms, how.words, how.layouts, strict=True):
        across, deep = words[5:7]
        height = 16 * (warps >> deep)
        assert (across - 1) * height < x.rows <= across * height
        # No more warps along K than it has steps, and all of them where it has, or half.
        assert 1 << deep <= place.steps
        broad = x.k_stride != 1 and across * x.batch >= TILES.broad
        assert 1 << deep == warps >> broad or 2 << deep > place.steps
        total += across * x.batch
    assert how.grid == total
    assert how.lengths == (total - how.words[1][5], k, how.layouts[0].steps)


@pytest.mark.parametrize(
    ("rows", "order", "height"), [(8192, "F", 32), (8192, "C", 16), (4096, "F", 16)]
)
def test_contiguous_rows_are_read_broadly_where_they_are_many(
    rows: int, order: str, height: int
) -> None:
    how = tile_config(PackingTask(IV, "left", (form(rows, 4096, order),), "float32"))
    assert how.grid == rows // height


@pytest.mark.parametrize(
    ("change", "vector"),
    [({}, 1), ({"aligned": False}, 0), ({"row_stride": 101}, 0), ({"batch_stride": 6402}, 0)],
)
def test_wide_loads_only_where_all_are_aligned(change: dict[str, Any], vector: int) -> None:
    x = form(64, 100, batch=2)._replace(**change)
    how = tile_config(PackingTask(IV, "left", (x,), "float32"))
    assert how.words[0][4] == vector


@pytest.mark.parametrize("empty", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
def test_nothing_is_not_packed(empty: tuple[int, int, int]) -> None:
    rows, k, batch = empty
    with pytest.raises(ShapeError, match="nothing to pack"):
        tile_config(PackingTask(IV, "left", (form(rows, k, batch=batch),), "float32"))


def difficult(family: str, m: int, k: int, n: int) -> tuple[Array, Array]:
    """With rows and columns that are not finite, tiles that leave, zeros, and the range's ends."""
    with np.errstate(all="ignore"):
        a, b = FAMILIES[family](np.random.default_rng(0), m, k, n)
        a, b = a.astype(np.float32), b.astype(np.float32)
    a[3, k // 2], b[k - 1, 4] = np.nan, -np.inf
    a[3, : k // 4] = 1e30  # counts for nothing in its tiles
    a[16:32, :64], b[32:64, 16:24] = 0.49 * 2.0**-20, 0.49 * 2.0**-20
    a[17, 7] = b[40, 17] = 1
    a[48:64, 32:64], b[64:96, 8:16] = 0, -0.0
    a[64:80] *= np.float32(2.0**-140)
    a[80:96] *= np.float32(2.0**120)
    return a, b


def pack_tiles(
    operands: tuple[Operand, ...],
    scheme: Scheme = IV,
    rule: OutlierRule = "loss",
    tuning: TileTuning = TILES,
) -> tuple[DevicePacked, ...]:
    """A and B, or B alone, by the tile kernel, on the default stream."""
    which: Which = "both" if len(operands) == 2 else "right"
    task = PackingTask(scheme, which, tuple(x.form for x in operands), "float32", rule)
    return prepare(tile_config(task, tuning)).pack(operands, 0)


def same_bits(one: DevicePacked, other: DevicePacked) -> None:
    for part in ("scales", "flags", "outliers", "slices"):
        mine, theirs = (packed.view(part).get() for packed in (one, other))
        if part == "slices":
            mine, theirs = (slices[..., : one.rows, :] for slices in (mine, theirs))
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("family", ["normal", "spread 4"])
@pytest.mark.parametrize("shape", [(517, 1033, 290), (129, 8200, 64), (1000, 290, 517)], ids=str)
@pytest.mark.parametrize("name", ["mixpert-IV", "mixpert-full"])
def test_bits_of_the_general_kernel(
    order: str, family: str, shape: tuple[int, int, int], name: str
) -> None:
    import cupy

    from mixpert_py.runtime.packing.operand import by_columns, by_rows

    with np.errstate(all="ignore"):
        a, b = difficult(family, *shape)
    x, y = (cupy.array(one, order=letter) for one, letter in zip((a, b), order, strict=True))
    operands = by_rows(x), by_columns(y)
    task = PackingTask(EMULATIONS[name], "both", tuple(one.form for one in operands), "float32")
    whole = blocks.strip_config(task, blocks.shared_memory(operands[0].device))
    general = prepare(whole).pack(operands, 0)
    for _ in range(2):
        found = pack_tiles(operands, EMULATIONS[name])
        for mine, theirs in zip(found, general, strict=True):
            same_bits(mine, theirs)
    assert all((one.view("flags") & 1).any() for one in found)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", ["loss", "none"])
@pytest.mark.parametrize("name", MIXPERT)
@pytest.mark.parametrize("shape", [(130, 512, 64), (97, 333, 40), (100, 97, 33)], ids=str)
def test_bits_of_the_reference(
    order: str, rule: OutlierRule, name: str, shape: tuple[int, int, int]
) -> None:
    import cupy

    from mixpert_py.runtime.packing.operand import by_columns, by_rows

    scheme = EMULATIONS[name]
    with np.errstate(all="ignore"):
        a, b = difficult("normal", *shape)
    x, y = (cupy.array(one, order=letter) for one, letter in zip((a, b), order, strict=True))
    splitters = scheme.left, scheme.right
    packed = pack_tiles((by_rows(x), by_columns(y)), scheme, rule=rule)
    for found, wide, splitter in zip(packed, (a, b.T), splitters, strict=True):
        wanted = reference(wide, splitter, scheme, rule)
        assert wanted.nonfinite.any()
        parts = ("slices", "scales", "flags", "outliers")
        left = SimpleNamespace(**{part: found.view(part).get() for part in parts})
        compare(left, found.layout, 0, wanted, splitter, scheme, False, wide.dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "tuning", [TileTuning(128, 896), TileTuning(256, 1024, broad=1), TileTuning(512, 512)], ids=str
)
def test_sizes_of_launches_change_no_bit(order: str, tuning: TileTuning) -> None:
    import cupy

    from mixpert_py.runtime.packing.operand import by_columns, by_rows

    with np.errstate(all="ignore"):
        a, b = difficult("normal", 300, 1500, 200)
    x, y = (cupy.array(one, order=letter) for one, letter in zip((a, b), order, strict=True))
    operands = by_rows(x), by_columns(y)
    for one, other in zip(
        pack_tiles(operands),
        pack_tiles(operands, tuning=tuning),
        strict=True,
    ):
        same_bits(one, other)


@pytest.mark.gpu
def test_batches_and_one_operand_on_the_device() -> None:
    import cupy

    from mixpert_py.runtime.packing.operand import by_columns

    rng = cupy.random.default_rng(2)
    y = rng.standard_normal((3, 500, 200), dtype=np.float32)
    y[1, 40, 7] = np.nan
    (stack,) = pack_tiles((by_columns(y),))
    assert stack.batch == 3
    for i in range(3):
        (one,) = pack_tiles((by_columns(y[i]),))
        for name in ("slices", "scales", "flags", "outliers"):
            np.testing.assert_array_equal(one.view(name).get()[0], stack.view(name).get()[i])
