"""A device array as packing reads it: rows along K, by strides."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError

VECTOR = 16  # bytes of the widest load
MEMORY = {"f": ("float32", 4), "d": ("float64", 8)}


class Form(NamedTuple):
    """An operand, but for where it lies."""

    memory: str
    batch: int
    rows: int
    k: int
    batch_stride: int
    row_stride: int
    k_stride: int
    aligned: bool

    @property
    def itemsize(self) -> int:
        return 4 if self.memory == "float32" else 8

    def mapping(self, block: int) -> int:
        """See `Cover`; block: the stretch of K after which a thread starts again."""
        if self.k_stride != 1:
            return int(abs(self.row_stride) < abs(self.k_stride))
        starts = self.row_stride | self.batch_stride | (block if block < self.k else 0)
        return 2 if self.aligned and starts * self.itemsize % VECTOR == 0 else 0


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A device array as rows along K: A as it is, B by its columns. Strides are in elements.

    batch is 1 where all products share the operand. owner keeps the memory.
    """

    address: int
    memory: str
    batch: int
    rows: int
    k: int
    batch_stride: int
    row_stride: int
    k_stride: int
    owner: Any

    @property
    def itemsize(self) -> int:
        return 4 if self.memory == "float32" else 8

    @property
    def form(self) -> Form:
        strides = self.batch_stride, self.row_stride, self.k_stride
        aligned = self.address % VECTOR == 0
        return Form(self.memory, self.batch, self.rows, self.k, *strides, aligned)


def by_rows(a: Any) -> Operand:
    """A, (m, k) or (batch, m, k) float32 or float64, any strides. Raises ShapeError, TypeError."""
    return _operand(a, -2, -1)


def by_columns(b: Any) -> Operand:
    """B, (k, n) or (batch, k, n), likewise: its rows are the columns."""
    return _operand(b, -1, -2)


def _operand(x: Any, row_axis: int, k_axis: int) -> Operand:
    shape, strides = x.shape, x.strides
    try:
        memory, size = MEMORY[x.dtype.char]
    except KeyError:
        raise TypeError(f"cannot split {x.dtype}: wanted float32 or float64") from None
    if not 2 <= len(shape) <= 3:
        raise ShapeError(f"cannot pack an array of shape {shape}: wanted two or three dimensions")
    batch, batch_stride = 1, 0
    if len(shape) == 3 and (strides[0] != 0 or shape[0] == 0):  # an empty stack has any strides
        batch, batch_stride = shape[0], strides[0] // size
    return Operand(
        x.data.ptr,
        memory,
        batch,
        shape[row_axis],
        shape[k_axis],
        batch_stride,
        strides[row_axis] // size,
        strides[k_axis] // size,
        x,
    )
