"""The line `import mixpert_py as _mixpert` that is added to a rewritten file, and its place."""

import ast
import re

from mixpert_py.passes.edits import Edit, without_comments
from mixpert_py.passes.source import Source

PACKAGE = "mixpert_py"
ALIAS = "_mixpert"
MARK = "  # added by mixpert rewrite"
# The same where a docstring and the next statement shared a line.
SPLIT_MARK = f"{MARK}, which split this line"
COMMENT_LINE = re.compile(r"[ \t\f]*#[^\r\n]*(?:\r\n|\r|\n|\Z)")
SAME_LINE = re.compile(r"(?:[ \t\f;]|\\(?:\r\n|\r|\n))*")
BLANK_LINE = re.compile(r"[ \t\f]*(?:\r\n|\r|\n)")


def position(tree: ast.Module) -> int:
    """The number of statements that stay before the import: docstring and future imports."""
    body = tree.body
    count = 1 if body and _is_docstring(body[0]) else 0
    while count < len(body) and _is_future(body[count]):
        count += 1
    return count


def alias(tree: ast.Module, text: str) -> str:
    """The name for the runtime: from an import in the file, else a name that is not in use."""
    before = position(tree)
    for statement in tree.body[before:]:
        if name := imported_as(statement):
            return name
    number = 0
    name = ALIAS
    while name in text and re.search(rf"\b{name}\b", text):
        number += 1
        name = f"{ALIAS}_{number}"
    return name


def is_imported(tree: ast.Module, name: str) -> bool:
    """Whether the file has the import of an earlier rewriting."""
    return any(imported_as(statement) == name for statement in tree.body)


def imported_as(statement: ast.stmt) -> str | None:
    """The name that an `import mixpert_py as _mixpert` statement binds; None for others."""
    if isinstance(statement, ast.Import) and len(statement.names) == 1:
        name = statement.names[0]
        if name.name == PACKAGE and name.asname and re.fullmatch(r"_mixpert(_\d+)?", name.asname):
            return name.asname
    return None


def edit(tree: ast.Module, source: Source, name: str) -> Edit:
    """The import as a line of its own, where a person would put it.

    It stands before the first statement if that is an import, else after the docstring, the future
    imports or the opening comment (shebang, coding line, licence). A statement that follows a
    docstring on the same line moves to a line after the import.
    """
    text = source.text
    before = position(tree)
    line = f"import {PACKAGE} as {name}"
    first = source.span(tree.body[before])[0]
    if before:
        end = source.span(tree.body[before - 1])[1]
        if SAME_LINE.fullmatch(without_comments(text[end:first])):
            newline = _newline(source, first)
            return Edit(first, first, f"{newline}{line}{SPLIT_MARK}{newline}", True, -1)
        at = _next_line(text, end)
    else:
        at = _after_opening_comment(text)
    if isinstance(tree.body[before], ast.Import | ast.ImportFrom):
        at = source.line_starts[tree.body[before].lineno - 1]
    return Edit(at, at, f"{line}{MARK}{_newline(source, at)}", True, -1)


def node(name: str) -> ast.Import:
    """The import as a statement located in line 1, for a tree that is run and not written."""
    here = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
    return ast.Import([ast.alias(PACKAGE, name, **here)], **here)


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _next_line(text: str, start: int) -> int:
    end = re.compile(r"\r\n|\r|\n|\Z").search(text, start)
    assert end is not None
    return end.end()


def _after_opening_comment(text: str) -> int:
    """The offset after the first block of comment lines; 0 if the file opens with code."""
    at = 0
    while blank := BLANK_LINE.match(text, at):
        at = blank.end()
    if not COMMENT_LINE.match(text, at):
        return 0
    while (comment := COMMENT_LINE.match(text, at)) and comment[0]:
        at = comment.end()
    return at


def _newline(source: Source, at: int) -> str:
    """The file's newline, unless it would join with a character beside it."""
    beside = source.text[at - 1 : at] == "\r", source.text[at : at + 1] == "\n"
    if source.newline == "\n" and beside[0]:
        return "\r"
    return "\n" if source.newline == "\r" and beside[1] else source.newline
