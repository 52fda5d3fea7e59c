"""Splitting operands on the device, into the layout that the GEMM kernels take.

One description of a split, `side.Side`, says what a kernel is compiled for: the splitter's numbers,
the operand's type, and what decides whether a row leaves the slices. One record of a launch,
`launch.Plan`, says all but addresses; `launch.Launch.pack` enqueues any of them. What is done to
elements is in `digits` and `floats`, for every kernel; the kernels differ in how they read:

- `strip_kernels` packs whatever a scheme may ask for: any block of K, any strides, norms;
- `row_kernels` is for K as one block and operands that are contiguous along it: each row is read
  once and held in registers;
- `panel_kernels` is for K as one block where rows are contiguous: read twice, in one launch;
- `cluster_kernels` does the same reading once, where a cluster's registers hold K;
- `tile_kernels` is for exponents of small tiles, as the schemes of the MixPert paper have them.

The last two only save time: without their branches in `_way` and `_choices`, `panel_kernels` and
`strip_kernels` pack the same bits. Afterwards `repair` puts back what packing took out of slices.
"""

from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.kernels.ptx import Order
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing import blocks, rows
from mixpert_py.runtime.packing.launch import Launch, Plan, prepare
from mixpert_py.runtime.packing.operand import (
    DevicePacked,
    Form,
    Operand,
    by_columns,
    by_rows,
    layout,
    up,
)
from mixpert_py.runtime.packing.side import side
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule, Splitter

__all__ = [
    "DevicePacked",
    "Operand",
    "by_columns",
    "by_rows",
    "pack",
    "pack_one",
    "packed_bytes",
    "pooled",
]

LARGE = 1 << 22  # elements from which a second launch costs less than the general kernel
UNIT = 512  # bytes, of which CuPy's memory pool gives whole numbers

Which = Literal["both", "left", "right"]
# The kernel that packs operands, their splitters, and their forms.
Choice = tuple[str, tuple[Splitter, ...], tuple[Form, ...]]


class Packer(NamedTuple):
    """The launches that pack operands of given forms: one for both, or one for each."""

    launches: tuple[Launch, ...]
    bytes: int


def pack(
    a: Operand,
    b: Operand,
    scheme: Scheme,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: Stream = 0,
    room_for: Scheme | None = None,
    memory: Any = None,
    gate: int = 0,
) -> tuple[DevicePacked, DevicePacked]:
    """A and B split as the scheme says, on a stream (its address) of the current device.

    One launch, or two where K is one block and only one operand is contiguous along it. Where it
    is one block, flagged rows of digits hold anything, in units of zero.

    block: segment of K per scale, see `Scheme.with_block`. rule: what leaves integer slices, see
    `reference.multiply`. measure: 2-norms too. room_for: a scheme by which they may be packed
    again, in the same memory, which both share: `memory`. gate: the address of an int32; where that
    is 0 nothing is done. Does not wait for the device.
    Raises ShapeError where K differs or anything is empty, PlanError on a block length where the
    scheme has none.
    """
    forms = a.form, b.form
    how = _prepared(scheme, "both", forms, "", block, rule, measure, gate != 0, a.device)
    if room_for is not None:
        other = _prepared(room_for, "both", forms, "", None, rule, False, True, a.device)
        memory = allocate(max(how.bytes, other.bytes), stream)
    if len(how.launches) == 1:
        left, right = how.launches[0].pack((a, b), stream, memory, gate)
        return left, right
    first, second = how.launches
    rest = None if memory is None else memory + up(first.bytes)
    (left,), (right,) = (
        first.pack((a,), stream, memory, gate),
        second.pack((b,), stream, rest, gate),
    )
    return left, right


def pack_one(
    x: Operand,
    scheme: Scheme,
    which: Literal["left", "right"],
    result: str,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: Stream = 0,
) -> DevicePacked:
    """One operand, to be kept; result: the type of its products."""
    how = _prepared(scheme, which, (x.form,), result, block, rule, measure, False, x.device)
    return how.launches[0].pack((x,), stream)[0]


