"""Kernels that Numba compiles, for a GPU that need not be there: they compile, and as meant.

Run by `tests/runtime/packing/test_packing.py` in a process of its own. Without EVERY_CHECK=1, one
of each kind: shipped ones need not be compiled.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.runtime.kernels.tiny_block import RESIDENT, Memory, block
from mixpert_py.runtime.kernels.tiny_kernels import tiny_kernel
from mixpert_py.runtime.packing.cluster_kernels import cluster_kernel
from mixpert_py.runtime.packing.operand import REDUCTIONS, Side, side
from mixpert_py.runtime.packing.panel_kernels import panel_kernel
from mixpert_py.runtime.packing.repair_kernels import repair_kernel
from mixpert_py.runtime.packing.row_kernels import row_kernel
from mixpert_py.runtime.packing.strip_kernels import strip_kernel
from tests.every_check import EVERY_CHECK
from tests.runtime.emulations import EMULATIONS
from tests.shipped_kernels import NumbaKernel, shipped_code

CAPABILITY = "90"
REGISTERS = 65536  # of a multiprocessor
SHARED = 48 * 1024  # bytes that a block has without asking
LEAN = 128  # registers of a thread: 512 share REGISTERS. Kernels that need more run 256
ATOMICS = re.compile(r"\batom\.|(?<!bar\.)\bred\.")


def compiled(factory: Callable[..., Any], *constants: Any) -> str:
    """PTX of a factory's kernel: the shipped one, where it was made of the sources as they are."""
    kernel = NumbaKernel(factory.__module__, factory.__name__, constants, CAPABILITY)
    code = None if EVERY_CHECK else shipped_code(kernel)
    ptx = (code or kernel.compile()).decode()
    assert "shfl" not in ptx
    assert ".func" not in ptx  # all is one function
    assert "used_bytes_mask" not in ptx  # which PTX 8.1 has not
    # It waits for the launch before it, and lets the next begin, before it does anything else.
    first = re.findall(
        r"^\s*(griddepcontrol\.\w+|(?:ld|st|red|atom)\.\w*global)", ptx, re.MULTILINE
    )
    assert first[:2] == ["griddepcontrol.wait", "griddepcontrol.launch_dependents"]
    return ptx


