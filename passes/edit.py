"""Edit: a replacement of a stretch of text, and how many of them are spliced into a source."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

COMMENT = re.compile(r"#[^\r\n]*")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace text[start:end]. Spans of different edits never overlap, but may touch.

    Where several edits start at one place, ends of products come before beginnings of others;
    of two beginnings the outer product's comes first, of two ends the inner product's.
    """

    start: int
    end: int
    replacement: str
    begins: bool  # the beginning of a product, such as `_mixpert.matmul(`
    depth: int  # how many products lie around it

    @property
    def order(self) -> tuple[int, bool, int]:
        return (self.start, self.begins, self.depth if self.begins else -self.depth)


def splice(text: str, edits: Iterable[Edit]) -> str:
    """The text with every edit made."""
    pieces = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.order):
        pieces += [text[done : edit.start], edit.replacement]
        done = edit.end
    return "".join([*pieces, text[done:]])


def without_comments(text: str) -> str:
    """Text between two tokens with its comments blanked; every offset stays."""
    return COMMENT.sub(lambda match: " " * len(match[0]), text)


def after_brackets(text: str, start: int, end: int) -> int:
    """The offset after the last closing bracket in text[start:end]; start if there is none."""
    return start + without_comments(text[start:end]).rfind(")") + 1


def before_brackets(text: str, start: int, end: int) -> int:
    """The offset of the first opening bracket in text[start:end]; end if there is none."""
    found = without_comments(text[start:end]).find("(")
    return end if found < 0 else start + found


def opening(text: str, at: int, call: str) -> str:
    """The beginning of a runtime call before the operand at an offset.

    `return(a)@b` is valid, `return_mixpert.matmul` is another name. The second space tells it from
    `return (a)@b`.
    """
    glued = at and (text[at - 1].isalnum() or text[at - 1] == "_")
    return f" {call}( " if glued else f"{call}("


def without_opening(text: str, at: int, call: str) -> Edit:
    """The edit that takes the `opening` of the runtime call at an offset away again."""
    glued = text.startswith(f"{call}( ", at)
    return Edit(at - glued, at + len(call) + 1 + glued, "", True, 0)
