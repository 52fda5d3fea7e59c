"""Packing where rows are contiguous: the host's part, and on a GPU what launches may change.

Bits are `test_rows`' matter, which packs operands of any layout, and its checks in the simulator.
"""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.packing import blocks, rows
from mixpert_py.runtime.packing import launch as launches
from mixpert_py.runtime.packing.launch import PackingTask, prepare
from mixpert_py.runtime.packing.operand import Form, Operand
from mixpert_py.runtime.packing.rows import PANELS, PanelTuning, Workspace, panel_config
from tests.runtime.emulations import EMULATIONS

INT8X6 = EMULATIONS["int8x6"]


def form(rows: int, k: int, batch: int = 1, memory: str = "float32") -> Form:
    return Form(memory, batch, rows, k, rows * k, 1, rows, True)


@pytest.mark.parametrize("k", [1, 64, 100, 1024, 8192, 30000])
@pytest.mark.parametrize("rows", [1, 127, 1000, 8192])
def test_every_piece_is_somebodys(k: int, rows: int) -> None:
    forms = form(rows, k, 2), form(33, k)
    how = panel_config(PackingTask(INT8X6, "both", forms, "float32"))
    first, total, runs, length, whole, steps = how.lengths
    assert (whole, steps) == (k, how.layouts[0].steps)
    assert (runs - 1) * length * 256 < steps * 64 <= runs * length * 256
    assert length == 1 or total * runs >= 1024
    of_matrix = [words[-1] for words in how.words]
    for x, count in zip(forms, of_matrix, strict=True):
        assert (count - 1) * 32 < x.rows <= count * 32
    assert isinstance(how.extras, Workspace)
    panels = how.extras.panels
    assert panels == (0, first, total) == (0, 2 * of_matrix[0], 2 * of_matrix[0] + of_matrix[1])
    assert how.grid == 2 * total * runs  # each run is looked at, and cut


@pytest.mark.parametrize("memory", ["float32", "float64"])
def test_memory_is_nobody_elses(memory: str) -> None:
    forms = form(100, 300, 3, memory), form(40, 300, 1, memory)
    how = panel_config(PackingTask(INT8X6, "both", forms, memory))
    assert isinstance(how.extras, Workspace)
    for x, place, offsets, words in zip(
        forms, how.layouts, how.extras.offsets, how.words, strict=True
    ):
        assert place.bytes <= offsets[0]
        assert all(offset % 256 == 0 for offset in offsets)
        rows = x.batch * words[-1] * 32
        left = rows * how.lengths[2]  # by all runs
        sizes = [end - start for start, end in itertools.pairwise(offsets)]
        size = x.itemsize
        wanted = [size * left, 4 * left, 4 * left, 3 * 4 * left, 4 * size * rows, 8 * rows]
        assert all(size >= want for size, want in zip(sizes, wanted, strict=True))


def test_no_two_launches_have_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of threads that share a stream, who may take turns at any attribute."""

    class Pointer:
        def __init__(self, memory: Any, offset: int) -> None:
            sleep(0.001)

        @property
        def ptr(self) -> int:
            sleep(0.0001)
            return id(self)

    runtime = SimpleNamespace(CUDARuntimeError=RuntimeError, memsetAsync=lambda *given: None)
    cuda = SimpleNamespace(MemoryPointer=Pointer, Memory=lambda size: None, runtime=runtime)
    monkeypatch.setattr(rows, "_stream_counters", {})
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: rows._counters(9, 0, 77, cuda), range(200)))
    assert len({memory for memory, _ in taken}) == 1
    assert sorted(serial for _, serial in taken) == list(range(1, 201))


def test_counters_stay_until_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a thread that shares the stream takes larger ones in between."""
    alive, launched = set(), []

    class Memory:
        def __init__(self, size: int) -> None:
            self.ptr = 1 << 20 | len(alive) << 10
            alive.add(self.ptr)

        def __del__(self) -> None:
            alive.discard(self.ptr)

    def launch(
        grid: int, threads: int, signature: Any, words: tuple[int, ...], shared: int, stream: int
    ) -> None:
        larger = rows.LEAST_PANELS * (2 + len(launched))
        rows._counters(larger, 0, stream, cuda)
        launched.append(words[10])
        assert launched[-1] in alive

    runtime = SimpleNamespace(CUDARuntimeError=RuntimeError, memsetAsync=lambda *given: None)
    cuda = SimpleNamespace(
        MemoryPointer=lambda memory, offset: memory, Memory=Memory, alloc=Memory, runtime=runtime
    )
    monkeypatch.setattr(rows, "_stream_counters", {})
    how = panel_config(PackingTask(INT8X6, "left", (form(100, 300),), "float32"))
    kernel: Any = SimpleNamespace(gated=False, launch=launch)
    monkeypatch.setattr(launches, "numba_kernel", lambda *given, **named: kernel)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    way = prepare(how)
    for _ in range(2):
        way.pack((Operand(4096, form(100, 300), 0, None),), 0)
    assert len(launched) == 2


