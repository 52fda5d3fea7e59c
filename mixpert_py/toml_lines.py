"""Where in a TOML text what is wrong stands: neither the parser nor msgspec says the line."""

import re
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from operator import eq
from typing import Any

LONGEST = 200  # characters of the file in a message
# TOML without its spaces: strings, of several lines first; comments; signs; bare keys and values.
TOKEN = re.compile(
    r"""
      "{3} (?:\\.|[^\\])*? "{3,5} | '{3} .*? '{3,5}
    | " (?:\\.|[^"\\])* " | ' [^']* '
    | \# [^\n]*
    | [\[\]{},=\n]
    | [^\s\[\]{},="'#]+
    """,
    re.DOTALL | re.VERBOSE,
)


def line_of(text: str, keys: list[str]) -> int:
    """The 1-based line of a key (`["site", "[2]", "id"]`) in valid TOML, or of what holds it."""
    best, line = 0, 1
    for path, number in _places(text):
        common = sum(takewhile(bool, map(eq, path, keys)))
        if common > best:
            best, line = common, number
    return line


def explained(message: str, tables: dict[str, Any]) -> tuple[list[str], str]:
    """The keys that lead to what msgspec refuses in these tables, and why it does, by its message.

    Mappings in them have strings as values.
    """
    what, _, path = message.partition(" - at `$")
    keys = re.findall(r"[^.\[\]`]+|\[[\d.]+\]", path)
    if keys[-1:] == ["[...]"]:  # some value of a mapping
        mapping: Any = tables
        for key in keys[:-1]:
            mapping = mapping[key]
        keys[-1] = next(key for key, value in mapping.items() if not isinstance(value, str))
    if unknown := re.search(r"unknown field `(.+)`", what, re.DOTALL):
        return [*keys, unknown[1]], "unknown key"
    if missing := re.search(r"missing required field `(.+)`", what):
        return [*keys, missing[1]], "missing"
    return keys, what


def shown(keys: list[str]) -> str:
    """Keys as people write them: `site[2].id`."""
    return short(".".join(keys).replace(".[", "["))


def short(text: str) -> str:
    """A text of the file's, for a message: what is in it may be of any length."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _places(text: str) -> Iterator[tuple[list[str], int]]:
    """The headers, keys and elements of inline lists of valid TOML: what they lead to, and lines.

    What lies deeper inside a value is not told apart.
    """
    table: list[str] = []
    lengths: dict[str, int] = {}  # of the arrays of tables so far
    key, number = "", 1
    here: list[str] | None = None  # the path of the value that is being read
    depth = 0  # brackets open in it
    for token in TOKEN.findall(text + "\n"):
        if token[0] == "#":
            pass
        elif token == "\n" and depth == 0:
            if here is None and key:
                table = _header(key, lengths)
                yield table, number
            key, here = "", None
        elif here is None and token == "=":
            here = [*table, *_parts(key)]
            depth, index, awaited = 0, -1, False
            yield here, number
        elif here is None:
            key += token
        elif token != "\n":
            if awaited:
                yield [*here, f"[{index}]"], number
            depth += (token in ("[", "{")) - (token in ("]", "}"))
            awaited = depth == 1 and token in ("[", ",")
            index += awaited
        number += token.count("\n")


def _header(text: str, lengths: dict[str, int]) -> list[str]:
    """What `[a.b]` or `[[a]]` leads to; through an array of tables, to the last so far.

    A plan has such arrays only at the top.
    """
    first, *rest = _parts(text.strip("[]"))
    if text.startswith("[[") and not rest:
        lengths[first] = lengths.get(first, 0) + 1
    return [first, f"[{lengths[first] - 1}]", *rest] if first in lengths else [first, *rest]


def _parts(key: str) -> list[str]:
    """The parts of a key, bare, quoted or dotted."""
    parts: list[str] = []
    value: Any = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return parts
