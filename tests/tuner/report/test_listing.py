"""The annotated source."""

import pytest

from mixpert_py.tuner.report.page import NEAR, Line, listing
from mixpert_py.tuner.report.summary import Program, rows
from tests.tuner.report.records import A, B, small

Spans = dict[str, tuple[int, int]]
RECORD = small()


def shown(text: str, spans: Spans) -> list[tuple[list[Line], bool]]:
    return listing(text, spans, rows(RECORD, Program("m.py", numbers={A: 1, B: 2})))


def lines(groups: list[tuple[list[Line], bool]]) -> list[str]:
    """The text of each line, without its marks."""
    return ["".join(piece.text for piece in line.pieces) for some, _ in groups for line in some]


def marks(groups: list[tuple[list[Line], bool]]) -> list[tuple[int, str]]:
    """(number of the operator, marked text)."""
    pieces = [piece for some, _ in groups for line in some for piece in line.pieces]
    return [(piece.row.number, piece.text) for piece in pieces if piece.row]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_product_is_marked_where_it_stands(newline: str) -> None:
    text = newline.join(("import m", "c = a @ b + 1", "\td = '</script>'"))
    start = text.index("a @ b")
    found = shown(text, {A: (start, start + 5)})
    assert lines(found) == ["import m", "c = a @ b + 1", "\td = '</script>'"]
    assert marks(found) == [(1, "a @ b")]
    begin = {line.number: line.begin for some, _ in found for line in some}
    assert [(row.number, row.level) for row in begin[2]] == [(1, "int8x3")]
    assert begin[1] == begin[3] == ()


def test_products_inside_of_products_and_over_lines() -> None:
    text = "x = (a @ b @\n     c)\n"
    found = shown(text, {A: (5, 10), B: (5, 19)})
    assert marks(found) == [(1, "a @ b"), (2, " @"), (2, "     c")]
    assert lines(found)[:2] == ["x = (a @ b @", "     c)"]
    assert [[row.number for row in line.begin] for line in found[0][0]] == [[1, 2], []]


def test_a_long_program_is_folded_around_its_products() -> None:
    text = "".join(f"line{number}\n" for number in range(2000))
    start = text.index("line1000")
    found = shown(text, {A: (start, start + 8)})
    folded = [len(some) for some, is_folded in found if is_folded]
    assert folded == [1000 - NEAR, 2000 - 1000 - NEAR - 1]
    assert [len(some) for some, is_folded in found if not is_folded] == [2 * NEAR + 1]
    assert [line.number for some, _ in found for line in some] == list(range(1, 2001))
