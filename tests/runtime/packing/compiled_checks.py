"""Kernels that Numba compiles, for a GPU that need not be there: they compile, and as meant.

Run by `tests/runtime/packing/test_compiled.py` in a process of its own.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.runtime.packing.operand import REDUCTIONS
from mixpert_py.runtime.packing.repair_kernels import repair_kernel
from mixpert_py.runtime.packing.side import side
from mixpert_py.runtime.packing.strip_kernels import strip_kernel
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import OutlierRule
from tests.every_check import EVERY_CHECK
from tests.shipped_kernels import NumbaKernel, shipped_code

CAPABILITY = "90"
LEAN = 128  # registers of a thread: 512 share 65536. Kernels that need more run 256

# Two operands alike, or not, or A alone; digits alone, of groups, and floats; either size in
# memory; with norms and without. Without EVERY_CHECK=1, those that are shipped.
PACKING: list[tuple[str, str, str | None, OutlierRule, bool]] = [
    ("int8x6", "float32", "float32", "loss", False),
    ("fp16x3", "float64", "float64", "loss", False),
]
if EVERY_CHECK:
    PACKING += [
        ("mixpert-IV", "float32", None, "ratio", True),
        ("mixpert-IV", "float32", "float64", "ratio", True),
        ("tf32x3", "float32", "float64", "none", False),
        ("mixpert-II", "float32", "float32", "ratio", True),
        ("int8x6", "float32", "float64", "loss", False),
        ("tf32x3", "float64", "float64", "none", False),
        ("mixpert-IV", "float32", "float32", "loss", False),
        ("fp16x3", "float32", "float32", "loss", True),
        ("int8x10", "float64", "float64", "loss", True),
    ]
REPAIR = [("float32",) * 3, ("float64",) * 3, *[("float32", "float64", "float64")] * EVERY_CHECK]


def compiled(factory: Callable[..., Any], *constants: Any) -> str:
    """PTX of a factory's kernel: the shipped one, where it was made of the sources as they are.

    With EVERY_CHECK=1, and all that is not shipped, it is compiled now.
    """
    kernel = NumbaKernel(factory.__module__, factory.__name__, constants, CAPABILITY)
    code = None if EVERY_CHECK else shipped_code(kernel)
    return (code or kernel.compile()).decode()


def registers(ptx: str, folder: Path, shared: int, spilled: int = 0) -> int:
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


@pytest.mark.parametrize("variant", PACKING, ids=str)
def test_packing_compiles_without_spills(
    variant: tuple[str, str, str | None, OutlierRule, bool], tmp_path: Path
) -> None:
    name, left, right, rule, measure = variant
    scheme = get(name)
    assert isinstance(scheme, Scheme)
    result = max(left, right or left)
    sides = [side(scheme.left, left, result, rule, measure)]
    if right is not None:
        sides.append(side(scheme.right, right, result, rule, measure))
    ptx = compiled(strip_kernel, sides[0], sides[-1])
    assert ("ld.global.v4.u32" in ptx) == (left == "float32")
    assert ("ld.global.v2.u64" in ptx) == (right == "float64")
    assert "st.global.v2.u32" in ptx or "st.global.v4.u32" in ptx
    assert "shfl" not in ptx
    assert not re.search(r"\batom\.|(?<!bar\.)\bred\.", ptx)
    lean = sides[0] == sides[-1] and sides[0].wide == "float32" and not measure
    assert registers(ptx, tmp_path, REDUCTIONS) <= (LEAN if lean else 255)


@pytest.mark.parametrize("types", REPAIR, ids=str)
def test_repair_compiles_without_spills(types: tuple[str, str, str], tmp_path: Path) -> None:
    ptx = compiled(repair_kernel, *types)
    assert "atom." not in ptx
    assert registers(ptx, tmp_path, 48 * 1024) <= LEAN
