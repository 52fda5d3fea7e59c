"""Edits of a text, and the text between tokens around an operator, a method's name or a comma.

All spaces, line breaks and comments of the program stay, so that a person can put a product back.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

COMMENT = re.compile(r"#[^\r\n]*")
# One space before `@` is what people write, and none before a comma.
_EXCHANGED = {" ": "", "": " "}
_NEWLINE = re.compile(r"[\r\n]")
# One space on either side of `@=`, and none beside a keyword's `=`.
_EXCHANGED_PAIRS = {(" ", " "): ("", ""), ("", ""): (" ", " ")}


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces text[start:end]. Spans of different edits never overlap, but may touch.

    At one place, ends of products come before beginnings of others. Of two beginnings the outer
    product's comes first, of two ends the inner product's.
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
    """The text after all edits."""
    pieces = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.order):
        pieces += [text[done : edit.start], edit.replacement]
        done = edit.end
    return "".join([*pieces, text[done:]])


def without_comments(text: str) -> str:
    """Text between two tokens with its comments replaced by spaces, so that offsets stay."""
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

    `return(a)@b` is valid, `return_mixpert.matmul` is another name. The second space distinguishes
    it from `return (a)@b`.
    """
    glued = at and (text[at - 1].isalnum() or text[at - 1] == "_")
    return f" {call}( " if glued else f"{call}("


def operator_to_comma(between: str, operator: str = "@") -> str:
    """`a @ b` becomes `a, b`; elsewhere the comma stands where the operator stood."""
    at = without_comments(between).index(operator)
    before, after = between[:at], between[at + len(operator) :]
    return f"{_exchanged(before, after)},{after}"


def _exchanged(before: str, after: str) -> str:
    return _EXCHANGED.get(before, before) if after else before


def method_to_comma(between: str) -> tuple[str, tuple[str, str]]:
    """`x.dot(y)` becomes `x, y`; also returns the text on either side of the word `dot`."""
    plain = without_comments(between)
    period = plain.index(".")
    word = plain.index("dot", period)
    bracket = plain.index("(", word)
    after = between[bracket + 1 :]
    space = "" if _NEWLINE.match(after) else " "
    spacing = between[period + 1 : word], between[word + len("dot") : bracket]
    return f"{between[:period]},{space}{after}", spacing


def assignment_to_spacing(between: str, operator: str = "@=") -> tuple[str, str]:
    """The text on either side of `@=`, for use on either side of a keyword's `=`."""
    before, _, after = between.partition(operator)
    return _EXCHANGED_PAIRS.get((before, after), (before, after))
