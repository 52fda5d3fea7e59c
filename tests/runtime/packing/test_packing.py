"""Packing: the kernels in Numba's simulator, the host's part, and all on a GPU."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.packing import launch as launching
from mixpert_py.runtime.packing.blocks import strip_config
from mixpert_py.runtime.packing.launch import PackingTask, prepare
from mixpert_py.runtime.packing.operand import (
    CACHE_LANES,
    HOPPER,
    MOST_THREADS,
    REDUCTIONS,
    SLACK,
    Form,
    Operand,
    layout,
    of_some,
)
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.child import run
from tests.runtime.packing.expected import compare, reference

INT8X6, INT8X10 = EMULATIONS["int8x6"], EMULATIONS["int8x10"]


def test_kernels_in_the_simulator() -> None:
    assert "passed" in run("tests/runtime/packing/simulated/packing_checks.py", simulated=True)


def form(rows: int, k: int, order: str = "C", memory: str = "float32", batch: int = 1) -> Form:
    strides = (k, 1) if order == "C" else (1, rows)
    return Form(memory, batch, rows, k, rows * k, *strides, True)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("name", EMULATIONS)
@pytest.mark.parametrize("shared", [HOPPER, 99 * 1024], ids=["Hopper", "Ada"])
def test_launches_fit_the_device(orders: str, name: str, shared: int) -> None:
    """With what every kernel takes by itself, whether or not both operands are split alike:
    `compiled_checks` looks that none takes more.
    """
    scheme = EMULATIONS[name]
    sizes = itertools.product(
        [1, 100, 1024, 4096, 8192, 16384, 40000],
        [("float32",) * 2, ("float64",) * 2, ("float32", "float64")],
        [False, True],
        [scheme, scheme.with_block(256)] if name.startswith("int8") else [scheme],
    )
    for k, memories, measure, one in sizes:
        forms = tuple(form(500 - 200 * i, k, orders[i], memories[i]) for i in (0, 1))
        task = PackingTask(one, "both", forms, max(memories), "loss", measure)
        how = strip_config(task, shared)
        assert how.threads <= (MOST_THREADS // 4 if name.startswith("mixpert") else MOST_THREADS)
        assert how.shared + REDUCTIONS <= shared
        assert how.shared == 0 or how.threads >= CACHE_LANES
        for x, words in zip(forms, how.words, strict=True):
            strips = words[6]
            assert (strips - 1) << words[5] < x.rows <= strips << words[5]
            assert how.threads >= 1 << words[5]


def test_what_is_contiguous_decides_who_reads_what() -> None:
    mappings = {
        "K": form(64, 64),
        "rows": form(64, 64, "F"),
        "K, one off": form(64, 64)._replace(aligned=False),
        "K, rows of 63": form(64, 63),
        "neither": form(64, 64)._replace(row_stride=512, k_stride=2),
    }
    found = {name: x.mapping(x.k) for name, x in mappings.items()}
    assert found == {"K": 2, "rows": 1, "K, one off": 0, "K, rows of 63": 0, "neither": 0}


@pytest.mark.parametrize("empty", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
def test_nothing_is_not_packed(empty: tuple[int, int, int]) -> None:
    rows, k, batch = empty
    x = form(rows, k, batch=batch)
    with pytest.raises(ShapeError, match="nothing to pack"):
        strip_config(PackingTask(INT8X6, "left", (x,), "float32"))


@pytest.mark.parametrize(
    ("block", "padded", "steps_per_block"),
    [(1, 32, 0), (20, 32, 0), (32, 32, 0), (33, 64, 1), (100, 128, 2)],
)
def test_no_instruction_multiplies_two_blocks(
    block: int, padded: int, steps_per_block: int
) -> None:
    task = PackingTask(INT8X6.with_block(block), "left", (form(5, 250),), "float32")
    (place,) = strip_config(task).layouts
    assert (place.padded_block, place.steps_per_block) == (padded, steps_per_block)


def on_device(
    a: Array, b: Array, scheme: Scheme, rule: OutlierRule = "loss", measure: bool = False
) -> None:
    """Packs on the GPU, twice, and compares with the reference."""
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows, pack

    result = np.result_type(a, b)
    x, y = (cupy.asarray(one, order="K") for one in (a, b))
    assert x.strides == a.strides
    found = pack(by_rows(x), by_columns(y), scheme, rule=rule, measure=measure)
    again = pack(by_rows(x), by_columns(y), scheme, rule=rule, measure=measure)
    for one, other, wide, splitter in zip(
        found, again, (a, b.T), (scheme.left, scheme.right), strict=True
    ):
        names = ["slices", "scales", "flags"]
        names += ["outliers"] if one.layout.blocks > 1 else []
        names += ["norms"] if measure else []
        views = SimpleNamespace(**{name: one.view(name).get() for name in names})
        wanted = reference(wide.astype(result), splitter, scheme, rule)
        compare(views, one.layout, 0, wanted, splitter, scheme, measure, wide.dtype)
        for name in names:
            if name != "slices":  # rows past the last hold anything
                np.testing.assert_array_equal(other.view(name).get(), getattr(views, name))


def operands(family: str, m: int, k: int, n: int, order: str, dtype: type) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        a, b = FAMILIES[family](np.random.default_rng(m + k), m, k, n)
        a, b = a.astype(dtype), b.astype(dtype)
    return np.asarray(a, order=order[0]), np.asarray(b, order=order[1])


@pytest.mark.gpu
@pytest.mark.parametrize("name", EMULATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["CC", "FF"])
def test_every_scheme_on_the_device(name: str, dtype: type, order: str) -> None:
    for family in ("normal", "spread 4", "subnormal", "scaled rows"):
        on_device(*operands(family, 517, 1033, 290, order, dtype), EMULATIONS[name], measure=True)


@pytest.mark.gpu
@pytest.mark.parametrize("k", [64, 4096, 8192, 20000, 70001])
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
def test_every_length_on_the_device(k: int, order: str) -> None:
    for name in ("int8x6", "int8x10", "fp16x3"):
        on_device(*operands("normal", 67, k, 40, order, np.float32), EMULATIONS[name])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["int8x6", "int8x10", "mixpert-IV"])
@pytest.mark.parametrize("rule", ["loss", "ratio"])
def test_what_leaves_the_slices_on_the_device(name: str, rule: OutlierRule) -> None:
    a, b = operands("spikes", 300, 3000, 200, "CF", np.float32)
    a[[3, 150], [0, 2999]] = np.nan, -np.inf
    b[1500, 7] = np.inf
    a[9] = -0.0039375  # a one beside it: all second digits are −128
    a[9, 1] = 1
    on_device(a, b, EMULATIONS[name], rule=rule, measure=True)


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("block", [None, 128], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_packed_lies_in_one_allocation(
    monkeypatch: pytest.MonkeyPatch, count: int, block: int | None, measure: bool
) -> None:
    scheme = INT8X6.with_block(block)
    forms = (form(70, 900), form(50, 900, "F"))[:count]
    launches, sizes = [], []

    def alloc(size: int) -> SimpleNamespace:
        sizes.append(size)
        return SimpleNamespace(ptr=1 << 20)

    kernel = SimpleNamespace(gated=True, launch=lambda *given: launches.append(given))
    cuda = SimpleNamespace(alloc=alloc)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(launching, "numba_kernel", lambda *given, **named: kernel)
    which = "both" if count == 2 else "left"
    wanted = strip_config(PackingTask(scheme, which, forms, "float32", "loss", measure))
    how = prepare(wanted)
    operands = tuple(Operand(64 << i, x, 0, None) for i, x in enumerate(forms))
    packed = how.pack(operands, 7)
    places = []
    for one in packed:
        place = one.layout
        ends = {
            "slices": place.batch * place.steps * place.count * place.rows8 * STEP + SLACK,
            "scales": 4 * place.blocks * place.rows,
            "flags": place.rows,
            "outliers": place.blocks * place.rows if block else 0,
            "norms": 8 * (2 + place.count) * place.rows if measure else 0,
        }
        assert all((getattr(one, name) != 0) == (size > 0) for name, size in ends.items())
        places += [(getattr(one, name), size) for name, size in ends.items() if size]
    places.sort()
    for (start, size), (following, _) in itertools.pairwise([*places, ((1 << 20) + sizes[0], 0)]):
        assert start % 256 == 0
        assert start + size <= following
    ((grid, threads, signature, values, shared, stream),) = launches
    words, gate = values[:-1], values[-1]
    assert len(signature.offsets) == len(values)
    assert gate == 0
    assert (grid, threads, shared, stream) == (*(wanted.grid, wanted.threads, wanted.shared, 7),)
    for x, one, at in zip(operands, packed, (0, 13), strict=False):
        assert words[at : at + 6] == (
            *(x.address, one.slices, one.scales, one.flags, one.outliers, one.norms),
        )
    assert len(words) == 2 * (6 + len(wanted.words[0])) + len(wanted.lengths)


def test_equal_layouts_are_one_object() -> None:
    places = [layout(one.left, 3, 70, 900, 900, False) for one in (INT8X6, INT8X6.with_block(None))]
    assert places[0] is places[1]
    assert of_some(places[0], 2) is of_some(places[1], 2)
    assert of_some(places[0], 2).batch == 2
