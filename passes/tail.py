"""Tail: the runtime's own keywords, behind the arguments that were the program's."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mixpert_py.passes.edit import without_comments
from mixpert_py.passes.source import Source

# The keywords that the runtime's functions have and the program's have not, as they follow.
OURS = ("site", "scheme", "block", "native")
SITE_ID = re.compile(r"[^:]*:.+/\w+~[0-9a-f]+#\d+", re.DOTALL)

Setting = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a tail stands in a rewritten text, and what of the program it keeps.

    beside: what stands on either side of its first `=`. native: the function that was called.
    setting: scheme and block length.
    """

    site: str
    start: int
    end: int
    beside: tuple[str, str]
    native: str | None
    setting: Setting


def write(site: str, setting: Setting, native: str | None, encoding: str) -> str:
    """The text of a tail, in letters that the file's encoding can hold."""
    tail = f", site={_literal(site, encoding)}"
    for key, value in setting.items():
        tail += f', {key}="{value}"' if isinstance(value, str) else f", {key}={value}"
    return tail if native is None else f"{tail}, native={native}"


def read(call: ast.Call, source: Source) -> Tail | None:
    """The tail that ends a call's arguments; None if it has not one of ours."""
    names = [keyword.arg for keyword in call.keywords]
    site = site_of(call)
    if site is None or not SITE_ID.fullmatch(site):
        return None
    ours = call.keywords[names.index("site") :]
    if any(keyword.arg not in OURS for keyword in ours):
        return None
    first, last = ours[0], ours[-1]
    begin = source.offset(first.lineno, first.col_offset)
    between = source.text[begin + len("site") : source.span(first.value)[0]]
    at = without_comments(between).index("=")
    native = None
    if last.arg == "native":
        native = source.text[slice(*source.span(last.value))]
    setting = {
        keyword.arg: keyword.value.value
        for keyword in ours
        if keyword.arg in ("scheme", "block")
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str | int)
    }
    end = source.span(last.value)[1]
    beside = between[:at], between[at + 1 :]
    return Tail(site, begin - len(", "), end, beside, native, setting)


def site_of(node: ast.AST) -> str | None:
    """The site id that a call tells the runtime."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "site" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return None


def _literal(site: str, encoding: str) -> str:
    """A site id as a string literal."""
    try:
        site.encode(encoding)
    except UnicodeError:
        return ascii(site)
    return (
        f'"{site}"' if site.isprintable() and '"' not in site and "\\" not in site else repr(site)
    )
