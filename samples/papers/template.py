"""The Jinja templates of the page and of its pictures; texts in them cannot break out."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mixpert_py.errors import visible

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str) -> "Template":
    """A template of this folder. It escapes texts, and writes six digits of a float."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_written,
        loader=FileSystemLoader(Path(__file__).parent),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(name)


def _written(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value
