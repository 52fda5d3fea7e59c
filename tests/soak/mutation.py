"""Mutated files: what a TOML or JSON file says is changed, and the way it says it; then its bytes.

A tree is what the parsers make: dicts, lists and scalars. `Raw` stands in it for text that is
written as it is.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from random import Random
from typing import Any

MOST_BYTES = (1 << 20) + 100  # sometimes more than a file may have
MANY = (2, 3, 50, 1000, 30_000)  # how often something is repeated


class Raw(str):
    """Text that is written as it is."""


# In both languages.
WILD: tuple[Any, ...] = (
    *("", "native", "int8x3", "x" * 5000, "\0", "\x1b[2J", "\u2028", "\ud800", "a\nb", "${x}"),
    *("mlp:forward/matmul~8f3a#0", "../../etc/passwd", "__class__", "1e999", "[[site]]", "\\"),
    *(0, 1, 2, -1, 3.5, -0.0, 1e308, 5e-324, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1),
    *(True, False, [], {}, [[]], [{}], {"": {}}, {"a": [1, {"b": None}]}, [None] * 3),
    *(Raw("1" * 5000), Raw("1e999"), Raw("-1e-999"), Raw("[" * 100_000), Raw('{"a":' * 50_000)),
    *(Raw("[" * 90 + "]" * 90), Raw("NaN"), Raw("-Infinity"), Raw('"'), Raw(""), Raw("01")),
)
IN_TOML = (
    *(date(2026, 11, 22), Raw("1979-05-27T07:32:00Z"), Raw("07:32:00"), Raw("nan"), Raw("-inf")),
    *(Raw("0x" + "f" * 5000), Raw("0x7f"), Raw("0b1"), Raw("1_000"), Raw("1__0"), Raw("+0")),
    *(Raw("{a.b.c = 1}"), Raw('{"a\\"b".' * 300), Raw('"""'), Raw("'''\n"), Raw('"""\\'), Raw("#")),
)
IN_JSON = (Raw("null"), Raw('"\\ud800"'), Raw('"\\u0000"'), Raw("1.e3"), Raw("0" * 400), Raw("'a'"))
NAMES = ("", "id", "a b", 'a"b', "a.b", "é", "\n", "x" * 3000, "schema", "0", "__init__", "\\u0041")
BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml(rng: Random, tree: Any) -> bytes:
    """A tree after some changes, in one of the ways that TOML has for it."""
    lines = list(_tables(rng, changed(rng, tree, (*WILD, *IN_TOML)), []))
    text = rng.choice(("\n",) * 9 + ("\r\n",)).join(lines)
    return _encoded(rng, rng.choice(("",) * 9 + ("\ufeff",)) + text + "\n")


def json_text(rng: Random, tree: Any) -> bytes:
    """A tree after some changes, in one of the ways that JSON has for it."""
    return _encoded(rng, _json(rng, changed(rng, tree, (*WILD, *IN_JSON))))


def changed(rng: Random, tree: Any, wild: tuple[Any, ...]) -> Any:
    """A copy of a tree after up to three changes."""
    whole = [_copy(tree)]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        places = [(holder, key) for holder in _holders(whole) for key in _keys(holder)]
        if places:
            holder, key = rng.choice(places[:1] + places[1:] * 9)
            rng.choice(CHANGES)(rng, holder, key, wild)
    return whole[0] if whole else rng.choice(wild)


def _replaced(rng: Random, holder: Any, key: Any, wild: tuple[Any, ...]) -> None:
    holder[key] = _copy(rng.choice(wild))


def _removed(rng: Random, holder: Any, key: Any, wild: tuple[Any, ...]) -> None:
    del holder[key]


def _renamed(rng: Random, holder: Any, key: Any, wild: tuple[Any, ...]) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(NAMES)] = holder.pop(key)


def _wrapped(rng: Random, holder: Any, key: Any, wild: tuple[Any, ...]) -> None:
    holder[key] = rng.choice(([holder[key]], {"a": holder[key]}, [holder[key], {"a": 1}]))


def _repeated(rng: Random, holder: Any, key: Any, wild: tuple[Any, ...]) -> None:
    """Put more copies of an entry beside it, up to what a file may hold; ids get numbers."""
    value, count = holder[key], rng.choice(MANY)
    count = min(count, MOST_BYTES // len(repr((key, value))) + 1)
    if isinstance(holder, dict):
        holder.update({f"{key}{i}": _copy(value) for i in range(count)})
    else:
        holder[key:key] = [_numbered(value, i) for i in range(count)]


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return {**_copy(value), "id": f"{value['id']}{number}"}
    return _copy(value)


CHANGES: tuple[Callable[[Random, Any, Any, tuple[Any, ...]], None], ...] = (
    *(_replaced,) * 6,
    *(_removed, _removed, _renamed, _renamed, _wrapped, _repeated),
)


def _holders(tree: Any) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        yield holder
        inside = holder.values() if isinstance(holder, dict) else holder[:100]
        waiting += [value for value in inside if isinstance(value, dict | list)]


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(min(len(holder), 100)))


def _copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return [_copy(value) for value in tree] if isinstance(tree, list) else tree


def _encoded(rng: Random, text: str) -> bytes:
    """Most as it is, some with other bytes."""
    raw = text.encode("utf-8", "surrogatepass")[:MOST_BYTES]
    return other_bytes(rng, raw) if rng.random() < 0.3 else raw


