"""Splitting operands on the device, into the layout that the GEMM kernels take.

`strips` packs whatever a scheme may ask for. Most products take K as one block: `rows` are for
operands that are contiguous along it; for others `clusters`, where the device has them and they
hold K, or `panels`; `tiles` for exponents of small tiles. Afterwards `repair` puts back what
packing took out of the slices.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.kernels.ptx import Order
from mixpert_py.runtime.outliers import OutlierRule
from mixpert_py.runtime.packing.clusters import has_clusters, prepared_clusters, shape
from mixpert_py.runtime.packing.device_packed import DevicePacked
from mixpert_py.runtime.packing.operand import Form, Operand, by_columns, by_rows
from mixpert_py.runtime.packing.panels import LONGEST, prepared_panels
from mixpert_py.runtime.packing.rows import prepared_rows, suits
from mixpert_py.runtime.packing.side import side
from mixpert_py.runtime.packing.strips import prepared_strips
from mixpert_py.runtime.packing.tiles import prepared_tiles
from mixpert_py.runtime.packing.tiles import suits as tiles_suit
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Splitter

__all__ = ["DevicePacked", "Operand", "by_columns", "by_rows", "pack", "pack_one"]

LARGE = 1 << 22  # elements from which a second launch costs less than the general kernel

Pack = Callable[[tuple[Operand, ...], int], tuple[DevicePacked, ...]]


def pack(
    a: Operand,
    b: Operand,
    scheme: Scheme,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: int = 0,
) -> tuple[DevicePacked, DevicePacked]:
    """A and B split as the scheme says, on a stream (its address) of the current device.

    One launch, or two where K is one block and only one operand is contiguous along it. Where it
    is one block, flagged rows of digits hold anything, in units of zero.

    block: stretch of K per scale, see `Scheme.with_block`. rule: what leaves integer slices, see
    `reference.multiply`. measure: 2-norms too. Does not wait for the device.
    Raises ShapeError where K differs or anything is empty, PlanError on a block length where the
    scheme has none.
    """
    forms = a.form, b.form
    left, right = _prepared(scheme, "both", forms, "", block, rule, measure, a.device)(
        (a, b), stream
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
    stream: int = 0,
) -> DevicePacked:
    """One operand, to be kept; result: the type of its products."""
    how = _prepared(scheme, which, (x.form,), result, block, rule, measure, x.device)
    return how((x,), stream)[0]


@lru_cache(4096)
def _prepared(
    scheme: Scheme,
    which: Literal["both", "left", "right"],
    forms: tuple[Form, ...],
    result: str,
    block: int | None,
    rule: OutlierRule,
    measure: bool,
    device: int,
) -> Pack:
    """What packs operands of these forms, whatever their addresses, on a stream of this device."""
    if forms[0].k != forms[-1].k:
        raise ShapeError(f"cannot multiply rows of {forms[0].k} by columns of {forms[1].k}")
    if not result:
        result = "float64" if "float64" in [x.memory for x in forms] else "float32"
    scheme = scheme.with_block(block)
    splitters = {
        "both": (scheme.left, scheme.right),
        "left": (scheme.left,),
        "right": (scheme.right,),
    }[which]
    length = scheme.lengths(forms[0].k)[1]
    if result == "float32" and tiles_suit(splitters, forms, length, measure, rule):
        return prepared_tiles(splitters, forms, length, result, rule, device).pack
    ways = [
        _way(splitter, x, length, result, measure, rule, device)
        for splitter, x in zip(splitters, forms, strict=True)
    ]
    alike = ways[0] == ways[-1]
    elements = sum(x.batch * x.rows * x.k for x in forms)
    if "strips" in ways or (not alike and elements < LARGE):
        return prepared_strips(splitters, forms, length, result, rule, measure, device).pack

    def made(some: slice, order: Order = "after") -> Pack:
        way, ours, its = ways[some][0], splitters[some], forms[some]
        if way == "rows":
            return prepared_rows(ours, its, result, rule, order=order).pack
        if way == "clusters":
            return prepared_clusters(ours, its, result, rule, order=order).pack
        return prepared_panels(ours, its, result, rule, device, order=order).pack

    # Only rows are packed together where they are split, or lie in memory, unlike each other.
    same = splitters[0] == splitters[-1] and forms[0].memory == forms[-1].memory
    if alike and (same or ways[0] == "rows"):
        return made(slice(None))
    first, second = made(slice(0, 1)), made(slice(1, 2), "beside")
    return lambda operands, stream: (
        *first(operands[:1], stream),
        *second(operands[1:], stream),
    )


def _way(
    splitter: Splitter,
    x: Form,
    block: int,
    result: str,
    measure: bool,
    rule: OutlierRule,
    device: int,
) -> str:
    if suits((splitter,), x.k, block, measure, rule):
        if x.k_stride == 1:
            return "rows"
        if x.row_stride == 1 and x.k <= LONGEST:
            held = shape(side(splitter, x.memory, result, rule, measure), x.k)
            return "clusters" if held and has_clusters(device) else "panels"
    return "strips"
