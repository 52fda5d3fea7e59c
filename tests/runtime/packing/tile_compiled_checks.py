"""The tile kernel compiled for a GPU that need not be there: it compiles, and as meant.

Run by `tests/runtime/packing/test_compiled.py` in a process of its own.
"""

import re
from itertools import product
from pathlib import Path

import pytest

from mixpert_py.runtime.packing.blocks import TILES, tile_config
from mixpert_py.runtime.packing.launch import PackingTask, Which
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.packing.tile_kernels import tile_kernel
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import OutlierRule
from tests.every_check import EVERY_CHECK
from tests.runtime.packing.compiled_checks import compiled, registers

REGISTERS = 65536 // TILES.resident
SPILLED = 16  # bytes: three registers of one of these are more than the rest leaves
MULTIPROCESSOR = 227 * 1024  # bytes of shared memory, of which the driver takes 1024 a block
# Two operands differ: one kernel holds both. Digits that are looked at again, and not. By default
# the one that takes a third of the time: others hold the same statements, more than once.
KERNELS: list[tuple[str, OutlierRule, bool]] = [
    ("mixpert-full", "none", True),
]
if EVERY_CHECK:
    rules: tuple[OutlierRule, ...] = ("loss", "none")
    KERNELS = [*product(["mixpert-II", "mixpert-full", "mixpert-IV"], rules, [False, True])]


@pytest.mark.parametrize(("name", "rule", "alone"), KERNELS)
def test_tile_kernel_compiles_next_to_without_spills(
    name: str, rule: OutlierRule, alone: bool, tmp_path: Path
) -> None:
    scheme = get(name)
    assert isinstance(scheme, Scheme)
    x = Form("float32", 1, 64, 128, 0, 128, 1, True)
    which: Which = "left" if alone else "both"
    how = tile_config(PackingTask(scheme, which, (x,) if alone else (x, x), "float32", rule))
    ptx = compiled(tile_kernel, *how.constants)
    assert "ld.global.v4" in ptx
    assert "st.global.v2.u32" in ptx
    assert "max.NaN.f32" in ptx
    assert "bar.warp.sync" in ptx
    assert "shfl" not in ptx
    assert not re.search(r"\batom\.|(?<!bar\.)\bred\.", ptx)
    room = MULTIPROCESSOR * TILES.threads // TILES.resident - 1024
    assert registers(ptx, tmp_path, min(room, 48 * 1024), SPILLED) <= REGISTERS
