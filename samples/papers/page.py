"""The papers beside what was measured, as one page: HTML with styles and pictures inside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mixpert_py.errors import visible
from samples.papers import chart
from samples.papers.exhibit import NOT_TRANSCRIBED, Bars, Column, Exhibit, Paper, Row

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
OPEN_ROWS = 12  # tables that are longer, beside a picture, are folded


def page(papers: Sequence[Paper], record: Record) -> str:
    """The whole page of a result. It loads nothing, and its policy forbids browsers to."""
    folder = Path(__file__).parent
    environment = Environment(
        autoescape=True,
        finalize=_written,
        loader=FileSystemLoader(folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    text = environment.get_template("page.html.jinja").render(
        papers=papers,
        exhibits=record["exhibits"],
        title=TITLE,
        lead=LEAD,
        policy=POLICY,
        css=Markup((folder / "page.css").read_text("utf-8")),
        NOT_TRANSCRIBED=NOT_TRANSCRIBED,
        OPEN_ROWS=OPEN_ROWS,
        picture=_picture,
        right=_right,
    )
    return f"{text.strip()}\n"


def _written(value: object) -> object:
    """What stands for a value: six digits of a float, and of a text only what can be seen."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(value) if type(value) is str else value


def _picture(exhibit: Exhibit, rows: Sequence[Row]) -> str:
    """The exhibit's picture as markup; "" where it has none."""
    how = exhibit.picture
    if how is None:
        return ""
    return Markup(chart.bars(rows, how) if isinstance(how, Bars) else chart.lines(rows, how))


def _right(columns: Sequence[Column], rows: Sequence[Row]) -> set[str]:
    """The keys of the columns that hold numbers, which are aligned on the right."""
    return {
        column.key
        for column in columns
        if any(isinstance(row.get(column.key), (int, float)) for row in rows)
    }
