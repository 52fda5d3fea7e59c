"""The annotated source."""

import re
from html import unescape

import pytest

from mixpert_py.tuner.report.listing import NEAR, listing
from mixpert_py.tuner.report.summary import Program, levels, rows
from tests.tuner.report.records import A, B, small

Spans = dict[str, tuple[int, int]]
RECORD = small()
COLORS = levels(RECORD)


def shown(text: str, spans: Spans) -> str:
    program = Program("m.py", numbers={A: 1, B: 2})
    return listing(text, spans, rows(RECORD, program), COLORS)


def lines(html: str) -> list[str]:
    """The code of each line, without its marks."""
    return [
        unescape(re.sub(r"<[^>]*>", "", code))
        for code in re.findall(r"<code>(.*?)</code>", html, re.DOTALL)
    ]


def marks(html: str) -> list[tuple[str, str]]:
    """(number of the operator, marked text)."""
    return re.findall(r'<a class="mark[^>]*data-op="(\d+)">(.*?)</a>', html, re.DOTALL)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_product_is_marked_where_it_stands(newline: str) -> None:
    text = newline.join(("import m", "c = a @ b + 1", "\td = '</script>'"))
    start = text.index("a @ b")
    html = shown(text, {A: (start, start + 5)})
    assert lines(html) == ["import m", "c = a @ b + 1", "\td = '</script>'"]
    assert marks(html) == [("1", "a @ b")]
    assert "1 int8x3" in html
    assert "</script>" not in html


def test_products_inside_of_products_and_over_lines() -> None:
    text = "x = (a @ b @\n     c)\n"
    html = shown(text, {A: (5, 10), B: (5, 19)})
    assert marks(html) == [("1", "a @ b"), ("2", " @"), ("2", "     c")]
    assert lines(html)[:2] == ["x = (a @ b @", "     c)"]
    assert html.count('id="source-') == 2


def test_a_long_program_is_folded_around_its_products() -> None:
    text = "".join(f"line{number}\n" for number in range(2000))
    start = text.index("line1000")
    html = shown(text, {A: (start, start + 8)})
    assert [int(n) for n in re.findall(r"<summary>(\d+) lines", html)] == [
        1000 - NEAR,
        2000 - 1000 - NEAR - 1,
    ]
    assert len(lines(html)) == 2000
    unfolded = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert len(lines(unfolded)) == 2 * NEAR + 1
