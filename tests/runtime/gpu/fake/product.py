"""What the kernels make, by the reference engine."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mixpert_py.runtime.reference import reference, residues
from mixpert_py.runtime.reference.engine import execute
from mixpert_py.runtime.reference.packed import kept_part, outlier_part
from tests.runtime.gpu.fake.array import ndarray
from tests.runtime.gpu.fake.packed import FakePacked


def matrices(left: FakePacked, right: FakePacked, out: ndarray) -> Iterator[tuple[Any, Any, Any]]:
    """A, B and C of each product."""
    values = out.x if out.ndim == 3 else out.x[np.newaxis]
    rows, columns = left.array(), right.array()
    assert {len(rows), len(columns)} <= {1, len(values)}
    with np.errstate(all="ignore"):
        for i, value in enumerate(values):
            yield rows[i % len(rows)], columns[i % len(columns)].T, value


def split(a: Any, b: Any, scheme: Any, rule: Any) -> tuple[Any, Any]:
    """Both operands, packed."""
    if scheme.moduli:
        pair = residues.pack(a, b, scheme)
        return pair.left, pair.right
    return reference.pack(a, b, scheme, rule)


def slices_product(a: Any, b: Any, scheme: Any, rule: Any, dtype: Any) -> Any:
    a, b = a.astype(dtype), b.astype(dtype)
    if scheme.moduli:
        return residues.execute(residues.pack(a, b, scheme), np.dtype(dtype))
    left, right = split(a, b, scheme, rule)
    value = execute(scheme, a.shape[1], left, right, dtype)
    value[left.nonfinite] = value[:, right.nonfinite] = 0
    return value


def add_what_left(value: Any, a: Any, b: Any, scheme: Any, rule: Any) -> None:
    """A's outliers times B, then the rest of A times B's, and all of A·B where there is NaN or Inf:
    plain chains.
    """
    dtype = value.dtype
    a, b = a.astype(dtype), b.astype(dtype)
    left, right = split(a, b, scheme, rule)
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
