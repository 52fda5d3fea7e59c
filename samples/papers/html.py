"""HTML and SVG as text that cannot break out: what is no `Html` is escaped."""

from html import escape
from typing import Final

from mixpert_py.tuner.report.summary import visible

VOID: Final = {"br", "img", "meta"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY: Final = Html()


def el(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` is written class, `data_op` data-op; None and False leave one out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_value(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: str) -> Html:
    """Children one behind the other."""
    return Html(
        "".join(child if isinstance(child, Html) else escape(visible(child)) for child in children)
    )


def _value(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(visible(str(value)))
