"""The launch where tiles of rows × 32 of K share an exponent."""

from typing import NamedTuple

from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.packing.launch import Plan, has_vectors, places
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.splitter import Digits, Splitter

WARP = 32
WARP_ROWS = 16
STRETCH = 32  # of K, of a tile
LONGEST = 1 << 30  # of K, so that places along it fit 32 bits


class Tuning(NamedTuple):
    """Sizes of launches that change no bit.

    threads: of a block; resident: for how many a multiprocessor is to have room, and so registers.
    broad: blocks from which on those of contiguous rows take two neighbouring strips of them, which
    memory reads better than one.
    """

    threads: int = 256
    resident: int = 768
    broad: int = 256


DEFAULT = Tuning()


def suits(
    splitters: tuple[Splitter, ...], forms: tuple[Form, ...], block: int, measure: bool,
    rule: OutlierRule,
) -> bool:  # fmt: skip
    """Whether the tile kernel packs these, of which every `block` of K share a unit.

    Left to the general kernel: double precision, operands that are contiguous neither along K nor
    along rows, rule "ratio", and norms.
    """
    return (
        not measure
        and rule in ("loss", "none")
        and all(_sevens(splitter) for splitter in splitters)
        and all(x.memory == "float32" and 0 < x.k <= LONGEST for x in forms)
        and all(block == min(STRETCH, x.k) for x in forms)
        and all(x.k_stride == 1 or x.row_stride == 1 for x in forms)
    )


def _sevens(splitter: Splitter) -> bool:
    return (
        isinstance(splitter, Digits)
        and splitter.width == 7
        and splitter.group in (8, 16)
        and splitter.digits <= 4
        and not splitter.fitted
    )


def plan(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    block: int,
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
) -> Plan:
    """For one operand or two, what `suits`. block: stretch of K per scale; result: the type of the
    product, "float32". Raises ShapeError where an operand is empty.
    """
    layouts, sides = places(splitters, forms, result, rule, block)
    covers = tuple(_cover(x, layouts[0].steps, tuning) for x in forms)
    grids = [x.batch * cover.strips for x, cover in zip(forms, covers, strict=True)]
    return Plan(
        ("tile_kernels", "pack_kernel"),
        (sides[0], sides[-1], tuning.threads, tuning.resident // tuning.threads),
        *(splitters, layouts, covers),
        (grids[0], layouts[0].k, layouts[0].steps),
        sum(grids),
        tuning.threads,
        pointers=4,
    )


class Cover(NamedTuple):
    """How blocks cover an operand, as the kernel takes it. Strides are in elements.

    stride: from row to row if K is contiguous (along), else from place to place along K. vector:
    whether four neighbours are always 16-byte aligned. strips: blocks next to each other; deep:
    logarithm of how many of a block's warps lie along K, the others along rows.
    """

    rows: int
    batch_stride: int
    stride: int
    along: int
    vector: int
    strips: int
    deep: int


def _cover(x: Form, steps: int, tuning: Tuning) -> Cover:
    along = x.k_stride == 1
    stride = x.row_stride if along else x.k_stride
    vector = has_vectors(x, stride)
    warps = tuning.threads // WARP
    deep = min(warps.bit_length(), steps.bit_length()) - 1
    if not along and 1 << deep == warps > 1 and _strips(x, 2) * x.batch >= tuning.broad:
        deep -= 1
    strips = _strips(x, warps >> deep)
    return Cover(x.rows, x.batch_stride, stride, int(along), int(vector), strips, deep)


def _strips(x: Form, warps: int) -> int:
    """Blocks that cover the rows, so many warps of each side by side."""
    return -(-x.rows // (WARP_ROWS * warps))
