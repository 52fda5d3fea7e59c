"""Packed operands that are split when somebody looks, and what the kernels make of them."""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.packing import Operand
from mixpert_py.runtime.packing.operand import Layout
from mixpert_py.runtime.reference import reference, residues
from mixpert_py.runtime.reference.engine import execute
from mixpert_py.runtime.reference.reference import kept_part, outlier_part
from mixpert_py.runtime.schemes.integers import Integers, is_exact
from tests.runtime.gpu.fake.array import ndarray
from tests.runtime.gpu.fake.stream import Current


class FakePacked(NamedTuple):
    """A DevicePacked that is split when somebody looks. `origin`: the packed stack it is of."""

    operand: Operand
    splitter: Any
    layout: Layout
    slices: int
    scales: int
    flags: int
    outliers: int
    scheme: Any
    origin: Any = None
    memory: Any = None

    @property
    def owner(self) -> Any:
        return self.memory

    def check(self) -> None:
        """Whether what the kernels would read belongs to this part of the stack."""
        it, whole = self.operand, self.origin
        apart = it.form.batch_stride * it.form.itemsize
        index = (it.address - whole.operand.address) // apart if apart else 0
        place = whole.layout
        each = place.steps * place.count * place.rows8 * 64
        assert self.slices - whole.slices == index * each
        assert self.scales - whole.scales == index * place.blocks * place.rows * 4
        assert self.flags - whole.flags == index * place.rows
        assert self.layout.batch == it.batch

    def view(self, name: str) -> Any:
        assert self.operand.device == Current.device
        packed = []
        for matrix in entries(self.operand):
            if matrix.dtype.kind == "c":
                matrix = np.concatenate([matrix.real, matrix.imag], 1)
            with np.errstate(all="ignore"):
                if self.scheme.moduli:
                    packed.append(residues.pack(matrix, matrix.T, self.scheme).left)
                    continue
                packed.append(reference.pack(matrix, matrix.T, self.scheme)[0])
        if name == "flags":
            return ndarray(
                np.array([one.nonfinite + 2 * one.outlier.any(axis=1) for one in packed], np.uint8)
            )
        assert name == "outliers"
        return ndarray(np.array([one.outlier.T for one in packed], np.uint8))


def entries(x: Operand) -> Any:
    """An operand (batch, rows, k) in its own memory."""
    address, it, item, shape = x.address, x.form, x.form.itemsize, (x.batch, x.rows, x.k)
    strides = it.batch_stride * item, it.row_stride * item, it.k_stride * item
    low = sum(min(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True))
    high = sum(max(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True)) + item
    memory = (ctypes.c_byte * (high - low)).from_address(address + low)
    return np.ndarray(shape, it.memory, memory, -low, strides)


def matrices(left: FakePacked, right: FakePacked, out: ndarray) -> Iterator[tuple[Any, Any, Any]]:
    """A, B and C of each product."""
    values = out.x if out.ndim == 3 else out.x[np.newaxis]
    rows, columns = entries(left.operand), entries(right.operand)
    assert {len(rows), len(columns)} <= {1, len(values)}
    with np.errstate(all="ignore"):
        for i, value in enumerate(values):
            yield rows[i % len(rows)], columns[i % len(columns)].T, value


def split(a: Any, b: Any, scheme: Any) -> tuple[Any, Any]:
    if scheme.moduli:
        pair = residues.pack(a, b, scheme)
        return pair.left, pair.right
    return reference.pack(a, b, scheme)


def slices_product(a: Any, b: Any, scheme: Any, dtype: Any) -> Any:
    if np.dtype(dtype).kind == "c":
        real, joined = np.finfo(dtype).dtype, np.concatenate
        re = joined([a.real, -a.imag], 1), joined([b.real, b.imag])
        im = joined([a.real, a.imag], 1), joined([b.imag, b.real])
        value = np.empty((len(a), b.shape[1]), dtype)
        value.real, value.imag = (slices_product(*x, scheme, real) for x in (re, im))
        return value
    a, b = a.astype(dtype), b.astype(dtype)
    if isinstance(scheme.left, Integers):
        bounds = residues.bounds_of(a), residues.bounds_of(b)
        if not is_exact(scheme, *bounds, a.shape[1]):
            return np.full((len(a), b.shape[1]), np.nan)
    if scheme.moduli:
        return residues.execute(residues.pack(a, b, scheme), np.dtype(dtype))
    left, right = split(a, b, scheme)
    value = execute(scheme, a.shape[1], left, right, dtype)
    value[left.nonfinite] = value[:, right.nonfinite] = 0
    return value


def add_what_left(value: Any, a: Any, b: Any, scheme: Any) -> None:
    """A's outliers times B, then the rest of A times B's, and all of A·B where there is NaN or Inf:
    plain chains.
    """
    dtype = value.dtype
    a, b = a.astype(dtype), b.astype(dtype)
    left, right = split(a, b, scheme)
    whole = left.nonfinite[:, np.newaxis] | right.nonfinite
    block = scheme.lengths(a.shape[1])[1]
    if whole.any():
        value[whole] += (a @ b)[whole]
    if left.outlier.any():
        part, rows = outlier_part(a, left.outlier, block)
        value[rows] += np.where(whole[rows], 0, part @ b)
    if right.outlier.any():
        part, columns = outlier_part(b.T, right.outlier, block)
        rest = kept_part(a, left.outlier, block) @ part.T
        value[:, columns] += np.where(whole[:, columns], 0, rest)