def other_bytes(rng: Random, raw: bytes) -> bytes:
    """A file after one or two changes of its bytes, whatever they mean."""
    for _ in range(rng.choice((1, 2))):
        raw = rng.choice(BYTES)(rng, raw)
    return raw


def _tables(rng: Random, tree: Any, path: list[str]) -> Iterator[str]:
    """The lines of a table: its own first, then those of the tables in it."""
    if not isinstance(tree, dict):
        yield str(tree)
        return
    inner = {}
    for key, value in tree.items():
        rows = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
        if isinstance(value, dict) and len(value) == 1 and rng.random() < 0.2:
            ((last, one),) = value.items()
            yield f"{_key(rng, key)}.{_key(rng, last)} = {_value(rng, one)}"
        elif (rows or isinstance(value, dict)) and rng.random() < 0.8:
            inner[key] = value
        else:
            yield f"{_key(rng, key)}{_space(rng)}={_space(rng)}{_value(rng, value)}{_comment(rng)}"
    for key, value in inner.items():
        here = [*path, key]
        name = f"{_space(rng)}.{_space(rng)}".join(_key(rng, part) for part in here)
        for row in value if isinstance(value, list) else [value]:
            yield f"[[{name}]]" if isinstance(value, list) else f"[{name}]{_comment(rng)}"
            yield from _tables(rng, row, here)


def _value(rng: Random, value: Any) -> str:
    match value:
        case Raw() | date():
            return str(value)
        case bool():
            return str(value).lower()
        case int():
            return rng.choice((str, str, str, hex))(value)
        case str():
            return _text(rng, value)
        case dict():
            pairs = (f"{_key(rng, key)} = {_value(rng, one)}" for key, one in value.items())
            return "{" + ", ".join(pairs) + "}"
        case list():
            comma = rng.choice((", ", ", ", ",", " , ", ",\n", ", # c\n"))
            return "[" + comma.join(_value(rng, one) for one in value) + "]"
    return repr(value)


def _text(rng: Random, text: str) -> str:
    escaped = json.dumps(text, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05:
        escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in text[:500] if ord(c) < 1 << 16) + '"'
    literal = f"'{text}'"
    return rng.choice((*(escaped,) * 6, literal, f'""{escaped}""', f"''{literal}''"))


def _key(rng: Random, key: str) -> str:
    ways = (json.dumps(key), json.dumps(key, ensure_ascii=False), f"'{key}'")
    one = key if BARE.fullmatch(key) and rng.random() < 0.8 else rng.choice(ways)
    if rng.random() < 0.001:
        part = rng.choice(("a", '"a\\"b"', "'a b'"))
        return f"{part}." * rng.choice((3, 14, 15, 99, 5000)) + one
    return one


def _space(rng: Random) -> str:
    return rng.choice((" ",) * 12 + ("", "  ", "\t"))


def _comment(rng: Random) -> str:
    comments = ("#", " # it's \"so", " # " + "." * 200, ' # """', " # [a]", "\n#" + "x." * 500)
    return rng.choice(comments) if rng.random() < 0.1 else ""


def _json(rng: Random, value: Any) -> str:
    space = rng.choice(("", "", " ", "\n "))
    match value:
        case Raw():
            return str(value)
        case dict():
            pairs = [
                f"{json.dumps(key, ensure_ascii=rng.random() < 0.5)}:{space}{_json(rng, one)}"
                for key, one in value.items()
            ]
            if pairs and rng.random() < 0.02:
                pairs.append(rng.choice(pairs))
            return "{" + f",{space}".join(pairs) + space + "}"
        case list():
            return "[" + f",{space}".join(_json(rng, one) for one in value) + space + "]"
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, default=str)


def _flipped(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]


def _cut(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + raw[at + rng.randint(1, 30) :]


def _ended(rng: Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _inserted(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(SIGNS) + raw[at:]


def _lines(rng: Random, raw: bytes) -> bytes:
    """A line again, gone, or in another place."""
    lines = raw.splitlines(keepends=True) or [b""]
    line = rng.choice(lines)
    if rng.random() < 0.6:
        lines.remove(line)
    if rng.random() < 0.6:
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _again(rng: Random, raw: bytes) -> bytes:
    """All of it several times, or a piece of it as often as a file may hold it."""
    if rng.random() < 0.5:
        return (raw[:MOST_BYTES] * rng.choice((2, 3, 50)))[:MOST_BYTES]
    at = rng.randrange(len(raw) + 1)
    piece = raw[at : at + rng.randint(1, 12)]
    return raw[:at] + piece * (MOST_BYTES // (2 * len(piece) + 1)) + raw[at:]


SIGNS = (
    *b'[ ] [[ ]] { } [] {} = . , : # " \' """ \'\'\' \\ \\u \\" null true 1e 0x'.split(b" "),
    *(b"\n", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", "\u2028".encode(), b"\xef\xbb\xbf"),
    *(b"9" * 5000, b"x" * 5000, b"[" * 20_000, b"{a=" * 9000, b"a." * 9000, b'"a\\"b".' * 9000),
)
BYTES = (_flipped, _cut, _ended, _inserted, _inserted, _lines, _again)
