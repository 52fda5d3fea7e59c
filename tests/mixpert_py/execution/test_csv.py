"""Tables of numbers as text."""

from math import nan
from pathlib import Path

import numpy as np
import pytest

from mixpert_py.errors import ProgramError
from mixpert_py.execution.outputs import read_csv

FINE = [
    ("1,2\n3,4\n", [[1, 2], [3, 4]]),
    ("x,y\r\n1.5,-2e-3\r\n", [[1.5, -2e-3]]),
    ('\ufeff"x","y"\n"1","2"\n', [[1, 2]]),
    ("# made by a program\n1;2\n\n3;4", [[1, 2], [3, 4]]),
    ("1\t2\n", [[1, 2]]),
    ("1.0 2.0\n3.0  4.0\n", [[1, 2], [3, 4]]),
    ("7\n8\n", [[7], [8]]),
    ("a,b\n1,\n,inf\n", [[1, nan], [nan, np.inf]]),
]


@pytest.mark.parametrize(("text", "expected"), FINE, ids=[row[0] for row in FINE])
def test_numbers(tmp_path: Path, text: str, expected: list[list[float]]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    np.testing.assert_array_equal(read_csv(path, "t.csv"), expected)


BAD = [
    ("", "no line of numbers in it"),
    ("x,y\n", "no line of numbers in it"),
    ("x,y\nz,1\n", "could not convert string 'z' to float64 at row 0, column 1"),
    ("1,2\n3,abc\n", "could not convert string 'abc' to float64 at row 1, column 2"),
    ("# c\nname,v\n1,2\nbob,3\n", "could not convert string 'bob' to float64 at row 1, column 1"),
    ("1,2\n3\n", "the number of columns changed from 2 to 1 at row 2"),
    (b"\xff\xfe\x00", "no line of numbers in it"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_what_is_no_table_of_numbers(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProgramError) as caught:
        read_csv(path, "t.csv")
    assert str(caught.value).startswith(f"t.csv: {said}")