@pytest.mark.gpu
@pytest.mark.parametrize(
    "tuning",
    [PanelTuning(128), PanelTuning(512), PanelTuning(patience=0), PanelTuning(longest=3, blocks=1)],
    ids=str,
)
@pytest.mark.parametrize("name", ["int8x6", "fp16x3"])
def test_sizes_of_launches_change_no_bit(tuning: PanelTuning, name: str) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns

    y = cupy.random.default_rng(1).standard_normal((3000, 5000), dtype=np.float32)
    y[9, 10] = 1e6
    operand = by_columns(y)
    forms = (operand.form,)
    task = PackingTask(EMULATIONS[name], "left", forms, "float32", device=operand.device)
    ways = [prepare(panel_config(task, how)) for how in (PANELS, tuning)]
    _same(*[way.pack((operand,), 0)[0] for way in (ways[0], ways[1], ways[1])])


@pytest.mark.gpu
@pytest.mark.parametrize("k", [40_000, rows.LONGEST_PANEL])
@pytest.mark.parametrize("patience", [PANELS.patience, 0])
def test_long_rows_have_the_bits_of_the_general_kernel(k: int, patience: int) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns

    y = cupy.random.default_rng(1).standard_normal((k, 80), dtype=np.float32)
    y[k - 1, 10], y[k // 2, 30] = 1e6, np.nan
    operand = by_columns(y)
    task = PackingTask(INT8X6, "left", (operand.form,), "float32")
    way = prepare(panel_config(task, PanelTuning(patience=patience)))
    general = prepare(blocks.strip_config(task, blocks.shared_memory(0)))
    found, wanted = way.pack((operand,), 0)[0], general.pack((operand,), 0)[0]
    flags = wanted.view("flags").get()
    assert flags[0, [10, 30]].all()
    np.testing.assert_array_equal(found.view("flags").get(), flags)
    stay = np.flatnonzero(flags[0] == 0)  # what leaves holds anything, in units of zero
    for name in ("slices", "scales"):
        mine, theirs = (one.view(name).get()[0] for one in (found, wanted))
        rows = 2 if name == "slices" else 1
        np.testing.assert_array_equal(mine.take(stay, rows), theirs.take(stay, rows))


@pytest.mark.gpu
def test_batches_on_the_device() -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, pack_one

    scheme = EMULATIONS["int8x6"]
    y = cupy.random.default_rng(2).standard_normal((3, 500, 200), dtype=np.float32)
    stack = pack_one(by_columns(y), scheme, "right", "float32")
    assert stack.batch == 3
    for i in range(3):
        one = pack_one(by_columns(y[i]), scheme, "right", "float32")
        for name in ("slices", "scales", "flags"):
            mine, theirs = one.view(name).get()[0], stack.view(name).get()[i]
            if name == "slices":
                mine, theirs = mine[..., :200, :], theirs[..., :200, :]
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.gpu
def test_a_graph_has_counters_of_its_own() -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, pack_one

    scheme = EMULATIONS["int8x6"]
    y = cupy.random.default_rng(3).standard_normal((700, 300), dtype=np.float32)
    wanted = pack_one(by_columns(y), scheme, "right", "float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        pack_one(by_columns(y), scheme, "right", "float32", stream=stream.ptr)
        stream.begin_capture()
        found = pack_one(by_columns(y), scheme, "right", "float32", stream=stream.ptr)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
            pack_one(by_columns(y), scheme, "right", "float32", stream=stream.ptr)
    stream.synchronize()
    _same(wanted, found)


def _same(*packed: Any) -> None:
    for name in ("slices", "scales", "flags"):
        first, *others = (one.view(name).get() for one in packed)
        for other in others:
            if name == "slices":
                first, other = (x[..., : packed[0].rows, :] for x in (first, other))
            np.testing.assert_array_equal(first, other)
