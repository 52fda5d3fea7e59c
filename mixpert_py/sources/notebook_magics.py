"""IPython's own lines in a cell (`%magic`, `!command`, `help?`), hidden from Python's parser."""

import ast
import io
import re
import tokenize

MAGIC = re.compile(r"(?P<indent>[ \t]*)(?:[%!?]|[^#'\"]*\?[ \t]*$)")
# `files = !ls` and `x = %magic`: the name is bound all the same.
ASSIGNED = re.compile(r"(?P<target>[ \t]*[^=#'\"!<>]+=)[ \t]*[!%]")


def plain(cell: str) -> str | None:
    """A cell as Python with as many lines, those of IPython replaced; None if that is no Python.

    The text under a cell magic such as `%%time` is the magic's.
    """
    if cell.lstrip().startswith("%%") or "\r" in cell or "\f" in cell:
        return None
    if _parses(cell):
        return cell
    lines: list[str] = []
    continued = False
    for line in cell.split("\n"):
        hidden = "" if continued else _hidden(line, lines)
        continued = hidden is not None and line.endswith("\\")
        lines.append(line if hidden is None else hidden)
    text = "\n".join(lines)
    return text if _parses(text) else None


def _hidden(line: str, before: list[str]) -> str | None:
    """The replacement of a line of IPython's; None for a line of Python's."""
    magic, assigned = MAGIC.match(line), ASSIGNED.match(line)
    if not (magic or assigned) or not _is_complete("\n".join(before)):
        return None
    return f"{assigned['target']} 0" if assigned else f"{magic['indent'] if magic else ''}pass"


def _is_complete(text: str) -> bool:
    """False if the next line continues an expression or a string."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO(text).readline):
            pass
    except tokenize.TokenError:
        return False
    except SyntaxError:
        return True
    return True


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
