"""Packing by clusters: the kernel in Numba's simulator, the host's part, and all on a GPU, bit for
bit what `strips` leave.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.packing import blocks
from mixpert_py.runtime.packing.launch import PackingTask, prepare
from mixpert_py.runtime.packing.operand import Form, Operand
from mixpert_py.runtime.packing.rows import (
    CLUSTERS,
    ClusterTuning,
    cluster_config,
    cluster_shape,
    has_clusters,
)
from mixpert_py.runtime.packing.side import side
from mixpert_py.runtime.splitter import Digits
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES, Array
from tests.runtime.packing.child import run

INT8X6 = EMULATIONS["int8x6"]
SIDE = side(INT8X6.left, "float32", "float32", "loss", False)
WIDE = side(INT8X6.left, "float64", "float64", "loss", False)


def test_kernel_in_the_simulator() -> None:
    checks = "tests/runtime/packing/simulated/cluster_checks.py"
    assert "passed" in run(checks, simulated=True)


def form(rows: int, k: int, batch: int = 1, memory: str = "float32") -> Form:
    return Form(memory, batch, rows, k, rows * k, 1, rows, True)


@pytest.mark.parametrize(
    "k", [1, 64, 65, 256, 257, 2048, 2049, 4096, 4097, 5000, 8192, 8193, 16384]
)
@pytest.mark.parametrize("one", [SIDE, WIDE], ids=["float32", "float64"])
def test_a_cluster_holds_k(k: int, one: Any) -> None:
    found = cluster_shape(one, k)
    if found is None:
        assert k > (16384 if one.single else 4096)
        return
    threads, blocks = found
    held = -(-k // 64) * 64
    assert threads * blocks >= held
    assert blocks in (*range(1, 9), 16)
    assert blocks <= 8 or threads * blocks < 2 * held
    assert blocks == 1 or threads * (blocks - 1) < held or blocks == 16


def test_what_no_cluster_holds() -> None:
    assert cluster_shape(SIDE, 16385) is None
    assert cluster_shape(WIDE, 4097) is None
    assert cluster_shape(SIDE, 4096, ClusterTuning(shapes=((256, 16),))) == (256, 16)


@pytest.mark.parametrize("k", [1, 64, 100, 1024, 8192])
@pytest.mark.parametrize("rows", [1, 127, 1000, 8192])
def test_every_panel_is_a_clusters(k: int, rows: int) -> None:
    how = cluster_config(PackingTask(INT8X6, "both", (form(rows, k, 2), form(33, k)), "float32"))
    of_matrix = [words[-1] for words in how.words]
    for count, x in zip(of_matrix, (rows, 33), strict=True):
        assert (count - 1) * 32 < x <= count * 32
    assert how.lengths == (2 * of_matrix[0], k, how.layouts[0].steps)
    assert how.grid == how.constants[2] * (2 * of_matrix[0] + of_matrix[1])
    assert how.shared == 4 * 3 * (how.threads // 8) * 33


def test_shared_memory_of_the_largest_blocks() -> None:
    how = cluster_config(PackingTask(INT8X6, "left", (form(100, 16000),), "float32"))
    assert how.constants[1:] == (how.threads, 16) == (1024, 16)
    assert how.shared == 4 * 3 * 128 * 33
    static = 47 * 1024
    assert how.shared + static <= 227 * 1024


@pytest.fixture
def clusters_are_there() -> None:
    import cupy

    if not has_clusters(cupy.cuda.Device().id):
        pytest.skip("no thread block clusters")


gpu = [pytest.mark.gpu, pytest.mark.usefixtures("clusters_are_there")]


def on_gpu(test: Any) -> Any:
    for mark in gpu:
        test = mark(test)
    return test


def parts(packed: Any) -> Iterator[tuple[str, Array]]:
    """What counts: slices and scales of rows that stay, and flags. Slices of floats always do."""
    flags = packed.view("flags").get()
    yield "flags", flags
    for batch in range(packed.batch):
        stays = flags[batch] == 0
        yield "scales", packed.view("scales").get()[batch, 0][stays]
        slices = packed.view("slices").get()[batch][:, :, : packed.rows]
        yield "slices", slices[:, :, stays] if isinstance(packed.splitter, Digits) else slices


def same(one: Any, other: Any) -> None:
    for (name, mine), (_, theirs) in zip(parts(one), parts(other), strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def check(operands: tuple[Operand, ...], name: str, tuning: ClusterTuning = CLUSTERS) -> list[Any]:
    """Packs them twice, and as `strips` do; what the latter left."""
    scheme = EMULATIONS[name]
    which = "both" if len(operands) == 2 else "left"
    forms = tuple(x.form for x in operands)
    result = "float64" if any(x.memory == "float64" for x in operands) else "float32"
    task = PackingTask(scheme, which, forms, result, device=operands[0].device)
    general = blocks.strip_config(task, blocks.shared_memory(task.device))
    wanted = prepare(general).pack(operands, 0)
    how = prepare(cluster_config(task, tuning))
    for _ in range(2):
        for found, theirs in zip(how.pack(operands, 0), wanted, strict=True):
            same(found, theirs)
    return list(wanted)


def columns(y: Array, aligned: bool = True) -> Operand:
    """B, row-major, by its columns."""
    import cupy

    from mixpert_py.runtime.packing import by_columns

    if aligned:
        return by_columns(cupy.asarray(y))
    wider = cupy.empty((y.shape[0], y.shape[1] + 3), y.dtype)
    wider[:, 1:-2] = cupy.asarray(y)
    return by_columns(wider[:, 1:-2])


def family(name: str, k: int, n: int, dtype: type = np.float32) -> Array:
    with np.errstate(all="ignore"):
        return FAMILIES[name](np.random.default_rng(0), 3, k, n)[1].astype(dtype)


def spoilt(y: Array) -> Array:
    """Some columns that leave, that may, and whose unit is special."""
    k = y.shape[0]
    y = y.copy()
    y[:, 3] = 0
    y[k // 2, 4], y[k - 1, 5], y[0, 33] = np.nan, -np.inf, np.inf
    y[:, 6] = -0.0039375  # a one beside it: all second digits are −128
    y[k // 3, 6] = 1
    y[:, 7], y[:, 34] = np.rint(y[:, 7] * 20), np.rint(y[:, 34])
    y[:, 8] *= y.dtype.type(1e-30)
    y[:, 9] *= y.dtype.type(1e25)
    y[k // 4, 10] = 1e6
    y[:, 11] = np.ldexp(y[:, 11], -140)
    return y


LENGTHS = [1, 63, 64, 65, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 4096, 5000, 8191, 8192]


@on_gpu
@pytest.mark.parametrize(
    ("name", "k"),
    [
        *[("int8x6", k) for k in [*LENGTHS, 8193, 16384]],
        *itertools.product(["int8x3", "fp16x3"], [63, 257, 2049, 8192, 16384]),
    ],
)
def test_every_length(name: str, k: int) -> None:
    wanted = check((columns(spoilt(family("normal", k, 77))),), name)
    assert wanted[0].view("flags").get().any()


@on_gpu
@pytest.mark.parametrize("which", FAMILIES)
@pytest.mark.parametrize("name", ["int8x6", "fp16x3"])
def test_every_family(which: str, name: str) -> None:
    for k, rows in ((513, 290), (2049, 64)):
        check((columns(family(which, k, rows)),), name)


@on_gpu
@pytest.mark.parametrize("rows", [1, 3, 31, 32, 33, 100, 4096])
@pytest.mark.parametrize("aligned", [True, False])
def test_any_rows(rows: int, aligned: bool) -> None:
    y = family("normal", 513, max(rows, 40))
    check((columns(spoilt(y)[:, :rows], aligned),), "int8x6")


@on_gpu
@pytest.mark.parametrize("name", ["int8x1", "int8x3", "int8x6", "int8x8", "bf16x9", "tf32x3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_type(name: str, dtype: type) -> None:
    for k in (513, 4096):
        check((columns(spoilt(family("normal", k, 130, dtype))),), name)


@on_gpu
@pytest.mark.parametrize("one", [(256, 16), (512, 8), (128, 16), (1024, 4)], ids=str)
@pytest.mark.parametrize("name", ["int8x6", "fp16x3"])
def test_sizes_of_launches_change_no_bit(one: tuple[int, int], name: str) -> None:
    tuning = ClusterTuning(shapes=(one,))
    check((columns(spoilt(family("spread 4", 2000, 500))),), name, tuning)


@on_gpu
@pytest.mark.parametrize("k", [513, 8000, 9000])
def test_two_operands_and_batches(k: int) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows

    a, b = family("spread 1", k, 200), spoilt(family("normal", k, 77))
    check((by_rows(cupy.asarray(a).T), columns(b)), "int8x6")
    stack = cupy.asarray(np.stack([spoilt(b[::-1]), b, b * 3]))
    wanted = check((by_columns(stack),), "int8x6")
    assert wanted[0].batch == 3
    check((by_rows(cupy.asarray(a).T), by_columns(stack)), "fp16x3")


@on_gpu
def test_rows_that_lose_too_much_leave() -> None:
    """All but one entry are less than half of a unit, in every block of a cluster."""
    y = np.full((6000, 100), 0.0038, np.float32)
    y[1000, 5:50] = 1
    wanted = check((columns(y),), "int8x1")
    assert (wanted[0].view("flags").get()[0, 5:50] == 2).all()
    assert not wanted[0].view("flags").get()[0, 50:].any()


@on_gpu
def test_all_rows_may_leave() -> None:
    y = np.full((2049, 300), -0.0039375, np.float32)
    y[1500, ::2] = 1
    wanted = check((columns(y),), "int8x6")
    assert (wanted[0].view("flags").get()[0, ::2] == 2).all()


@on_gpu
@pytest.mark.parametrize("k", [64, 4096, 8192, 16384])
def test_packing_takes_this_way_and_a_graph_can(k: int) -> None:
    import cupy

    from mixpert_py.runtime.packing import _prepared_launches, by_columns, pack_one

    scheme = EMULATIONS["int8x6"]
    y = cupy.random.default_rng(3).standard_normal((k, 300), dtype=np.float32)
    operand = by_columns(y)
    (wanted,) = check((operand,), "int8x6")
    task = PackingTask(scheme, "left", (operand.form,), "float32", device=operand.device)
    (way,) = _prepared_launches(task, False).launches
    assert way.kernel.name == "cluster_kernel"
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        found = pack_one(operand, scheme, "left", "float32", stream=stream.ptr)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
    stream.synchronize()
    same(found, wanted)
