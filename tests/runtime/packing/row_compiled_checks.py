"""The row kernels compiled for a GPU that need not be there: they compile, and as meant.

Run by `tests/runtime/packing/test_compiled.py` in a process of its own.
"""

import re
from pathlib import Path

import pytest

from mixpert_py.runtime.packing.cluster_kernels import cluster_kernel
from mixpert_py.runtime.packing.panel_kernels import panel_kernel
from mixpert_py.runtime.packing.row_kernels import row_kernel
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from tests.every_check import EVERY_CHECK
from tests.runtime.packing.compiled_checks import compiled, registers

REGISTERS = {"float32": 64, "float64": 128}  # of a thread: four, or two, blocks of 256
# Four blocks of 256 threads to a multiprocessor are quicker than three without a spill: measured.
SPILLED = 160
SPILLED_CLUSTERS = 64  # and none of what has been loaded
# What is shipped of each kernel: what either type in memory takes of it, and what either kind of
# slices does.
KERNELS = [
    ("fp16x3", "float64", "alone"),
    ("int8x6", "float64", "panels"),
    ("fp16x3", "float32", "panels"),
    ("int8x6", "float32", "clusters"),
]
if EVERY_CHECK:
    KERNELS += [
        ("int8x6", "float32", "again"),
        ("int8x6", "float32", "pairs"),
        ("int8x6", "float32", "alone"),
        ("int8x6", "float32", "panels"),
        ("tf32x3", "float32", "panels"),
        ("legemm", "float32", "panels"),
        ("fp16x3", "float64", "panels"),
        ("fp16x3", "float32", "alone"),
        ("int8x6", "float64", "alone"),
        ("tf32x3", "float32", "alone"),
        ("fp16x3", "float32", "clusters"),
        ("int8x6", "float64", "clusters"),
        ("tf32x3", "float64", "clusters"),
    ]


def one(name: str, memory: str) -> Side:
    scheme = get(name)
    assert isinstance(scheme, Scheme)
    return side(scheme.left, memory, memory, "loss", False)


@pytest.mark.parametrize(("name", "memory", "kernel"), KERNELS)
def test_row_kernels_compile(name: str, memory: str, kernel: str, tmp_path: Path) -> None:
    x = one(name, memory)
    if kernel == "panels":
        ptx = compiled(panel_kernel, x, 256, 4096)
    elif kernel == "clusters":
        ptx = compiled(cluster_kernel, x, 1024 if memory == "float32" else 256, 16)
        assert ".reqnctapercluster 16, 1, 1\n" in ptx
    else:
        items = 4 if memory == "float32" else 2
        ptx = compiled(row_kernel, x, x, 256, items, kernel == "again", kernel != "pairs")
    assert ("st.async" in ptx) == (kernel == "clusters")
    assert re.search(r"ld\.global\.v4\.[uf]32|ld\.global\.v2\.[uf]64", ptx)
    if x.kind == "digits":
        assert "st.global.v2.u32" in ptx
        assert "dp4a" in ptx
    else:
        assert "st.global.v4.u32" in ptx
        rounding = "rz" if x.truncate else "rn"
        assert (f"cvt.{rounding}.f16x2.f32" in ptx) == (
            x.element == "float16" and memory == "float32"
        )
    assert "shfl" not in ptx
    assert not re.search(r"\batom\.\S*\.f(32|64)", ptx)
    assert ("ld.relaxed.gpu" in ptx) == (kernel == "panels")
    spilled = SPILLED if x.wide == "float32" else 0
    if kernel == "clusters":
        spilled = SPILLED_CLUSTERS
    assert registers(ptx, tmp_path, 48 * 1024, spilled) <= REGISTERS[x.wide]
