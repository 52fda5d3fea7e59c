"""How good a product is, n = K and u = 2^-24: the grades A, B and C of a matrix multiplication."""

import numpy as np

from tests.runtime.families import Array

UNIT = 2.0**-24


def grades(a: Array, b: Array, value: Array) -> str:
    """The grades that a product earns on these operands, as a string such as "BC".

    A: |E| ≤ n u |A||B| elementwise. B: |E|ij ≤ n u ‖A(i,:)‖ ‖B(:,j)‖. C: ‖E‖F ≤ n u ‖A‖F ‖B‖F.
    E is taken against the product in float64; K smallest numbers of the result's type are let go,
    as in any product whose result underflows.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(value - a @ b)
    rows, columns = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=0)
    error -= a.shape[1] * np.finfo(value.dtype).smallest_subnormal
    error = np.maximum(error, 0)
    limit = a.shape[1] * UNIT * (1 + 2.0**-20)
    earned = {
        "A": (error <= limit * (np.abs(a) @ np.abs(b))).all(),
        "B": (error <= limit * np.outer(rows, columns)).all(),
        "C": np.linalg.norm(error) <= limit * np.linalg.norm(a) * np.linalg.norm(b),
    }
    return "".join(grade for grade, holds in earned.items() if holds)
