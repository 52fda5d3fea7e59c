"""Texts that are wider than their column."""

import io

import pytest
from rich.console import Console

from mixpert_py.tuner.report.table import Column, fitted


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
