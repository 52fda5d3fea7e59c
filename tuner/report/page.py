"""A tuning as one page: HTML with its styles, pictures and few lines of script inside."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import operands
from mixpert_py.tuner.report.bars import bars
from mixpert_py.tuner.report.html import EMPTY, Html, el, join
from mixpert_py.tuner.report.listing import listing
from mixpert_py.tuner.report.page_tables import (
    legend,
    meanings,
    operands_table,
    operators_table,
    trials_tables,
)
from mixpert_py.tuner.report.plane import plane
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import (
    Program,
    Row,
    allowed,
    counted,
    levels,
    made,
    number,
    quantity,
    reached,
    rows,
    size,
    speedup,
    times,
    verdict,
)
from mixpert_py.tuner.report.unit import PRODUCTS, clock_unit


def page(record: Record, program: Program) -> str:
    """The whole page. It loads nothing, and its policy forbids browsers to."""
    found = rows(record, program)
    colors = levels(record)
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = f"{program.name}: tuned" if program.name else "A tuning"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Html(_file("page.css"))),
        el("style", _graph_colors(found, colors)),
    )
    body = el(
        "body",
        el("header", *_headline(record, program, found)),
        el("main", *_sections(record, program, found, colors)),
        el("aside", id="selected", aria_live="polite", hidden=True),
        el("script", Html(script)),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _graph_colors(found: Iterable[Row], colors: Mapping[str, int]) -> Html:
    """The graph's boxes in the colours of their levels: it numbers its operators as we do."""
    rules = (
        f'.graph [id="1-{row.number}"]{{--level:var(--level-{colors[row.level]})}}' for row in found
    )
    return Html("\n".join(rules))


def _headline(record: Record, program: Program, found: Sequence[Row]) -> Iterator[Html]:
    before, after = times(record)
    unit = PRODUCTS if record.unit == "products" else clock_unit((before or 0.0, after or 0.0))
    ratio, error = speedup(record), reached(record)
    yield el("h1", program.name or "A tuning")
    yield el("p", verdict(record, found), class_="verdict")
    for note in program.notes:
        yield el("p", note, class_="notice", role="note")
    kind = "predicted" if record.predicted else "measured"
    spent = EMPTY
    if record.budget and error is not None:
        part = min(error / record.budget, 1.0)
        spent = el("meter", f"{part:.0%}", value=part, max=1, aria_label="part of the budget used")
    kept = sum(trial.reason == Reason.KEPT for trial in record.trials[1:])
    yield el(
        "div",
        _card("Speed", f"{ratio:.2f}×" if ratio else "unknown", f"as fast, {kind}"),
        _card(
            "Time",
            join(number(after, unit), " ", el("small", unit.name)),
            f"before: {quantity(before, unit)}",
        ),
        _card("Error", size(record, error), allowed(record), spent),
        _card("Search", counted(len(record.trials), "plan"), f"run; {counted(kept, 'step')} kept"),
        class_="cards",
    )


def _card(name: str, value: str, below: str, more: Html = EMPTY) -> Html:
    return el("div", el("h2", name), el("strong", value), el("span", below), more, class_="card")


def _sections(
    record: Record, program: Program, found: Sequence[Row], colors: Mapping[str, int]
) -> Iterator[Html]:
    yield _section(
        "plane",
        "Every plan that ran",
        "Each point is one run of the program: the further left the faster, the further down the "
        "more exact. Hollow ones were refused.",
        el("div", plane(record), class_="scroll"),
    )
    if found:
        yield _section(
            "time",
            "Where the time goes",
            "One piece for each product, in the colour of its level; grey is the rest.",
            legend(found, colors),
            el("div", bars(record, found, colors), class_="scroll"),
        )
        yield _section(
            "operators",
            "Operators",
            "Choose one to see it in the source, in the graph and among the plans.",
            el("div", operators_table(record, found, colors), class_="scroll"),
            meanings(row.entry.reason for row in found),
        )
    if looked := operands.looked_into(found):
        yield _section(
            "operands",
            "Operands",
            operands.SAID,
            el("div", operands_table(looked), class_="scroll"),
        )
    if program.text:
        yield _section(
            "source",
            "Source",
            "Products in the colour of their level, and the lines around them.",
            el("div", listing(program.text, program.spans, found, colors), class_="scroll"),
        )
    if program.graph:
        yield _section(
            "graph",
            "Dependency graph",
            "An arrow where a value computed from one product can reach an operand of another: "
            "dotted where the profile did not see the result itself, or a view of it, get there; "
            "dashed where it leads back.",
            el("div", Html(program.graph), class_="scroll graph", tabindex=0),
        )
    yield _section("trials", "The search, plan by plan", "", *trials_tables(record, found, colors))
    facts = (join(el("dt", name), el("dd", value)) for name, value in made(record))
    yield _section("made", "How this was made", "", el("dl", *facts))


def _section(name: str, heading: str, said: str, *content: Html) -> Html:
    lead = el("p", said, class_="lead") if said else EMPTY
    return el(
        "section",
        el("h2", heading, id=f"{name}-heading"),
        lead,
        *content,
        id=name,
        aria_labelledby=f"{name}-heading",
    )
