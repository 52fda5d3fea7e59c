"""A device array as packing reads it: rows along K, by strides."""

from functools import lru_cache
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError

VECTOR = 16  # bytes of the widest load
MEMORY = {"f": ("float32", 4), "d": ("float64", 8)}


class Form(NamedTuple):
    """An operand, but for where it lies. Strides are in elements.

    batch is 1 where all products share the operand.
    """

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


class Operand(NamedTuple):
    """A device array as rows along K: A as it is, B by its columns. owner keeps the memory."""

    address: int
    form: Form
    device: int
    owner: Any

    @property
    def memory(self) -> str:
        return self.form.memory

    @property
    def batch(self) -> int:
        return self.form.batch

    @property
    def rows(self) -> int:
        return self.form.rows

    @property
    def k(self) -> int:
        return self.form.k


def by_rows(a: Any) -> Operand:
    """A, (m, k) or (batch, m, k) float32 or float64, any strides. Raises ShapeError, TypeError."""
    memory = a.data
    address = memory.ptr
    form = _form(a.dtype.char, a.shape, a.strides, address % VECTOR == 0, -2, -1)
    return Operand(address, form, memory.device_id, a)


def by_columns(b: Any) -> Operand:
    """B, (k, n) or (batch, k, n), likewise: its rows are the columns."""
    memory = b.data
    address = memory.ptr
    form = _form(b.dtype.char, b.shape, b.strides, address % VECTOR == 0, -1, -2)
    return Operand(address, form, memory.device_id, b)


@lru_cache(4096)
def _form(
    char: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    aligned: bool,
    row_axis: int,
    k_axis: int,
) -> Form:
    try:
        memory, size = MEMORY[char]
    except KeyError:
        raise TypeError(f"cannot split dtype {char!r}: wanted float32 or float64") from None
    if not 2 <= len(shape) <= 3:
        raise ShapeError(f"cannot pack an array of shape {shape}: wanted two or three dimensions")
    batch, batch_stride = 1, 0
    if len(shape) == 3 and (strides[0] != 0 or shape[0] == 0):  # an empty stack has any strides
        batch, batch_stride = shape[0], strides[0] // size
    row_stride, k_stride = strides[row_axis] // size, strides[k_axis] // size
    rows, k = shape[row_axis], shape[k_axis]
    return Form(memory, batch, rows, k, batch_stride, row_stride, k_stride, aligned)
