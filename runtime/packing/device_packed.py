"""A packed operand on the device."""

from typing import Any, NamedTuple

from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.packing.layout import Layout
from mixpert_py.runtime.packing.operand import Operand
from mixpert_py.runtime.splitter import Splitter


class DevicePacked(NamedTuple):
    """A packed operand, A by rows or B by columns: `rows` below means either.

    All in one allocation, which the other operand may share; addresses are the device's. S = 64 /
    size elements are a step.

    slices: (batch, steps, count, rows8, 64) bytes, the highest slice first. Of each row's four
    chunks of 16 bytes, chunk c is at c ^ ((row >> 1) & 3): the 64-byte swizzle of wgmma. Block t of
    K starts at t · padded_block; what is past a block's end, or past K, is zero; rows past `rows`
    hold anything. 32 KiB past the end may be read.
    scales: int32 scale words (batch, blocks, rows), see `abi`: a unit of slice 0 is g · 2^E.
    flags: uint8 (batch, rows), bit 0 the row holds NaN or Inf, bit 1 outliers; what is flagged is
    zero in the slices. outliers: uint8 (batch, blocks, rows), 1 where that block is one; address 0
    if there is one block, which bit 1 tells of.
    norms: float64 (batch, 2 + count, rows): of the row, what splitting lost, and each slice by
    value; address 0 unless measured.
    """

    operand: Operand
    splitter: Splitter
    layout: Layout
    slices: int
    scales: int
    flags: int
    outliers: int
    norms: int
    owner: Any

    @property
    def batch(self) -> int:
        return self.layout.batch

    @property
    def rows(self) -> int:
        return self.layout.rows

    @property
    def steps(self) -> int:
        return self.layout.steps

    def view(self, name: str) -> Any:
        """A CuPy array of "slices", "scales", "flags", "outliers" or "norms", without a copy.

        Raises ValueError for what is not there.
        """
        import cupy

        place = self.layout
        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "slices": ((place.batch, place.steps, place.count, place.rows8, STEP), "uint8"),
            "scales": ((place.batch, place.blocks, place.rows), "int32"),
            "flags": ((place.batch, place.rows), "uint8"),
            "outliers": ((place.batch, place.blocks, place.rows), "uint8"),
            "norms": ((place.batch, 2 + place.count, place.rows), "float64"),
        }
        address = getattr(self, name)
        if not address:
            raise ValueError(f"packed without {name}")
        shape, dtype = shapes[name]
        return cupy.ndarray(shape, dtype, self.owner + (address - self.owner.ptr))
