"""The papers beside what was measured, as one page: HTML with styles and pictures inside."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from samples.papers import chart
from samples.papers.exhibit import (
    NOT_TRANSCRIBED,
    Bars,
    Column,
    Exhibit,
    Fragments,
    Lines,
    Paper,
    Published,
    Row,
)
from samples.papers.html import EMPTY, Html, el, join

Record = Mapping[str, Any]

TITLE = "Five papers, measured here"
LEAD = (
    "What five papers on products of matrices by tensor cores show, each beside the same measured "
    "here, as far as this device can. Published numbers stand with their source; those that could "
    "not be read in the paper itself are marked. What was published of other chips (A100, A800, "
    "RTX 3090, T4, V100, Titan V, MI210) is cited beside, and not measured here. Where "
    "several figures are named, which of them shows just this is not known here."
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
h3 { margin: 2rem 0 .25rem; font-size: 1.05rem; font-weight: 600 }
h3 small { display: inline; margin-left: .6rem; font-weight: 400 }
.published { margin: 0 0 .9rem; padding-left: 1.2rem; color: var(--soft) }
.published b { color: var(--ink) }
.scroll + .scroll, .scroll + details { margin-top: .75rem }
.where { margin: .4rem 0; color: var(--soft); font-size: .85rem }
.contents { columns: 3 14rem; padding-left: 1.2rem }
.fragment { display: block; max-width: 100%; height: auto; padding: .5rem; background: #fff }
"""
OPEN_ROWS = 12  # tables that are longer, beside a picture, are folded


def page(papers: Sequence[Paper], record: Record) -> str:
    """The whole page of a result. It loads nothing, and its policy forbids browsers to."""
    css = files("mixpert_py.tuner.report").joinpath("page.css").read_text(encoding="utf-8")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", TITLE),
        el("style", Html(css + chart.STYLE + STYLE)),
    )
    links = [
        el("li", el("a", f"{paper.title}: {exhibit.title}", href=f"#{exhibit.id}"))
        for paper in papers
        for exhibit in paper.exhibits
    ]
    body = el(
        "body",
        el("header", el("h1", TITLE), el("p", LEAD, class_="verdict")),
        el("nav", el("ul", *links, class_="contents"), aria_label="Exhibits"),
        el("main", *(_paper(paper, record["exhibits"]) for paper in papers)),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _paper(paper: Paper, exhibits: Record) -> Html:
    return el(
        "section",
        el("h2", paper.title),
        el(
            "p",
            f"{paper.cited}. Measured there on {paper.chips}: not measured here.",
            class_="lead",
        ),
        *(_exhibit(exhibit, exhibits.get(exhibit.id)) for exhibit in paper.exhibits),
        id=paper.name,
    )


def _exhibit(exhibit: Exhibit, found: Record | None) -> Html:
    title = el("h3", exhibit.title, el("small", exhibit.of))
    return el(
        "article",
        title,
        el("p", exhibit.lead, class_="lead"),
        _published(exhibit.published),
        *_measured(exhibit, found),
        id=exhibit.id,
    )


def _published(numbers: Sequence[Published]) -> Html:
    items = []
    for number in numbers:
        source = number.source if number.confirmed else f"unconfirmed: {number.source}"
        items.append(el("li", f"Published: {number.what} ", el("b", number.value), f" ({source})"))
    return el("ul", *(items or [el("li", f"{NOT_TRANSCRIBED}.")]), class_="published")


def _measured(exhibit: Exhibit, found: Record | None) -> Iterator[Html]:
    if found is None or "rows" not in found:
        why = "it has not been run" if found is None else found.get("failed") or found["missing"]
        yield el("p", f"Not measured here: {why}", class_="notice", role="note")
        return
    rows: list[Row] = found["rows"]
    yield el("p", f"Measured: {found['where']} {found['note']}".strip(), class_="where")
    if exhibit.headline:
        yield el("p", el("b", f"Here: {exhibit.headline(rows)}."))
    shown = _picture(exhibit, rows)
    if shown:
        yield el("div", shown, class_="scroll")
    table = el("div", _table(exhibit.columns, rows), class_="scroll", tabindex=0)
    if shown and len(rows) > OPEN_ROWS:
        yield el("details", el("summary", f"{len(rows)} rows"), table)
    else:
        yield table


def _picture(exhibit: Exhibit, rows: Sequence[Row]) -> Html:
    match exhibit.picture:
        case Lines() as how:
            return chart.lines(rows, how)
        case Bars() as how:
            return chart.bars(rows, how)
        case Fragments():
            return join(*_drawings(rows))
    return EMPTY


def _drawings(rows: Sequence[Row]) -> Iterator[Html]:
    """A picture an instruction, as an image: what it says of its own text holds in it alone."""
    from mixpert_py.runtime.probes.fragment_svg import drawing
    from mixpert_py.runtime.probes.fragments import LANES, Fragment

    for name in dict.fromkeys(row["name"] for row in rows):
        parts = [
            Fragment(
                row["operand"],
                row["elements"] // row["columns"],
                row["columns"],
                np.array(row["places"].split(), np.int64).reshape(LANES, -1),
            )
            for row in rows
            if row["name"] == name
        ]
        text = base64.b64encode(drawing(name, parts).encode()).decode()
        source = f"data:image/svg+xml;base64,{text}"
        yield el("img", class_="fragment", src=source, alt=f"Fragments of {name}")


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> Html:
    right = {
        column.key for column in columns if any(_is_number(row.get(column.key)) for row in rows)
    }

    def classes(column: Column) -> str | None:
        return "right" if column.key in right else None

    heads = (el("th", c.heading, scope="col", class_=classes(c)) for c in columns)
    lines = (
        el("tr", *(el("td", column.text(row), class_=classes(column)) for column in columns))
        for row in rows
    )
    return el("table", el("thead", el("tr", *heads)), el("tbody", *lines))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))