def registers(ptx: str, folder: Path, shared: int = SHARED, spilled: int = 0) -> int:
    """As assembled for the device. 0 where there is no assembler.

    shared: bytes of shared memory that it may take besides what a launch asks for. spilled: bytes
    that a thread may spill.
    """
    if shutil.which("ptxas") is None:
        return 0
    path = folder / "kernel.ptx"
    # The assembler found may be older than the compiler; the text uses nothing new.
    path.write_text(re.sub(r"\.version \S+", ".version 8.1", ptx))
    command = ["ptxas", "-v", "-arch=sm_90", str(path), "-o", str(folder / "kernel.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert int(re.findall(r"(\d+) bytes spill stores", said)[0]) <= spilled
    assert int(re.findall(r"(\d+) bytes smem", said)[0]) <= shared
    return int(re.findall(r"Used (\d+) registers", said)[0])


# Operands alike, or not, or A alone; either type in memory.
STRIPS: list[tuple[str, str, str | None]] = [
    ("int8x6", "float32", "float32"),
    ("fp16", "float64", "float64"),
    *[("fp16x3", "float64", "float64")] * EVERY_CHECK,
    *[("mixpert-IV", "float32", "float64")] * EVERY_CHECK,
    *[("mixpert-II", "float32", None)] * EVERY_CHECK,
    *[("tf32x3", "float32", "float64")] * EVERY_CHECK,
    *[("int8x10", "float64", "float64")] * EVERY_CHECK,
]


@pytest.mark.parametrize("variant", STRIPS, ids=str)
def test_strips(variant: tuple[str, str, str | None], tmp_path: Path) -> None:
    name, left, right = variant
    scheme, result = EMULATIONS[name], max(left, right or left)
    sides = [side(scheme.left, left, result)]
    if right is not None:
        sides.append(side(scheme.right, right, result))
    ptx = compiled(strip_kernel, sides[0], sides[-1])
    assert ("ld.global.v4.u32" in ptx) == (left == "float32")
    assert ("ld.global.v2.u64" in ptx) == (right == "float64")
    assert "st.global.v2.u32" in ptx or "st.global.v4.u32" in ptx
    assert not ATOMICS.search(ptx)
    lean = sides[0] == sides[-1] and sides[0].wide == "float32"
    assert registers(ptx, tmp_path, REDUCTIONS) <= (LEAN if lean else 255)


# Either type in memory, and either kind of slices.
ROWS = [("fp16x3", "float64", "rows"), ("fp16x3", "float32", "panels")]
ROWS += [("int8x6", "float32", "clusters")]
if EVERY_CHECK:
    kernels = ["rows", "rows twice", "pairs", "panels", "clusters"]
    ROWS = [*product(["int8x6", "fp16x3", "tf32x3"], ["float32", "float64"], kernels)]


def row_ptx(x: Side, kernel: str) -> str:
    single = x.memory == "float32"
    if kernel == "panels":
        return compiled(panel_kernel, x, 256)
    if kernel == "clusters":
        return compiled(cluster_kernel, x, 1024 if single and x.wide == "float32" else 256, 16)
    items = 4 if single else 2
    return compiled(row_kernel, x, x, 256, items, kernel == "rows twice", kernel != "pairs")


@pytest.mark.parametrize(("name", "memory", "kernel"), ROWS)
def test_whole_rows(name: str, memory: str, kernel: str, tmp_path: Path) -> None:
    x = side(EMULATIONS[name].left, memory, memory)
    ptx = row_ptx(x, kernel)
    assert (".reqnctapercluster 16, 1, 1\n" in ptx) == (kernel == "clusters")
    assert ("st.async" in ptx) == (kernel == "clusters")
    assert re.search(r"ld\.global\.v4\.[uf]32|ld\.global\.v2\.[uf]64", ptx)
    assert ("dp4a" in ptx) == (x.kind == "digits")
    assert f"st.global.v{2 if x.kind == 'digits' else 4}.u32" in ptx
    rounding = f"cvt.{'rz' if x.truncate else 'rn'}.f16x2.f32"
    assert (rounding in ptx) == (x.element == "float16" and memory == "float32")
    assert not re.search(r"\batom\.\S*\.f(32|64)", ptx)
    # Four blocks of 256 threads to a multiprocessor are quicker than three without a spill.
    spilled = {"clusters": 64}.get(kernel, 160 if x.wide == "float32" else 0)
    assert registers(ptx, tmp_path, spilled=spilled) <= (64 if x.wide == "float32" else 128)


REPAIRED = [("float32",) * 3, ("float64",) * 3, *[("float32", "float64", "float64")] * EVERY_CHECK]


@pytest.mark.parametrize("types", REPAIRED, ids=str)
def test_repair(types: tuple[str, str, str], tmp_path: Path) -> None:
    ptx = compiled(repair_kernel, *types)
    assert "atom." not in ptx
    assert registers(ptx, tmp_path) <= LEAN


ALONG, ACROSS, SINGLY = Memory("along", True), Memory("across", True), Memory("stack", False)
# Of the second's last four of K three are used: a hint that is PTX 8.3's would say so.
TINY = [(16, 16, 4, SINGLY, SINGLY, False), (1, 15, 32, ALONG, ACROSS, True)]
if EVERY_CHECK:
    TINY += [(5, 5, 5, ALONG, ACROSS, True), (13, 30, 30, ACROSS, ALONG, False)]
    TINY += [(n, n, n, way, way, True) for n in (1, 16, 31, 32) for way in (ALONG, ACROSS)]
    TINY += [(32, 32, 32, SINGLY, SINGLY, False), (16, 16, 1, ALONG, ALONG, True)]


@pytest.mark.parametrize("variant", TINY, ids=str)
def test_stacks_of_tiny_products(
    variant: tuple[int, int, int, Memory, Memory, bool], tmp_path: Path
) -> None:
    m, k, n, left, right, wide = variant
    it = block(m, k, n, left, right)
    ptx = compiled(tiny_kernel, *variant)
    assert "fma.rn.f32" in ptx
    assert not re.search(r"\b(mul|add|fma)\.\S*f64|\b(mul|add)\.\S*f32|\.ftz", ptx)
    assert ("ld.global.v4.f32" in ptx) == left.wide
    assert ("st.global.v4.f32" in ptx) == wide
    body = re.findall(r"^\s*(ld\.global\S*|st\.shared\S*|bar\.sync)", ptx, re.MULTILINE)
    if not (it.a.dense or it.b.dense):
        # All that a thread reads is on its way before it waits for any.
        loads = [text.startswith("ld.global") for text in body[: body.index("bar.sync")]]
        assert loads == sorted(loads, reverse=True)
        assert sum(loads) == sum(x.loads if x.memory.wide else x.singles for x in (it.a, it.b))
    resident = RESIDENT if left.wide and right.wide else RESIDENT // 2
    assert registers(ptx, tmp_path, 4 * it.floats) <= REGISTERS // resident
