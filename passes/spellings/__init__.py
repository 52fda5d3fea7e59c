"""The ways to write a product: their interface, `Spelling`, and the edits that they are made of.

A function of a library is a row of the table in `functions.py`. Operators, assignments and the
method `dot`, which change more than a name, are in `operators.py`.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mixpert_py.passes.source import Source

COMMENT = re.compile(r"#[^\r\n]*")


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
    pieces = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.order):
        pieces += [text[done : edit.start], edit.replacement]
        done = edit.end
    return "".join([*pieces, text[done:]])


def without_comments(text: str) -> str:
    """Text between two tokens with its comments replaced by spaces, so that offsets stay."""
    return COMMENT.sub(lambda match: " " * len(match[0]), text)


def find_sign(text: str, start: int, end: int, sign: str) -> int:
    """The offset of a sign between two tokens, outside the comments there."""
    return start + without_comments(text[start:end]).index(sign)


def after_brackets(text: str, start: int, end: int) -> int:
    """The offset after the last closing bracket in text[start:end]; start if there is none."""
    return start + without_comments(text[start:end]).rfind(")") + 1


def before_brackets(text: str, start: int, end: int) -> int:
    """The offset of the first opening bracket in text[start:end]; end if there is none."""
    found = without_comments(text[start:end]).find("(")
    return end if found < 0 else start + found


def after_arguments(call: ast.Call, source: Source) -> int:
    """The offset after the last argument and its own brackets, before any trailing comma."""
    values = [keyword.value for keyword in call.keywords]
    last = max(source.span(argument)[1] for argument in (*call.args, *values))
    return after_brackets(source.text, last, source.span(call)[1] - 1)


@dataclass(frozen=True, slots=True)
class Match:
    """A product. kind: the word in the site's id. reason: why it stays; None if rewritten."""

    kind: str
    reason: str | None = None


class Parts(NamedTuple):
    """The expressions of a product.

    arguments, keywords: those of the runtime call, without its own keywords. output: the argument
    that receives the result, which is not an operand. native: the called function, which the
    runtime gets as `native=`. receiver: the object whose method that is, also an operand.
    """

    arguments: list[ast.expr]
    keywords: list[ast.keyword]
    output: ast.expr | None = None
    native: ast.expr | None = None
    receiver: ast.expr | None = None


class Spelling(Protocol):
    """A way to write a product, and RUNTIME, the runtime's function that replaces it."""

    @property
    def RUNTIME(self) -> str: ...  # noqa: N802 — a constant of the modules that are spellings

    def parts(self, node: ast.AST) -> Parts:
        """The expressions of the node that become arguments of the runtime call."""

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """The edits for this runtime function, with the keywords that it adds."""
