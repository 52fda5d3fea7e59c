"""The kernel for stacks of tiny products compiled for a GPU that need not be there.

Run by `tests/runtime/packing/test_compiled.py` in a process of its own.
"""

import re
from pathlib import Path

import pytest

from mixpert_py.runtime.kernels.tiny_block import RESIDENT, Memory, block
from mixpert_py.runtime.kernels.tiny_kernels import tiny_kernel
from tests.every_check import EVERY_CHECK
from tests.runtime.packing.compiled_checks import compiled, registers

ALONG, ACROSS = Memory("along", True), Memory("across", True)
SINGLY = Memory("stack", False)
REGISTERS = 65536  # of a multiprocessor

VARIANTS = [
    (16, 16, 4, SINGLY, SINGLY, False),
]
if EVERY_CHECK:
    VARIANTS += [
        (5, 5, 5, ALONG, ACROSS, True),
        (16, 16, 16, ALONG, ALONG, True),
        (13, 30, 30, ACROSS, ALONG, False),
        (16, 16, 16, ACROSS, ACROSS, True),
        (32, 32, 32, ALONG, ALONG, True),
        (32, 32, 32, SINGLY, SINGLY, False),
        (4, 4, 4, ALONG, ALONG, True),
        (16, 16, 1, ALONG, ALONG, True),
        (1, 32, 32, ALONG, ACROSS, True),
        (31, 31, 31, ALONG, ALONG, True),
        (1, 1, 1, ALONG, ALONG, True),
    ]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_it_compiles_as_meant(
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
