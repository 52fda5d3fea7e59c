"""A tuning as one HTML page: its products, and every plan that ran."""

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mixpert_py.errors import MixPertError, counted, visible
from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import summary
from mixpert_py.tuner.report.record import OperatorEntry, Record
from mixpert_py.tuner.report.summary import chosen, time_unit

if TYPE_CHECKING:
    from jinja2 import Template


def page(record: Record) -> str:
    """The whole page. It loads nothing, and its content security policy forbids browsers to.

    Raises MixPertError where Jinja2 is not installed.
    """
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
