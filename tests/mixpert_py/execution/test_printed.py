"""Numbers in what a program prints."""

from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

from mixpert_py.errors import ProgramError
from mixpert_py.execution.outputs import (
    MOST_BYTES,
    STDOUT,
    numbers_in,
    printed_text,
)

NUMBERS = [
    ("1 -2 +3", [1, -2, 3]),
    ("0.5 .5 5. -.5e3 1E-05 6.02e+23", [0.5, 0.5, 5, -500, 1e-5, 6.02e23]),
    ("loss=1.25, took 3s (12%)", [1.25, 3, 12]),
    ("[[1. 2.]\n [3. 4.]]", [1, 2, 3, 4]),
    ("(1-2j) 3e-4j", [1, -2, 3e-4]),
    ("nan -inf Infinity NaN", [nan, -inf, inf, nan]),
    ("float32 x86_64 v1.2 int8x6 info nano", []),
    ("<object at 0x7f81> 3.11.7", [0, 3.11]),
    ("1.06× 2.5µs −", [1.06, 2.5]),
    ("a-1 b:2 c/3", [-1, 2, 3]),
]


@pytest.mark.parametrize(("text", "expected"), NUMBERS, ids=[row[0] for row in NUMBERS])
def test_numbers(text: str, expected: list[float]) -> None:
    if expected:
        np.testing.assert_array_equal(numbers_in(text), expected)
    else:
        with pytest.raises(ProgramError, match="no number in it"):
            numbers_in(text)


def test_more_than_is_kept(tmp_path: Path) -> None:
    (tmp_path / STDOUT).write_bytes(b"1" * MOST_BYTES)
    assert len(printed_text(tmp_path)) == MOST_BYTES
    (tmp_path / STDOUT).write_bytes(b"1" * (MOST_BYTES + 1))
    with pytest.raises(ProgramError, match="more than 4 MiB"):
        printed_text(tmp_path)
