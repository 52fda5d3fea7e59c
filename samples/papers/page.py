"""The papers beside what was measured, as one page: HTML with styles and pictures inside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from samples.papers import chart
from samples.papers.exhibit import (
    NOT_TRANSCRIBED,
    Bars,
    Column,
    Exhibit,
    Lines,
    Paper,
    Row,
)
from samples.papers.template import template

Record = Mapping[str, Any]

TITLE = "Five papers, measured here"
LEAD = (
    "What five papers on products of matrices by tensor cores show, each beside the same measured "
    "here, as far as this device can. Published numbers stand with their source; those that could "
    "not be read in the paper itself are marked. What was published of other chips (A100, A800, "
    "RTX 3090, T4, V100, Titan V, MI210) is cited beside, and not measured here. Where "
    "several figures are named, which of them shows just this is not known here."
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
.picture { display: block; width: 100%; max-width: 52rem; height: auto }
h3 { margin: 2rem 0 .25rem; font-size: 1.05rem; font-weight: 600 }
h3 small { display: inline; margin-left: .6rem; font-weight: 400 }
.published { margin: 0 0 .9rem; padding-left: 1.2rem; color: var(--soft) }
.published b { color: var(--ink) }
.scroll + .scroll, .scroll + details { margin-top: .75rem }
.where { margin: .4rem 0; color: var(--soft); font-size: .85rem }
.contents { columns: 3 14rem; padding-left: 1.2rem }
"""
OPEN_ROWS = 12  # tables that are longer, beside a picture, are folded


def page(papers: Sequence[Paper], record: Record) -> str:
    """The whole page of a result. It loads nothing, and its policy forbids browsers to."""
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    text = template("page.html.jinja").render(
        papers=papers,
        exhibits=record["exhibits"],
        title=TITLE,
        lead=LEAD,
        policy=POLICY,
        css=Markup(css + STYLE),
        NOT_TRANSCRIBED=NOT_TRANSCRIBED,
        OPEN_ROWS=OPEN_ROWS,
        picture=_picture,
        right=_right,
    )
    return f"{text.strip()}\n"


def _picture(exhibit: Exhibit, rows: Sequence[Row]) -> str:
    """The exhibit's picture as markup; "" where it has none."""
    match exhibit.picture:
        case Lines() as how:
            return Markup(chart.lines(rows, how))
        case Bars() as how:
            return Markup(chart.bars(rows, how))
    return ""


def _right(columns: Sequence[Column], rows: Sequence[Row]) -> set[str]:
    """The keys of the columns that hold numbers, which are aligned on the right."""
    return {
        column.key
        for column in columns
        if any(isinstance(row.get(column.key), (int, float)) for row in rows)
    }
