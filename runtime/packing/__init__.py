"""Splitting operands on the device, into the layout that the GEMM kernels take.

`strips` packs whatever a scheme may ask for, `rows` what most products are: K as one block.
Afterwards `repair` puts back what packing took out of the slices.
"""

from functools import lru_cache

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.outliers import OutlierRule
from mixpert_py.runtime.packing.device_packed import DevicePacked
from mixpert_py.runtime.packing.operand import Operand, by_columns, by_rows
from mixpert_py.runtime.packing.rows import pack_rows, suits
from mixpert_py.runtime.packing.strips import pack_strips
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Splitter

__all__ = ["DevicePacked", "Operand", "by_columns", "by_rows", "pack", "pack_one"]

LARGE = 1 << 23  # elements from which a kernel for rows alone outweighs a second launch


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

    One launch, or up to two where K is one block and operands are large (`rows`): flagged
    rows of digits then hold anything, in units of zero.

    block: stretch of K per scale, see `Scheme.with_block`. rule: what leaves integer slices, see
    `reference.multiply`. measure: 2-norms too. Does not wait for the device.
    Raises ShapeError where K differs or anything is empty, PlanError on a block length where the
    scheme has none.
    """
    if a.k != b.k:
        raise ShapeError(f"cannot multiply rows of {a.k} by columns of {b.k}")
    result = "float64" if "float64" in (a.memory, b.memory) else "float32"
    scheme = scheme.with_block(block)
    splitters = scheme.left, scheme.right
    left, right = _packed((a, b), splitters, scheme.lengths(a.k)[1], result, rule, measure, stream)
    return left, right


def pack_one(
    x: Operand,
    scheme: Scheme,
    which: str,
    result: str,
    *,
    block: int | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    stream: int = 0,
) -> DevicePacked:
    """One operand, `which` "left" or "right", to be kept; result: the type of its products."""
    scheme = scheme.with_block(block)
    splitter = scheme.left if which == "left" else scheme.right
    length = scheme.lengths(x.k)[1]
    return _packed((x,), (splitter,), length, result, rule, measure, stream)[0]


def _packed(
    operands: tuple[Operand, ...],
    splitters: tuple[Splitter, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    measure: bool,
    stream: int,
) -> tuple[DevicePacked, ...]:
    elements = sum([x.k * x.rows for x in operands])
    if elements >= LARGE and _by_rows(
        splitters, tuple([x.form for x in operands]), block, measure, rule
    ):
        return pack_rows(operands, splitters, result, rule=rule, stream=stream)
    return pack_strips(
        operands, splitters, block, result, rule=rule, measure=measure, stream=stream
    )


_by_rows = lru_cache(4096)(suits)
