"""Reads TOML that people write, within limits, and finds the lines of its keys for messages.

Neither the parser nor msgspec gives the line of a key, and the parser's time grows with the square
of the number of a key's parts.
"""

import re
import tomllib
from itertools import takewhile
from operator import eq
from typing import Any

from mixpert_py.errors import one_line, short

MAX_BYTES = 1 << 20
MOST_PARTS = 16  # of a dotted key
MOST_LINES = 50_000  # tomlkit takes 10 µs for each, blank ones too
NAME = r"""(?:[\w. \t-]|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')++"""
# The beginning of a line with a header or a key, and what stands over several lines.
LINE = re.compile(rf"^[ \t]*+(?:(\[\[?)({NAME})\]|({NAME})=)", re.MULTILINE)
TEXT = re.compile(r'"{3}(?:\\.|[^\\])*?"{3}|' + r"'{3}.*?'{3}", re.DOTALL)
# Strings, those of several lines first. One that is not closed reaches to the end of its line, or
# of the text: so no text is looked at twice.
STRING = r"""
      "{3} (?:\\.|[^\\])*? (?:"{3,5}|\\?\Z) | '{3} .*? (?:'{3,5}|\Z)
    | " (?:\\.|[^"\\\n])*+ "? | ' [^'\n]*+ '?
"""
# The signs between strings, comments and words.
SIGN = re.compile(rf"{STRING} | \# [^\n]* | ([\[\]{{}},=\n.])", re.DOTALL | re.VERBOSE)
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def decoded(raw: bytes) -> str:
    """The text of a file. Of the bytes, one more than MAX_BYTES is enough.

    Raises ValueError, in words that follow the file's name, if it is too large or not UTF-8.
    """
    if len(raw) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def tables(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises ValueError, in words that follow the file's name, if the text is not TOML, is larger than
    MAX_BYTES or MOST_LINES, is nested too deeply, or has an integer that does not fit 64 bits.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    if text.count("\n") > MOST_LINES:
        raise ValueError(f"more than {MOST_LINES:,} lines")
    if "." * MOST_PARTS in "".join(SIGN.findall(text)):
        raise ValueError("nested too deeply")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:  # a decimal number may have too many digits
        if "set_int_max_str_digits" in str(error):
            raise ValueError("a number has too many digits") from None
        raise ValueError(f"not valid TOML: {one_line(error)}") from None
    _require_64_bits(found)
    return found


def line_of(text: str, keys: list[str]) -> int:
    """The 1-based line of a key (`["site", "[2]", "id"]`) in valid TOML, or of its table.

    A part of a value that is written inline has the line on which the value begins.
    """
    text = TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
    best, line = 0, 1
    table: list[str] = []
    lengths: dict[str, int] = {}  # of the arrays of tables so far
    for found in LINE.finditer(text):
        brackets, header, key = (part and part.strip() for part in found.groups())
        if header:
            table = _header(header, brackets == "[[", lengths)
        path = [*table, *_parts(key)] if key else table
        common = sum(takewhile(bool, map(eq, path, keys)))
        if common > best:
            best, line = common, 1 + text.count("\n", 0, found.start(1 if header else 3))
    return line


def explained(message: str, tables: dict[str, Any]) -> tuple[list[str], str]:
    """The keys of the value that msgspec refuses, and the reason, from msgspec's message.

    Values of mappings in them are strings.
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
    return keys, one_line(what)  # it may quote a value


def shown(keys: list[str]) -> str:
    """Keys as people write them: `site[2].id`."""
    return short(".".join(keys).replace(".[", "["))


def _require_64_bits(found: dict[str, Any]) -> None:
    """Raise ValueError for an integer beyond TOML's 64 bits: Python might not even print it."""
    values: list[Any] = [found]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError("not valid TOML: an integer of more than 64 bits")


def _header(name: str, is_array: bool, lengths: dict[str, int]) -> list[str]:
    """The keys of a header `[a.b]` or `[[a]]`; an array of tables stands for its last table so far.

    A plan has such arrays only at the top.
    """
    first, *rest = _parts(name)
    if is_array and not rest:
        lengths[first] = lengths.get(first, 0) + 1
    return [first, f"[{lengths[first] - 1}]", *rest] if first in lengths else [first, *rest]


def _parts(key: str) -> list[str]:
    """The parts of a key, bare, quoted or dotted."""
    if BARE_KEY.fullmatch(key):
        return key.split(".")
    parts: list[str] = []
    value: Any = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return parts
