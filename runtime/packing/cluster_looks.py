"""What blocks of a cluster tell one another of their rows."""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.packing.cluster_intrinsics import send
from mixpert_py.runtime.packing.intrinsics import device
from mixpert_py.runtime.packing.layout import ACROSS, APART, PANEL
from mixpert_py.runtime.packing.panel_looks import folds
from mixpert_py.runtime.packing.row_digits import facts
from mixpert_py.runtime.packing.side import Side

SEEN, LOST = 0, 1  # boxes: what all see, sent to all; what rows lose, sent to the first
OF_WARP = PANEL // ACROSS  # parts


class Tellings(NamedTuple):
    """Device functions: put_together, what a warp's parts have seen, as the first of them; tell,
    what a block's warps have, to all blocks; told, the same of all of them, for one row; lose, what
    a block's parts lose of rows, to the first block; lost, whether a row has lost too much in all.
    """

    put_together: Any
    tell: Any
    told: Any
    lose: Any
    lost: Any


def seen_bytes(side: Side, blocks: int) -> int:
    """That a block is sent, in all, of what blocks see."""
    of_row = (4 if side.memory == "float32" else 8) + 4 * side.fineness + 4 * (side.sums > 0)
    return blocks * PANEL * of_row


def lost_bytes(side: Side, blocks: int) -> int:
    """That the first block is sent of what rows lose, if any may leave."""
    return 4 * blocks * PANEL * side.sums


def tellings(side: Side, threads: int, blocks: int) -> Tellings:
    """For blocks of so many threads, and clusters of so many blocks."""
    BLOCKS, SUMS, FINENESS, BITS = blocks, side.sums, side.fineness, facts(side).bits
    PARTS, GROUPS = threads // ACROSS, threads // PANEL
    ROOM, ALL = PARTS * APART, blocks * PANEL
    highest, finest, strongest = folds(side)

    def put_together(top_of, fine_of, power_of, own, group):
        first = np.int32(APART * OF_WARP * group + own)
        top_of[first] = highest(top_of, first, APART, OF_WARP)
        if FINENESS:
            fine_of[first] = finest(fine_of, first, APART, OF_WARP)
        if SUMS > 0:
            power_of[first] = strongest(power_of, first, APART, OF_WARP)

    def tell(top_of, fine_of, power_of, own, group, rank, tops, fines, powers, boxes):
        mine = np.int32(rank * PANEL + own)
        # Three warps, one for each.
        for task in range(group, 3, GROUPS):
            if task == 0:
                top = highest(top_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(tops, mine, top, np.int32(block), boxes, SEEN)
            if FINENESS and task == 1:
                fine = finest(fine_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(fines, mine, fine, np.int32(block), boxes, SEEN)
            if SUMS > 0 and task == 2:
                power = strongest(power_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(powers, mine, power, np.int32(block), boxes, SEEN)

    def told(tops, fines, powers, own):
        top = BITS(highest(tops, own, PANEL, BLOCKS))
        fine = np.int32(0)
        if FINENESS:
            fine = finest(fines, own, PANEL, BLOCKS)
        power = np.float32(0)
        if SUMS > 0:
            power = strongest(powers, own, PANEL, BLOCKS)
        return top, fine, power

    def lose(sums, own, group, rank, left, boxes):
        for p in range(group, SUMS, GROUPS):
            excess = strongest(sums, np.int32(ROOM * p + own), APART, PARTS)
            send(left, ALL * p + PANEL * rank + own, excess, np.int32(0), boxes, LOST)

    def lost(left, own):
        out = False
        for p in range(SUMS):
            whole = 0.0
            for block in range(BLOCKS):
                whole += np.float64(left[ALL * p + PANEL * block + own])
            out = out or whole > 0.0
        return out

    return Tellings(*[device(one) for one in (put_together, tell, told, lose, lost)])
