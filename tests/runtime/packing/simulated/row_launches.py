"""Launches of the row, panel and cluster kernels in Numba's simulator, on NumPy arrays laid out as
on the device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from mixpert_py.runtime.packing import rows
from mixpert_py.runtime.packing.cluster_kernels import cluster_kernel
from mixpert_py.runtime.packing.launch import PackingConfig
from mixpert_py.runtime.packing.operand import Operand
from mixpert_py.runtime.packing.panel_kernels import panel_kernel
from mixpert_py.runtime.packing.row_kernels import row_kernel
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule
from tests.runtime.families import Array
from tests.runtime.packing.simulated.launches import (
    GARBAGE,
    Buffers,
    buffers_of,
    flat,
    operand,
    task_of,
)
from tests.runtime.packing.simulated.simulation import simulation

SMALL_ROWS = rows.RowTuning(32, 32)
SMALL_PANELS = rows.PanelTuning(32, 1, 2, 1)
SERIAL = 7


class Tuning(NamedTuple):
    of_rows: rows.RowTuning = SMALL_ROWS
    of_panels: rows.PanelTuning = SMALL_PANELS
    of_clusters: rows.ClusterTuning | None = None  # instead of panels


SMALL = Tuning()


def pack(
    a: Array, b: Array | None, scheme: Scheme, rule: OutlierRule = "loss", tuning: Tuning = SMALL
) -> tuple[Buffers, ...]:
    """The kernels on A by rows and B by columns, or on A alone."""
    xs = [operand(a, False)] + ([] if b is None else [operand(b, True)])
    task = task_of(xs, scheme, rule)
    assert rows.rows_suit(task)
    along = [x.form.k_stride == 1 for x in xs]
    same = scheme.left == scheme.right and xs[0].memory == xs[-1].memory
    some = [(task, xs)]
    if along[0] != along[-1] or not (along[0] or same):
        some = [(one, [x]) for one, x in zip(task.each(), xs, strict=True)]
    found: list[Buffers] = []
    for part, ours in some:
        if ours[0].form.k_stride == 1:
            found += _whole_rows(rows.row_config(part, tuning.of_rows), ours, row_kernel)
        elif tuning.of_clusters:
            config = rows.cluster_config(part, tuning.of_clusters)
            found += _whole_rows(config, ours, cluster_kernel)
        else:
            found += _panels(rows.panel_config(part, tuning.of_panels), ours)
    return tuple(found)


def _whole_rows(
    how: PackingConfig, xs: list[Operand], factory: Callable[..., Any]
) -> list[Buffers]:
    """By the row or the cluster kernel."""
    found = buffers_of(how, xs)
    arguments = [
        (flat(x.owner), *one.arrays[:3], *words)
        for x, one, words in zip(xs, found, how.words, strict=True)
    ]
    # The simulator copies arrays there and back: nothing may be passed twice.
    other = arguments[1] if len(xs) > 1 else ((np.zeros(1),) * 4 + how.words[0])
    with simulation():
        function, _ = factory(*how.constants)
        launch = cuda.jit(function)[how.grid, how.threads, 0, how.shared]
        launch(*arguments[0], *other, *how.lengths)
    return found


def _panels(how: PackingConfig, xs: list[Operand]) -> list[Buffers]:
    found = buffers_of(how, xs)
    between = [_between(how, i) for i in range(len(xs))]
    arguments = [
        (flat(x.owner), *one.arrays[:3], *theirs, *words)
        for x, one, theirs, words in zip(xs, found, between, how.words, strict=True)
    ]
    other = arguments[1] if len(xs) > 1 else ((np.zeros(1),) * 11 + how.words[0])
    with simulation():
        function, _ = panel_kernel(*how.constants)
        launch = cuda.jit(function)[how.grid, how.threads]
        launch(*arguments[0], *other, *how.lengths, SERIAL)
    for *_, counters in between:
        looked, made, cut = counters.reshape(-1, 3).T
        assert not looked.any()  # for the next launch
        assert (made == SERIAL).all()
        assert not cut.any()
    return found


def _between(how: PackingConfig, i: int) -> tuple[Any, ...]:
    """What blocks of a panel leave each other, and their counters."""
    side, workspace = how.constants[0], how.extras
    assert isinstance(workspace, rows.Workspace)
    bits = "uint32" if side.memory == "float32" else "uint64"
    kinds = bits, "int32", "float32", "float32", side.wide, "int32"
    between = [
        np.full(size, GARBAGE, np.uint8).view(kind)
        for size, kind in zip(np.diff(workspace.offsets[i]), kinds, strict=True)
    ]
    return *between, np.zeros(3 * (workspace.panels[i + 1] - workspace.panels[i]), np.int32)
