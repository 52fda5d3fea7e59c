"""The page of the papers: complete and in one piece."""

import math
import re
from html import unescape
from typing import Any

import numpy as np
import pytest

from samples.papers import chart, run
from samples.papers.exhibit import Bars, Column, Exhibit, Found, Lines, Paper, Published
from samples.papers.page import page
from samples.papers.tiles import FIXED, gains
from tests.samples.test_papers import on_fake_gpu

X, Y = Column("x", "X"), Column("y", "Y", ".1f", 10.0)
FRAGMENT = "mma.sync m16n8k16 float16"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """Every exhibit: made on a GPU that is none, and three by hand."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("samples.papers.legemm.device_name", lambda place: "NVIDIA H200")
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
    "raihan-latency": [
        {"name": FRAGMENT, "latency": 33, "chain": 17.5, "interval": 1.1, "rate": 6e14},
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


@pytest.fixture(scope="module")
def text(record: dict[str, Any]) -> str:
    return page(run.PAPERS, record)


def test_everything_is_on_the_page(record: dict[str, Any], text: str) -> None:
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    for tag in ("section", "article", "div", "table", "tr", "td", "svg", "details"):
        assert len(re.findall(f"<{tag}[ >]", text)) == text.count(f"</{tag}>")
    assert set(ids) >= set(run.EXHIBITS) | {paper.name for paper in run.PAPERS}
    for id_, entry in record["exhibits"].items():
        assert "failed" not in entry
        if "rows" in entry:
            article = text.partition(f'id="{id_}"')[2].partition("</article>")[0]
            assert "Measured: " in article
            assert article.count("<tr>") == 1 + len(entry["rows"])
            exhibit = run.EXHIBITS[id_]
            assert ("<svg" in article) == (exhibit.picture is not None), id_
            assert all(f"<b>{number.value}</b>" in article for number in exhibit.published)


def test_it_loads_nothing(text: str) -> None:
    links = re.findall(r' (?:href|src)="([^"]*)"', text)
    assert {link.removeprefix("#") for link in links} <= set(re.findall(r' id="([^"]*)"', text))
    assert "<script" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "content=\"default-src 'none';" in unescape(text)


def exhibit(**changes: Any) -> Exhibit:
    given = {"id": "one", "of": "fig. 1", "title": "T", "lead": "S", "columns": (X, Y)}
    return Exhibit(**{**given, "measure": lambda place: Found([]), **changes})


def shown(entry: dict[str, Any] | None, **changes: Any) -> str:
    paper = Paper("p", "P", "Cited", "Chip X", (exhibit(**changes),))
    return page((paper,), {"exhibits": {} if entry is None else {"one": entry}})


PUBLISHED = Published("a", "1×", "abstract"), Published("b", "2×", "notes", confirmed=False)
ROWS = [{"x": "<i>", "y": 0.25}, {"x": "j", "y": None}]


@pytest.mark.parametrize(
    ("entry", "changes", "said"),
    [
        (None, {}, "Not measured here: it has not been run"),
        (None, {}, "Measured there on Chip X: not measured here."),
        (None, {}, "published figure; values not transcribed."),
        ({"missing": "too late"}, {}, "Not measured here: too late"),
        ({"failed": "E: <b>"}, {}, "Not measured here: E: &lt;b&gt;"),
        (None, {"published": PUBLISHED}, "Published: a <b>1×</b> (abstract)"),
        (None, {"published": PUBLISHED}, "Published: b <b>2×</b> (unconfirmed: notes)"),
        ({"where": "Here.", "note": "So.", "rows": ROWS}, {}, "Measured: Here. So."),
        ({"where": "", "note": "", "rows": ROWS}, {}, '&lt;i&gt;</td><td class="right">2.5</td>'),
        ({"where": "", "note": "", "rows": ROWS}, {}, '<td>j</td><td class="right">–</td>'),
    ],
)
def test_what_an_exhibit_says(entry: Any, changes: dict[str, Any], said: str) -> None:
    assert said in shown(entry, **changes)


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
