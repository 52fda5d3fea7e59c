"""A tuning as one HTML page: its figures, its pictures, and every plan that ran."""

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mixpert_py.errors import MixPertError, counted, visible
from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import figures, summary
from mixpert_py.tuner.report.figures import GROUND, INK, LEVELS, SOFT
from mixpert_py.tuner.report.record import OperatorEntry, Record
from mixpert_py.tuner.report.summary import chosen, error_name, time_unit

if TYPE_CHECKING:
    from jinja2 import Template

KEPT = LEVELS[3]
MAX_NUMBERED = 30  # plans, more of which have no room for numbers


def page(record: Record) -> str:
    """The whole page. It loads nothing, and its content security policy forbids browsers to.

    Raises MixPertError where Jinja2 or matplotlib is not installed.
    """
    figures.require_matplotlib()
    if find_spec("jinja2") is None:
        raise MixPertError("the page needs Jinja2: pip install '.[report]' in a checkout")
    from markupsafe import Markup

    entries = record.operators
    return _template().render(
        record=record,
        name=record.provenance.source,
        numbers={entry.id: number for number, entry in enumerate(entries, 1)},
        places={entry.id: entry.place for entry in entries},
        colors=summary.levels(record),
        used_levels={level for entry in entries for level in (entry.after, entry.before)},
        best=chosen(record),
        unit=time_unit(record),
        table_unit=time_unit(record, [entry.time_before for entry in entries]),
        plane=Markup(plane(record)),
        css=Markup(_file("page.css")),
    )


@cache
def _template() -> "Template":
    """The template, with the functions that it calls."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_shown,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals |= vars(summary) | {
        "KEPT": Reason.KEPT,
        "calls_text": calls_text,
    }
    return environment.from_string(_file("page.html").lstrip())


def _shown(value: object) -> object:
    """A value as the page shows it: floats with six digits, invisible characters escaped."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def calls_text(entry: OperatorEntry) -> str:
    """The shapes and the number of an operator's calls."""
    shapes = [shape for shape in entry.shapes if any(shape)]  # zeros where it is not one product
    parts = [" × ".join(map(str, shapes[0]))] if shapes else []
    if shapes[1:]:
        parts.append(counted(len(shapes) - 1, "more shape"))
    return ", ".join([*parts, counted(entry.calls, "call")])


def plane(record: Record) -> str:
    """Every plan at its time and its error, on logarithmic axes; empty where none has a time.

    A plan whose run failed, or whose time is unknown, has no place in it.
    """
    unit, best = time_unit(record), chosen(record)
    ran = [trial for trial in record.trials if trial.time and not trial.problem]
    if not ran:
        return ""
    with figures.style():
        figure, (axes,) = figures.panels(1)
        budget = record.budget
        known = [*(trial.error for trial in ran), *([] if budget is None else [budget])]
        figures.errors_axis(axes, known, error_name(record))
        places = [
            ((trial.time or 0.0) * unit.per_second, figures.place(axes, trial.error))
            for trial in ran
        ]
        kept = [
            place for trial, place in zip(ran, places, strict=True) if trial.reason == Reason.KEPT
        ]
        if kept:
            axes.plot(*zip(*kept, strict=True), color=KEPT, alpha=0.5)
        for trial, (x, y) in zip(ran, places, strict=True):
            is_kept, is_start = trial.reason == Reason.KEPT, trial is record.trials[0]
            color = INK if is_start else KEPT if is_kept else SOFT
            fill = color if is_start or is_kept else GROUND
            axes.plot(x, y, "s" if is_start else "o", color=color, markerfacecolor=fill)
            number = [f"#{1 + record.trials.index(trial)}"] * (len(ran) <= MAX_NUMBERED)
            name = ", ".join(number + ["start"] * is_start + ["chosen"] * (trial is best))
            axes.annotate(name, (x, y), xytext=(8, 6), textcoords="offset points")
            if trial is best:
                axes.plot(x, y, "o", color=KEPT, markerfacecolor="none", markersize=13)
        figures.budget_line(axes, budget)
        axes.set_xscale("log")
        figures.plain_ticks(axes.xaxis)
        axes.set_xlabel(f"time of the program, {unit.name}  (← faster)")
        return figures.svg(figure, "Time and error of every plan that was run")
