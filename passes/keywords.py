"""The runtime's own keyword arguments, which follow the program's arguments in a call."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mixpert_py.passes.edits import without_comments
from mixpert_py.passes.source import Source

# In the order in which they are written. The program's functions have none of these.
OURS = ("site", "scheme", "block", "native")
SITE_ID = re.compile(r"[^:]*:.+/\w+~[0-9a-f]+#\d+", re.DOTALL)

Setting = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class RuntimeKeywords:
    """The runtime's keyword arguments of one call in a rewritten text.

    site: the site's id. start, end: their offsets, from the comma before them. spacing: the text on
    either side of their first `=`, which keeps some of the program's. native: the text of the
    function that the program called. setting: scheme and block length.
    """

    site: str
    start: int
    end: int
    spacing: tuple[str, str]
    native: str | None
    setting: Setting


def write(site: str, setting: Setting, native: str | None, encoding: str) -> str:
    """The runtime's keyword arguments as text, in letters that the file's encoding can hold."""
    text = f", site={_literal(site, encoding)}"
    for key, value in setting.items():
        text += f', {key}="{value}"' if isinstance(value, str) else f", {key}={value}"
    return text if native is None else f"{text}, native={native}"


def read(call: ast.Call, source: Source) -> RuntimeKeywords | None:
    """The runtime's keywords that end a call's arguments; None if they are not as written here."""
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
    spacing = between[:at], between[at + 1 :]
    return RuntimeKeywords(site, begin - len(", "), end, spacing, native, setting)


def site_of(node: ast.AST) -> str | None:
    """The site id that a call hands to the runtime."""
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
