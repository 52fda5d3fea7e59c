"""Packing: the kernels in Numba's simulator, the host's part, and the same cases on a GPU."""

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime import packing
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.packing import launch as launching
from mixpert_py.runtime.packing.launch import PackingConfig, PackingTask, prepare
from mixpert_py.runtime.packing.operand import (
    CACHE_LANES,
    HOPPER,
    MOST_THREADS,
    REDUCTIONS,
    SLACK,
    DevicePacked,
    Form,
    Operand,
    side,
)
from mixpert_py.runtime.packing.readers import (
    Reader,
    cluster_shape,
    config_of,
    has_clusters,
    rows_suit,
    strip_config,
)
from mixpert_py.runtime.splitter import FloatSlices
from tests.runtime.emulations import EMULATIONS, with_block
from tests.runtime.kernels_on_host.host import HostArray
from tests.runtime.packing.cases import (
    CASES,
    CASES_OF_A_GPU,
    KERNELS,
    ORDERS,
    WHOLE,
    Case,
    parts,
    task_of,
)
from tests.runtime.packing.child import run
from tests.runtime.packing.expected import compare, reference

INT8X6 = EMULATIONS["int8x6"]


@pytest.mark.parametrize("checks", ["packing", "repair", "tiny"])
def test_kernels_in_the_simulator(checks: str) -> None:
    assert "passed" in run(f"tests/runtime/packing/simulated/{checks}_checks.py", simulated=True)


def test_kernels_compile_as_meant() -> None:
    assert "passed" in run("tests/runtime/packing/compiled_checks.py", simulated=False)


def test_the_table_meets_all_that_can_become_of_a_row() -> None:
    """Not finite, left out, in bare units, and in fitted ones."""
    for kernel in KERNELS:
        cases = (case for case in CASES if case.kernel == kernel)
        rows = [
            reference(case.pair()[0], case.made_of.left, case.made_of)
            for case in itertools.islice(cases, 40)
        ]
        assert any(one.nonfinite.any() for one in rows)
        assert any(one.outlier.any() for one in rows)
        assert any((one.significands == 1).any() for one in rows)
        assert any((one.significands != 1).any() for one in rows)


def form(rows: int, k: int, order: str = "C", memory: str = "float32", batch: int = 1) -> Form:
    strides = (k, 1) if order == "C" else (1, rows)
    return Form(memory, batch, rows, k, rows * k, *strides, True)


def configured(kernel: Reader, *forms: Form) -> PackingConfig:
    which: Any = "both" if len(forms) == 2 else "left"
    result = max(x.memory for x in forms)
    return KERNELS[kernel](PackingTask(INT8X6, which, forms, result))


@pytest.mark.parametrize("k", [1, 64, 65, 100, 1024, 8192])
@pytest.mark.parametrize("rows", [1, 16, 127, 1000, 8192])
@pytest.mark.parametrize(("kernel", "order"), [(x, o) for x in KERNELS for o in ORDERS[x]])
def test_every_row_is_some_blocks(kernel: Reader, order: str, rows: int, k: int) -> None:
    forms = form(rows, k, order[0], batch=2), form(33, k, order[1])
    how = configured(kernel, *forms)
    counts, per_block = [], 1
    for x, words in zip(forms, how.words, strict=True):
        match kernel:
            case "strips":
                height, count = 1 << words[5], words[6]
                assert how.threads >= height
            case "rows":
                height, count = how.threads >> how.lengths[1], words[-1]
            case _:
                height, count = 32, words[-1]
        assert (count - 1) * height < x.rows <= count * height
        counts.append(x.batch * count)
    if kernel == "clusters":
        per_block = how.constants[2]
        assert per_block * how.threads >= how.layouts[0].steps * STEP
    if kernel == "panels":
        _, total, runs, length, _, steps = how.lengths
        assert (runs - 1) * length * how.threads < steps * STEP <= runs * length * how.threads
        assert length == 1 or total * runs >= 1024
        assert how.phases == (0, 1)  # each run is looked at, and cut
        per_block = runs
    assert how.grid == per_block * sum(counts)
    assert how.lengths[0] == counts[0]
    assert {k, how.layouts[0].steps} <= set(how.lengths)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("name", ["int8x6", "int8x10", "mixpert-IV", "fp16x3", "bf16x9"])
