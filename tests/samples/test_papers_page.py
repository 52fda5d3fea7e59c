"""The page of the papers: complete, in one piece, and shown as meant by a real browser."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samples.papers import chart, run
from samples.papers.exhibit import Bars, Column, Exhibit, Found, Lines, Paper, Published
from samples.papers.page import page
from samples.papers.tiles import gains
from samples.papers.timed_products import FIXED
from tests import browser
from tests.samples.test_papers import on_fake_gpu

X, Y = Column("x", "X"), Column("y", "Y", ".1f", 10.0)
FRAGMENT = "mma.sync m16n8k16 float16"


class Outline(HTMLParser):
    """What of a page leads elsewhere, and whether its tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.contents: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for key, value in attrs:
            if key in ("href", "src"):
                self.links.append(value or "")
            if key == "content":
                self.contents.append(value or "")
            if key == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """Every exhibit: made on a GPU that is none, and three by hand."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in ("roofline", "raihan"):
            name = f"samples.papers.{module}.device_name"
            patch.setattr(name, lambda place: "NVIDIA H200")
        made = {id_: e for id_, e in run.EXHIBITS.items() if id_ not in BY_HAND}
        run.measure(list(made.values()), on_fake_gpu(), math.inf, found.__setitem__)
    for id_, rows in BY_HAND.items():
        found[id_] = {"where": "By hand.", "note": "", "rows": rows}
    return {"exhibits": found}


def fragment(operand: str, columns: int) -> dict[str, Any]:
    places = np.arange(16 * columns)
    row = {"name": FRAGMENT, "operand": operand, "elements": places.size, "columns": columns}
    return {**row, "each": places.size // 32, "copies": 1, "places": " ".join(map(str, places))}


TIMED = {"scheme": "int8x6", "m": 64, "k": 64, "n": 64, "batch": 1}
TIMED |= {"chosen": "a", "legemm": "a", "tiles": {"a": 2e-5, FIXED: 3e-5}}
BY_HAND = {
    "legemm-tiles": [gains(TIMED)],
    "raihan-correlation": [
        {"name": "int8x6", **dict.fromkeys("mkn", n), "batch": 1, "off": 0.1}
        | {"measured": 1e-5 * n, "predicted": 1.1e-5 * n}
        for n in (64, 128)
    ],
    "raihan-fragments": [fragment("A", 16), fragment("B", 8), fragment("C", 8)],
    "legemm-pipeline": [
        {"name": "N = 64", "tile": "128 × 64", "stages": few, "seconds": 1e-3 / few, "times": few}
        for few in (1, 2, 3)
    ],
    "mixpert-processes": [
        {"name": "int8x6", "processes": n, "n": 64, "tflops": 10.0 + n, "scaling": 1 + n / 10}
        for n in (1, 2, 4)
    ],
}


def test_everything_is_on_the_page(record: dict[str, Any]) -> None:
    text = page(run.PAPERS, record)
    outline = Outline(text)
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert set(outline.ids) >= set(run.EXHIBITS) | {paper.name for paper in run.PAPERS}
    measured = [id_ for id_, entry in record["exhibits"].items() if "rows" in entry]
    assert not any("failed" in entry for entry in record["exhibits"].values())
    for id_ in measured:
        article = (
            text.partition(f'id="{id_}"')[0].rpartition("<article")[2]
            + text.partition(f'id="{id_}"')[2].partition("</article>")[0]
        )
        assert "Measured: " in article
        assert article.count("<tr>") == 1 + len(record["exhibits"][id_]["rows"])
        exhibit = run.EXHIBITS[id_]
        assert ("<svg" in article) == (exhibit.picture is not None), id_
        for number in exhibit.published:
            assert f"<b>{number.value}</b>" in article


def test_it_loads_nothing(record: dict[str, Any]) -> None:
    text = page(run.PAPERS, record)
    outline = Outline(text)
    for link in outline.links:
        assert link.removeprefix("#") in outline.ids
    assert "<script" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert any(content.startswith("default-src 'none';") for content in outline.contents)


def exhibit(**changes: Any) -> Exhibit:
    given = {"id": "one", "of": "fig. 1", "title": "T", "lead": "S", "columns": (X, Y)}
    return Exhibit(**{**given, "measure": lambda place: Found([]), **changes})


def shown(entry: dict[str, Any] | None, **changes: Any) -> str:
    paper = Paper("p", "P", "Cited", "Chip X", (exhibit(**changes),))
    return page((paper,), {"exhibits": {} if entry is None else {"one": entry}})


def test_what_is_missing_says_why() -> None:
    assert "Not measured here: it has not been run" in shown(None)
    assert "Not measured here: too late" in shown({"missing": "too late"})
    assert "Not measured here: E: &lt;b&gt;" in shown({"failed": "E: <b>"})
    assert "Measured there on Chip X: not measured here." in shown(None)


def test_published_numbers_are_marked() -> None:
    numbers = (Published("a", "1×", "abstract"), Published("b", "2×", "notes", confirmed=False))
    text = shown(None, published=numbers)
    assert "Published: a <b>1×</b> (abstract)" in text
    assert "Published: b <b>2×</b> (unconfirmed: notes)" in text
    assert "published figure; values not transcribed." in shown(None)


def test_a_table() -> None:
    rows = [{"x": "<i>", "y": 0.25}, {"x": "j", "y": None}]
    text = shown({"where": "Here.", "note": "So.", "rows": rows})
    assert "Measured: Here. So." in text
    assert '<td>&lt;i&gt;</td><td class="right">2.5</td>' in text
    assert '<td>j</td><td class="right">–</td>' in text


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", "\"'><img src=x>", "&lt;", "\u202e"]
)
def test_texts_cannot_break_out(hostile: str) -> None:
    rows = [{"name": hostile, "x": 1.0, "y": 2.0}]
    text = shown(
        {"where": hostile, "note": hostile, "rows": rows},
        title=hostile,
        columns=(Column("name", hostile),),
        picture=Lines(X, Y),
        published=(Published(hostile, hostile, hostile),),
    )
    assert "<svg" in text
    assert hostile not in text
    assert hostile not in chart.bars(rows, Bars((X, Y), ("name",)))


def test_a_panel_has_at_most_eight_lines() -> None:
    names = [f"line {i}" for i in range(chart.MAX_LINES + 1)]
    rows = [
        {"name": name, "range": where, "x": x, "y": 10.0**at}
        for where in ("here", "there")
        for at, name in enumerate(names)
        for x in (1, 2)
    ]
    svg = chart.lines(rows, Lines(X, Y, ("name", "range"), marks=(("published", 1000.0),)))
    assert svg.count("clip-path=") > 0
    assert svg.count("published: 1000") == 4
    assert svg.count(">here<") == svg.count(">there<") == 2
    points = chart.lines(rows, Lines(X, Y, ("name", "range"), joined=False))
    assert points.count(">here<") == points.count(">there<") == 1


def test_what_is_no_positive_number_has_no_place() -> None:
    rows = [{"name": "a", "x": x, "y": y} for x, y in ((1, 0), (1, None), (1, math.inf))]
    assert chart.lines(rows, Lines(X, Y)) == ""


def test_pictures_follow_the_page() -> None:
    svg = chart.bars([{"name": "a", "x": 1.0, "y": 3.0}], Bars((X, Y), ("name",)))
    assert "var(--level-1)" in svg
    assert "var(--ink)" in svg
    assert "#0000" not in svg
    assert svg == chart.bars([{"name": "a", "x": 1.0, "y": 3.0}], Bars((X, Y), ("name",)))


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_a_browser_shows_it(
    chromium: browser.Page, record: dict[str, Any], tmp_path: Path, width: int, scheme: str
) -> None:
    (tmp_path / "papers.html").write_text(page(run.PAPERS, record), "utf-8")
    chromium.errors.clear()
    chromium.window(width, scheme)
    chromium.open(tmp_path / "papers.html")
    assert chromium.errors == []
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    dark = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark != "rgb(255, 255, 255)") == (scheme == "dark")
