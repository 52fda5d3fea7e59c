"""A tuning as one HTML page, with its styles and pictures inside."""

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mixpert_py.errors import MixPertError
from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import charts, figures, operands, summary
from mixpert_py.tuner.report.listing import listing
from mixpert_py.tuner.report.record import OperatorEntry, Record
from mixpert_py.tuner.report.summary import Program, counted
from mixpert_py.tuner.report.unit import error_text

if TYPE_CHECKING:
    from jinja2 import Template

# Functions of `summary` that the template calls.
SHARED = (
    "allowed",
    "brief",
    "callers_text",
    "counted",
    "error_name",
    "gain_card",
    "other_inputs",
    "size",
    "trial_error",
    "tuning_facts",
    "verdict",
    "why",
)
TRIALS_SHOWN = 60
CHANGES_SHOWN = 3


def page(record: Record, program: Program) -> str:
    """The whole page. It loads nothing, and its content security policy forbids browsers to.

    Raises MixPertError where Jinja2 or matplotlib is not installed.
    """
    figures.require_matplotlib()
    if find_spec("jinja2") is None:
        raise MixPertError("the page needs Jinja2: pip install '.[report]' in a checkout")
    from markupsafe import Markup

    found = summary.rows(record, program)
    by_site = {row.entry.id: row for row in found}
    return _template().render(
        record=record,
        program=program,
        rows=found,
        by_site=by_site,
        colors=summary.levels(record),
        used_levels={level for row in found for level in (row.level, row.entry.before)},
        best=summary.chosen(record),
        unit=summary.time_unit(record),
        table_unit=summary.time_unit(record, [row.entry.time_before for row in found]),
        headline_unit=summary.time_unit(record),
        error=summary.reached(record),
        kept=sum(trial.reason == Reason.KEPT for trial in record.trials[1:]),
        plane=Markup(charts.plane(record)),
        inputs=Markup(charts.inputs(record)),
        sampled=operands.sampled_rows(found),
        listing=listing(program.text, program.spans, found),
        css=Markup(_file("page.css")),
    )


@cache
def _template() -> "Template":
    """The template, with the functions that it shares with the Markdown report."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_shown,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    for name in SHARED:
        environment.globals[name] = getattr(summary, name)
    environment.globals |= {
        "CHANGES_SHOWN": CHANGES_SHOWN,
        "KEPT": Reason.KEPT,
        "MEANING": summary.MEANING,
        "TRIALS_SHOWN": TRIALS_SHOWN,
        "calls_text": calls_text,
        "error_text": error_text,
        "operands": operands,
    }
    return environment.from_string(_file("page.html").lstrip())


def _shown(value: object) -> object:
    """A value as the page shows it: floats with six digits, invisible characters escaped."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return summary.visible(value)
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
