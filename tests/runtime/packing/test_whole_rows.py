"""A launch by whole rows: one allocation, and where the kernel is told that things are."""

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.packing import launch as launching
from mixpert_py.runtime.packing import rows
from mixpert_py.runtime.packing.launch import PackingTask, prepare
from mixpert_py.runtime.packing.operand import SLACK, Form, Operand
from tests.runtime.emulations import EMULATIONS

INT8X6 = EMULATIONS["int8x6"]
START = 1 << 20


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", ["rows", "clusters"])
def test_what_is_packed_lies_in_one_allocation(
    monkeypatch: pytest.MonkeyPatch, way: str, count: int
) -> None:
    launches: list[tuple[Any, ...]] = []
    sizes: list[int] = []

    def alloc(size: int) -> SimpleNamespace:
        sizes.append(size)
        return SimpleNamespace(ptr=START)

    config: Any = {
        "rows": rows.row_config,
        "clusters": rows.cluster_config,
    }[way]
    kernel = SimpleNamespace(gated=True, launch=lambda *given: launches.append(given))
    monkeypatch.setattr(launching, "numba_kernel", lambda *given, **named: kernel)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(alloc=alloc)))
    strides = (900, 1) if way == "rows" else (1, 900)
    forms = tuple(Form("float32", 1, r, 900, 0, *strides, True) for r in (70, 50)[:count])
    operands = tuple(Operand(64 << i, x, 0, None) for i, x in enumerate(forms))
    which = "both" if count == 2 else "left"
    wanted = config(PackingTask(INT8X6, which, forms, "float32"))
    how = prepare(wanted)
    packed = how.pack(operands, 7)
    places = [(START + sizes[0], 0)]
    for one in packed:
        place = one.layout
        slices = place.steps * place.count * place.rows8 * STEP + SLACK
        places += [(one.slices, slices), (one.scales, 4 * place.rows), (one.flags, place.rows)]
        assert (one.outliers, one.norms) == (0, 0)
    for (start, size), (following, _) in itertools.pairwise(sorted(places)):
        assert start % 256 == 0
        assert start + size <= following
    ((grid, threads, signature, values, shared, stream),) = launches
    words, gate = values[:-1], values[-1]
    assert len(signature.offsets) == len(values)
    assert gate == 0
    assert (grid, threads, stream) == (wanted.grid, wanted.threads, 7)
    assert shared == wanted.shared
    its = [
        (x.address, one.slices, one.scales, one.flags, *after)
        for x, one, after in zip(operands, packed, wanted.words, strict=True)
    ]
    # One operand stands for both: the kernel finds as many words either way.
    assert words == (*its[0], *its[-1], *wanted.lengths)
