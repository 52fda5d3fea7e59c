"""Workflow commands of GitHub Actions, which show a message beside a line of a changed file."""

import re
from typing import Any

TITLE = "mixpert"
# The cell of a notebook, in the path of a site; and the line, in the message about a file.
CELL = re.compile(r"^(.*\.ipynb):(cell_\d+)$")
LINE = re.compile(r": line (\d+): ")


def site(record: dict[str, Any], what: str) -> str:
    """The notice about a product, as `Rewritten.records` describes it.

    what: what happens to it, such as "would be rewritten", or why nothing happens.
    """
    message = f"{record['expression']}: {what}"
    if cell := CELL.match(record["path"]):
        # Lines are counted within the cell: the file has other ones.
        message = f"{cell[2]}, line {record['line']}: {message}"
        return _command("notice", {"file": cell[1]}, message)
    place = {"file": record["path"], "line": record["line"], "col": record["column"]}
    return _command("notice", place, message)


def problem(path: str, message: str) -> str:
    """The error about a file that cannot be read or rewritten."""
    line = LINE.search(message)
    if line is None:
        return _command("error", {"file": path}, message.removeprefix(f"{path}: "))
    return _command("error", {"file": path, "line": line[1]}, message[line.end() :])


def _command(kind: str, place: dict[str, Any], message: str) -> str:
    properties = {**place, "title": TITLE}
    words = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items())
    return f"::{kind} {words}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Escape a text as GitHub asks: percent signs first, then line ends, and in properties also the
    separators.
    """
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
