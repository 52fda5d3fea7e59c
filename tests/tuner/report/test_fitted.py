"""Tables on narrow terminals: columns give way, places stay whole."""

import io

import pytest
from rich.console import Console

from mixpert_py.tuner.report.table import Column, fitted

PLACE = "packages/network/layers.py:12:8"
COLUMNS = (
    Column("place"),
    Column("calls", right=True, drop=1),
    Column("kind", drop=2),
    Column("why", wraps=True),
)
ROW = (PLACE, "1000000", "matmul", "is not an array of numbers")


def printed(width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(fitted(COLUMNS, [ROW], width))
    return file.getvalue()


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, {"place", "calls", "kind", "why"}),
        (60, {"place", "calls", "why"}),
        (46, {"place", "why"}),
    ],
)
def test_columns_give_way_in_their_order(width: int, shown: set[str]) -> None:
    text = printed(width)
    assert set(text.splitlines()[0].split()) == shown
    assert PLACE in text
    assert "…" not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("np.dot(matrix, other[:, None])", ["np.dot(matrix,", "other[:,", "None])"]),
        ("is not an array of", ["is not an", "array of"]),
        ("f(averyverylongname)", ["f(", "averyverylongn", "ame)"]),
        ("", [""]),
    ],
)
def test_words_and_expressions_are_broken_where_they_may_be(text: str, lines: list[str]) -> None:
    column = Column("-" * 14, wraps=True, least=14)
    file = io.StringIO()
    table = fitted([column, Column("")], [(text, "last")], 20)
    Console(file=file, width=20, color_system=None).print(table)
    found = [line[:14].rstrip() for line in file.getvalue().splitlines()[2:]]
    assert found == lines
