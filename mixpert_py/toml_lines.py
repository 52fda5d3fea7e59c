"""Reads TOML that people write, within limits, and finds the lines of its keys for messages.

Neither the parser nor msgspec gives the line of a key.
"""

import re
import tomllib
from typing import Any

from mixpert_py.errors import one_line, short

MAX_BYTES = 1 << 20


def decoded(raw: bytes) -> str:
    """A file's text, of its first MAX_BYTES + 1 bytes. ValueError if too large or not UTF-8."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def tables(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises ValueError, in words that follow the file's name, for a text that is not TOML, is larger
    than MAX_BYTES or too deeply nested.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not valid TOML: {one_line(error)}") from None


def line_of(text: str, keys: list[str]) -> int:
    """The 1-based line of a key (`["site", "[2]", "id"]`) in valid TOML.

    It is the line of the key's table where the key is missing, and 1 where neither stands at the
    beginning of a line.
    """
    index = int(keys[1][1:-1]) if re.fullmatch(r"\[\d+\]", "".join(keys[1:2])) else 0
    headers = list(re.finditer(rf"^\[+{re.escape(keys[0])}\b", text, re.MULTILINE))
    start = headers[index].start() if index < len(headers) else 0
    following = re.compile(r"^\[", re.MULTILINE).search(text, start + 1)
    key = re.compile(rf'^[ \t]*"?{re.escape(keys[-1])}"?[ \t]*=', re.MULTILINE)
    found = key.search(text, start, following.start() if following else len(text))
    return 1 + text.count("\n", 0, found.start() if found else start)


def explained(message: str, tables: dict[str, Any]) -> tuple[list[str], str]:
    """The keys of the value that msgspec refuses, and the reason, from msgspec's message."""
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
