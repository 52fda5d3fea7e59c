"""Additions to the PTX that Numba makes of a kernel, for which Numba itself has no means."""

import re
from typing import Literal

Order = Literal["after", "beside"]
CLUSTERED = b".explicitcluster"  # in the PTX of kernels that are launched in clusters


def clustered(ptx: bytes, blocks: int) -> bytes:
    """The PTX of one kernel, to be launched in clusters of so many blocks; 0: as it is.

    Said here rather than by the launch: a loop over the blocks that is not unrolled takes 12 % more
    time at 16, and a launch that says nothing of a cluster of one is an illegal instruction.
    """
    if not blocks:
        return ptx
    directives = b"\n" + CLUSTERED + f"\n.reqnctapercluster {blocks}, 1, 1".encode()
    # Performance directives stand between the entry's parameters and its body.
    return re.sub(rb"\.entry [^)]*\)", lambda found: found[0] + directives, ptx, count=1)


def gated(ptx: bytes) -> bytes:
    """The PTX of one kernel that takes another address, after what it takes already: where there is
    a 0, an int32 that may be of the launch before, it does nothing.
    """
    head, entry, rest = ptx.partition(b".entry ")
    parameters, end, rest = rest.partition(b"\n)")
    between, brace, body = rest.partition(b"{")
    test = b"""
.reg .pred %closed;
.reg .b32 %gate;
.reg .b64 %gate_at;
ld.param.u64 %gate_at, [gate_address];
ld.volatile.global.u32 %gate, [%gate_at];
setp.eq.u32 %closed, %gate, 0;
@!%closed bra $open;
ret;
$open:
"""
    parameters += b",\n\t.param .u64 gate_address"
    return head + entry + parameters + end + between + brace + test + body


def ordered(ptx: bytes, order: Order) -> bytes:
    """The PTX of a kernel for compute capability 9.0 or later, which may be launched early.

    "after": it waits for the launch before it, so that no more than the start of the one overlaps
    with the end of the other. "beside": it does so in the end, since it needs nothing of that
    launch; what was enqueued before that one has been done if that one is "after" it. Either lets
    the launch after it begin as soon as all its own blocks have.
    """
    head, entry, body = ptx.partition(b".entry ")
    parameters, brace, body = body.partition(b"{")
    first, last = b"griddepcontrol.launch_dependents;\n", b"griddepcontrol.wait;\n"
    if order == "after":
        first, last = last + first, b""
    if last:
        body = re.sub(rb"^\s*ret;", lambda found: last + found[0], body, flags=re.MULTILINE)
    return head + entry + parameters + brace + b"\n" + first + body