@pytest.mark.parametrize("shared", [HOPPER, 99 * 1024], ids=["Hopper", "Ada"])
def test_launches_fit_the_device(orders: str, name: str, shared: int) -> None:
    """With what every kernel takes by itself: `compiled_checks` looks that none takes more."""
    scheme = EMULATIONS[name]
    sizes = itertools.product(
        [1, 100, 4096, 16384, 40000],
        [("float32",) * 2, ("float64",) * 2, ("float32", "float64")],
        [scheme, with_block(scheme, 256)] if name.startswith("int8") else [scheme],
    )
    for k, memories, one in sizes:
        forms = tuple(form(500 - 200 * i, k, orders[i], memories[i]) for i in (0, 1))
        how = strip_config(PackingTask(one, "both", forms, max(memories)), shared)
        assert how.threads <= (MOST_THREADS // 4 if name.startswith("mixpert") else MOST_THREADS)
        assert how.shared + REDUCTIONS <= shared
        assert how.shared == 0 or how.threads >= CACHE_LANES


SINGLE = side(INT8X6.left, "float32", "float32")
WIDE = side(INT8X6.left, "float64", "float64")


@pytest.mark.parametrize(
    ("one", "k", "shape"),
    [
        *((SINGLE, 1, (256, 1)), (SINGLE, 257, (256, 2)), (SINGLE, 2049, (512, 5))),
        *((SINGLE, 4097, (512, 16)), (SINGLE, 16384, (1024, 16)), (SINGLE, 16385, None)),
        *((WIDE, 2048, (256, 8)), (WIDE, 2049, (256, 16)), (WIDE, 4096, (256, 16))),
        (WIDE, 4097, None),
    ],
)
def test_a_cluster_holds_k(one: Any, k: int, shape: tuple[int, int] | None) -> None:
    assert cluster_shape(one, k) == shape
    assert cluster_shape(SINGLE, 4096, ((256, 16),)) == (256, 16)


def test_what_suits_the_kernels_of_whole_rows() -> None:
    task = PackingTask(INT8X6, "both", (form(64, 1000), form(40, 1000)), "float32")
    names = {n for n, x in EMULATIONS.items() if rows_suit(task._replace(scheme=x))}
    assert names >= {n for n, x in EMULATIONS.items() if isinstance(x.left, FloatSlices)}
    assert names >= {"int8x1", "int8x3", "int8x6", "int8x8"}
    assert names.isdisjoint({"int8x10", "mixpert-I", "mixpert-full"})  # of blocks
    assert not rows_suit(task._replace(scheme=with_block(INT8X6, 512)))


@pytest.mark.parametrize(
    ("x", "mapping"),
    [
        (form(64, 64), 2),
        (form(64, 64, "F"), 1),
        (form(64, 64)._replace(aligned=False), 0),
        (form(64, 63), 0),
        (form(64, 64)._replace(row_stride=512, k_stride=2), 0),
    ],
)
def test_what_is_contiguous_decides_who_reads_what(x: Form, mapping: int) -> None:
    assert x.mapping(x.k) == mapping


@pytest.mark.parametrize(
    ("change", "vector"),
    [({}, 1), ({"aligned": False}, 0), ({"row_stride": 101}, 0), ({"batch_stride": 6402}, 0)],
)
def test_wide_loads_only_where_all_are_aligned(change: dict[str, Any], vector: int) -> None:
    how = configured("rows", form(64, 100, batch=2)._replace(**change))
    assert how.words[0][3] == vector


@pytest.mark.parametrize("empty", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_is_not_packed(kernel: Reader, empty: tuple[int, int, int]) -> None:
    rows, k, batch = empty
    with pytest.raises(ShapeError, match="nothing to pack"):
        configured(kernel, form(rows, k, batch=batch))


@pytest.mark.parametrize(
    ("block", "padded", "steps_per_block"),
    [(1, 32, 0), (20, 32, 0), (32, 32, 0), (33, 64, 1), (100, 128, 2)],
)
def test_no_instruction_multiplies_two_blocks(
    block: int, padded: int, steps_per_block: int
) -> None:
    task = PackingTask(with_block(INT8X6, block), "left", (form(5, 250),), "float32")
    (place,) = strip_config(task).layouts
    assert (place.padded_block, place.steps_per_block) == (padded, steps_per_block)


class NoDevice:
    """`cupy.cuda` and kernels that note what is launched. memory: the sizes that are in use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.memory: dict[int, int] = {}
        kernel = SimpleNamespace(launch_words=self.launch)
        cuda = SimpleNamespace(alloc=self.alloc)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
        monkeypatch.setattr(launching, "numba_kernel", lambda *given, **named: kernel)

    def alloc(self, size: int) -> Any:
        place = max((start + taken for start, taken in self.memory.items()), default=1 << 20)
        device = self

        class Memory:
            ptr = -(-place // 4096) * 4096

            def __del__(self) -> None:
                del device.memory[self.ptr]

        self.memory[Memory.ptr] = size
        return Memory()

    def launch(self, *given: Any) -> None:
        self.launches.append(given)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> NoDevice:
    return NoDevice(monkeypatch)


@pytest.mark.parametrize(
    ("kernel", "block"), [*((kernel, None) for kernel in KERNELS), ("strips", 128)]
)
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_packed_lies_in_one_allocation(
    no_device: NoDevice, kernel: Reader, block: int | None, count: int
) -> None:
    """And the kernel is told where."""
    order = ORDERS[kernel][0][0]
    forms = (form(70, 900, order, batch=3), form(50, 900, order))[:count]
    scheme = with_block(INT8X6, block)
    which: Any = "both" if count == 2 else "left"
    config = KERNELS[kernel](PackingTask(scheme, which, forms, "float32"))
    operands = tuple(Operand(64 << i, x, 0, None) for i, x in enumerate(forms))
    packed = prepare(config).pack(operands, 7)
    start, size = next(iter(no_device.memory.items()))
    places = []
    for one in packed:
        place = one.layout
        rows = place.batch * place.rows
        ends = {
            "slices": place.batch * place.steps * place.count * place.rows8 * STEP + SLACK,
            "scales": 4 * place.blocks * rows,
            "flags": rows,
            "outliers": place.blocks * rows if block is not None else 0,
        }
        assert all((getattr(one, name) != 0) == (size > 0) for name, size in ends.items())
        places += [(getattr(one, name), size) for name, size in ends.items() if size]
    for phase, launch in zip(
        config.phases or (config.lengths[-1],), no_device.launches, strict=True
    ):
        grid, threads, values, shared, stream = launch
        assert (grid, threads, shared) == (config.grid, config.threads, config.shared)
        assert (stream, values[:2], values[-1]) == (7, (0, 0), phase)
    values = values[2:]
    each = (len(values) - len(config.lengths) - (config.phases != ())) // 2
    # One operand stands for both: the kernel finds as many words either way.
    for i, at in ((0, 0), (count - 1, each)):
        one = packed[i]
        found = one.slices, one.scales, one.flags, one.outliers
        assert values[at : at + 1 + config.pointers] == (64 << i, *found[: config.pointers])
        assert values[at + each - len(config.words[i]) : at + each] == tuple(config.words[i])
    if kernel == "panels":  # what blocks leave each other, in the same allocation
        place, runs = packed[0].layout, config.lengths[2]
        rows = -(-place.rows // 32) * 32 * place.batch
        sizes = (*[4 * rows * runs] * 3, 12 * rows * runs, 4 * rows // 32)
        places += zip(values[4:9], sizes, strict=True)
    places.sort()
    for (at, taken), (following, _) in itertools.pairwise([*places, (start + size, 0)]):
        assert at % 256 == 0
        assert at + taken <= following


@pytest.mark.parametrize(
    ("shape", "strides", "its"),
    [((6, 40, 1), (160, 4, 4), (160, 4, 160)), ((1, 5, 7), (140, 28, 4), (28, 28, 4))],
)
def test_a_transpose_is_packed_once_whatever_strides_cupy_gives_axes_of_one_element(
    shape: tuple[int, ...], strides: tuple[int, ...], its: tuple[int, ...]
) -> None:
    memory = np.zeros(shape, "f")
    x, y = (HostArray(shape, "f", memory, 0, one) for one in (strides, its))
    assert packing.task_of(by_rows(x), by_columns(y.swapaxes(1, 2)), INT8X6).which == "left"


# The same on a GPU.


def need(kernel: Reader) -> None:
    import cupy

    if kernel == "clusters" and not has_clusters(cupy.cuda.Device().id):
        pytest.skip("no thread block clusters")


def operands_of(a: Any, b: Any) -> list[Operand]:
    import cupy

    def upload(x: Any) -> Any:
        if x.ndim < 3 or x.flags.c_contiguous:
            return cupy.asarray(x, order="K")
        return cupy.asarray(x.swapaxes(1, 2)).swapaxes(1, 2)  # CuPy would store a stack in C order

    x, y = upload(a), upload(b)
    for one, other in ((x, a), (y, b)):  # of an extent of one any stride is right
        strides = zip(one.shape, one.strides, other.strides, strict=True)
        assert all(extent == 1 or mine == its for extent, mine, its in strides)
    return [by_rows(x), by_columns(y)]


def packed(
    kernel: Reader, xs: list[Operand], task: PackingTask, make: Callable[..., Any] | None = None
) -> list[DevicePacked]:
    found: list[DevicePacked] = []
    for part, its in parts(kernel, task, xs):
        config = config_of(kernel, part) if make is None else make(part)
        found += prepare(config).pack(tuple(its), 0)
    return found


def views(one: DevicePacked) -> SimpleNamespace:
    names = ["slices", "scales", "flags"]
    names += ["outliers"] * (one.layout.blocks > 1)
    arrays = {name: one.view(name).get() for name in names}
    return SimpleNamespace(layout=one.layout, splitter=one.splitter, **arrays)


def same(one: DevicePacked, other: DevicePacked) -> None:
    """But for rows past the last, and digits of rows that leave, which hold anything."""
    mine, theirs = views(one), views(other)
    np.testing.assert_array_equal(mine.flags, theirs.flags)
    for batch in range(one.batch):
        stays = np.flatnonzero((mine.flags[batch] & 3) == 0)
        for name, axis in (("scales", 1), ("slices", 2)):
            x, y = (getattr(it, name)[batch].take(stays, axis) for it in (mine, theirs))
            np.testing.assert_array_equal(x, y)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case", [*CASES, *CASES_OF_A_GPU], ids=lambda case: " ".join(map(str, case))
)
def test_bits_of_the_reference(case: Case) -> None:
    need(case.kernel)
    a, b = case.pair()
    xs = operands_of(a, b)
    task = task_of(xs, case.made_of)
    results = [packed(case.kernel, xs, task) for _ in range(2)]
    for x, one, again in zip((a, b.T), *results, strict=True):
        wide, whole = x.astype(np.result_type(a, b)), case.kernel in WHOLE
        compare(views(one), 0, wide, case.made_of, x.dtype, whole)
        same(one, again)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("k", "order", "kernel"),
    [
        *((k, "C", "row_kernel") for k in (64, 40_000)),
        *((k, "F", "cluster_kernel") for k in (64, 4096, 8192, 16384)),
        *((20_000, "F", "panel_kernel"), (300_000, "F", "strip_kernel")),
    ],
)
def test_the_kernel_that_suits_packs_and_a_graph_can(k: int, order: str, kernel: str) -> None:
    """A graph may run beside what is enqueued later."""
    import cupy

    from mixpert_py.runtime.packing import pack_one, preparations

    y = cupy.asarray(cupy.random.default_rng(3).standard_normal((300, k), "float32"), order=order)
    operand = by_rows(y)
    task = PackingTask(INT8X6, "left", (operand.form,), "float32", device=operand.device)
    (make,) = preparations(task)
    if has_clusters(operand.device) or kernel != "cluster_kernel":
        assert make().kernel.name == kernel
    (wanted,) = packed("strips", [operand], task)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        pack_one(operand, INT8X6, "left", "float32", stream=stream.ptr)
        stream.begin_capture()
        found = pack_one(operand, INT8X6, "left", "float32", stream=stream.ptr)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
            pack_one(operand, INT8X6, "left", "float32", stream=stream.ptr)
    stream.synchronize()
    same(found, wanted)
