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
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
h3 { margin: 2rem 0 .25rem; font-size: 1.05rem; font-weight: 600 }
h3 small { display: inline; margin-left: .6rem; font-weight: 400 }
.published { margin: 0 0 .9rem; padding-left: 1.2rem; color: var(--soft) }
.published b { color: var(--ink) }
.scroll + .scroll, .scroll + details { margin-top: .75rem }
.where { margin: .4rem 0; color: var(--soft); font-size: .85rem }
.contents { columns: 3 14rem; padding-left: 1.2rem }
.fragment { display: block; max-width: 100%; height: auto; padding: .5rem }
"""
OPEN_ROWS = 12  # tables that are longer, beside a picture, are folded


def page(papers: Sequence[Paper], record: Record) -> str:
    """The whole page of a result. It loads nothing, and its policy forbids browsers to."""
    from markupsafe import Markup

    css = files("mixpert_py.tuner.report").joinpath("page.css").read_text(encoding="utf-8")
    text = template("page.html.jinja").render(
        papers=papers,
        exhibits=record["exhibits"],
        title=TITLE,
        lead=LEAD,
        policy=POLICY,
        css=Markup(css + chart.STYLE + STYLE),
        NOT_TRANSCRIBED=NOT_TRANSCRIBED,
        OPEN_ROWS=OPEN_ROWS,
        picture=_picture,
        drawings=_drawings,
        right=_right,
    )
    return f"{text.strip()}\n"


def _picture(exhibit: Exhibit, rows: Sequence[Row]) -> str:
    """The exhibit's picture as markup; "" where it has none, or one that is an image."""
    match exhibit.picture:
        case Lines() as how:
            return chart.lines(rows, how)
        case Bars() as how:
            return chart.bars(rows, how)
    return ""


def _drawings(exhibit: Exhibit, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Name and address of an image for each instruction whose fragments the rows describe."""
    if not isinstance(exhibit.picture, Fragments):
        return
    from mixpert_py.runtime.probes.fragments import LANES, Fragment, drawing

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
        yield name, f"data:image/svg+xml;base64,{text}"


def _right(columns: Sequence[Column], rows: Sequence[Row]) -> set[str]:
    """The keys of the columns that hold numbers, which are aligned on the right."""
    return {
        column.key
        for column in columns
        if any(isinstance(row.get(column.key), (int, float)) for row in rows)
    }
