"""What is put into a kernel's PTX."""

from mixpert_py.runtime.kernels.ptx import gated, ordered

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
