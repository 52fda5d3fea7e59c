"""Kernel sources as they are compiled, what is put into PTX, and compilations that fail."""

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.kernels.numba_ptx import compiled
from mixpert_py.runtime.kernels.ptx import gated, ordered


@pytest.mark.parametrize("file", ["gemm_sm80.cu", "gemm_sm90.cu"])
def test_definitions_come_first_and_nothing_is_included(file: str) -> None:
    text = source_text(file, (("ELEMENT", 1), ("TERMS", "{0,0}")))
    assert text.startswith("#define ELEMENT 1\n#define TERMS {0,0}\n")
    assert "#include" not in text
    assert text.count("struct Problem {") == 1
    assert text.index("struct Problem {") < text.index("__global__")


def factory() -> tuple[object, tuple[object, ...]]:
    from numba.cuda import types

    def kernel(x):  # type: ignore[no-untyped-def]
        return x.nothing_of_the_kind

    return kernel, (types.int64,)


def test_what_numba_cannot_compile_is_one_clear_line() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    with pytest.raises(DeviceError, match=r"^kernel 'factory': .*$"):
        compiled(__name__, "factory", (), "90")


def test_what_needs_itself_while_it_is_made_does_not_wait_for_itself() -> None:
    """A signal's handler, or a finalizer, may want a kernel that is being compiled."""
    from mixpert_py.runtime.kernels.compile import once

    depth = [0]

    @once
    def make(key: int) -> int:
        depth[0] += 1
        return make(key) if depth[0] < 3 else depth[0]

    assert make(1) == 3
    assert make(1) == 3


PTX = b""".version 8.3
.visible .entry pack(
\t.param .u64 pack_param_0
)
.maxntid 256, 1, 1
{
\t.reg .pred \t%p<2>;
\t@%p1 bra \t$L__BB0_2;
\tret;
$L__BB0_2:
\tret;
}
"""
WAIT, GO = b"griddepcontrol.wait;", b"griddepcontrol.launch_dependents;"


def test_a_kernel_after_another_waits_before_all_else() -> None:
    head, rest = ordered(PTX, "after").split(b"{")
    assert rest.split(b"\n")[1:3] == [WAIT, GO]
    assert rest.count(WAIT) == rest.count(GO) == 1
    assert head == PTX.split(b"{")[0]


def test_a_gate_is_looked_at_after_the_wait_and_before_all_else() -> None:
    text = ordered(gated(PTX), "after")
    head, body = text.split(b"{")
    assert head.split(b"(")[1].split(b")")[0].strip() == (
        b".param .u64 pack_param_0,\n\t.param .u64 gate_address"
    )
    lines = [line.strip() for line in body.split(b"\n") if line.strip()]
    look = lines.index(b"ld.volatile.global.u32 %gate, [%gate_at];")
    assert lines.index(WAIT) < look < lines.index(b"ret;") < lines.index(b"@%p1 bra \t$L__BB0_2;")