@lru_cache(4096)
def _prepared(
    scheme: Scheme,
    which: Which,
    forms: tuple[Form, ...],
    result: str,
    block: int | None,
    rule: OutlierRule,
    measure: bool,
    gated: bool,
    device: int,
) -> Packer:
    """The launches for operands of these forms, whatever their addresses, on this device."""
    scheme = scheme.with_block(block)
    result = result or _result(forms)
    choices = _choices(scheme, which, forms, result, rule, measure, device)
    block = scheme.lengths(forms[0].k)[1]
    # Two of panels would count in the same memory.
    both_panels = [way for way, _, _ in choices] == ["panels", "panels"]
    orders: tuple[Order, ...] = "after", "after" if both_panels else "beside"
    prepared = [
        prepare(_plan(one, block, result, rule, measure, device), order, gated)
        for one, order in zip(choices, orders, strict=False)
    ]
    return Packer(tuple(prepared), sum(up(one.bytes) for one in prepared))


def _plan(
    one: Choice, block: int, result: str, rule: OutlierRule, measure: bool, device: int
) -> Plan:
    way, splitters, forms = one
    if way == "tiles":
        return blocks.tile_plan(splitters, forms, block, result, rule)
    if way == "strips":
        shared = blocks.shared_memory(device)
        return blocks.strip_plan(splitters, forms, block, result, rule, measure, shared)
    if way == "rows":
        return rows.row_plan(splitters, forms, result, rule)
    if way == "clusters":
        return rows.cluster_plan(splitters, forms, result, rule)
    return rows.panel_plan(splitters, forms, result, rule, device)


@lru_cache(4096)
def packed_bytes(
    scheme: Scheme,
    which: Which,
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    measure: bool,
    device: int,
) -> int:
    """Bytes of the device that packing operands of these forms takes, as CuPy counts them, with
    those that it needs only while it works. Arguments as in `pack` and `pack_one`.
    """
    total = 0
    length = scheme.lengths(forms[0].k)[1]
    result = result or _result(forms)
    for way, splitters, its in _choices(scheme, which, forms, result, rule, measure, device):
        if way == "panels":
            size = rows.panel_plan(splitters, its, result, rule, device).bytes
        else:
            places = [
                layout(splitter, x.batch, x.rows, x.k, length, measure)
                for splitter, x in zip(splitters, its, strict=True)
            ]
            size = sum(up(place.bytes) for place in places)
        total += pooled(size)
    return total


def pooled(size: int) -> int:
    """Bytes that CuPy's memory pool takes for an allocation."""
    return -(-size // UNIT) * UNIT


def _choices(
    scheme: Scheme,
    which: Which,
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    measure: bool,
    device: int,
) -> tuple[Choice, ...]:
    """How operands of these forms are packed: all at once, or one after the other."""
    if forms[0].k != forms[-1].k:
        raise ShapeError(f"cannot multiply rows of {forms[0].k} by columns of {forms[1].k}")
    splitters = {
        "both": (scheme.left, scheme.right),
        "left": (scheme.left,),
        "right": (scheme.right,),
    }[which]
    length = scheme.lengths(forms[0].k)[1]
    if result == "float32" and blocks.tiles_suit(splitters, forms, length, measure, rule):
        return (("tiles", splitters, forms),)
    ways = [
        _way(splitter, x, length, result, measure, rule, device)
        for splitter, x in zip(splitters, forms, strict=True)
    ]
    alike = ways[0] == ways[-1]
    elements = sum(x.batch * x.rows * x.k for x in forms)
    if "strips" in ways or (not alike and elements < LARGE):
        return (("strips", splitters, forms),)
    # Only rows are packed together where they are split, or lie in memory, unlike each other.
    same = splitters[0] == splitters[-1] and forms[0].memory == forms[-1].memory
    if alike and (same or ways[0] == "rows"):
        return ((ways[0], splitters, forms),)
    return tuple(
        (way, (splitter,), (x,)) for way, splitter, x in zip(ways, splitters, forms, strict=True)
    )


def _result(forms: tuple[Form, ...]) -> str:
    """The type of a product of operands of these forms."""
    return "float64" if "float64" in [x.memory for x in forms] else "float32"


def _way(
    splitter: Splitter,
    x: Form,
    block: int,
    result: str,
    measure: bool,
    rule: OutlierRule,
    device: int,
) -> str:
    if rows.rows_suit((splitter,), x.k, block, measure, rule):
        if x.k_stride == 1:
            return "rows"
        if x.row_stride == 1 and x.k <= rows.LONGEST_PANEL:
            held = rows.cluster_shape(side(splitter, x.memory, result, rule, measure), x.k)
            return "clusters" if held and rows.has_clusters(device) else "panels"
    return "strips"
