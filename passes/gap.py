"""Gap: what stands between two operands, which a product writes its way and a call with a comma.

Each function here has its inverse beside it: no two gaps become the same one, so that the spaces,
line breaks and comments of the program can be put back.
"""

import re

from mixpert_py.passes.edit import without_comments

# One space before `@` is what people write, and none before a comma.
_EXCHANGED = {" ": "", "": " "}
_NEWLINE = re.compile(r"[\r\n]")
# One space on either side of `@=`, and none beside a keyword's `=`.
_EXCHANGED_PAIRS = {(" ", " "): ("", ""), ("", ""): (" ", " ")}


def operator_to_comma(gap: str, operator: str = "@") -> str:
    """`a @ b` becomes `a, b`; elsewhere the comma stands where the operator stood."""
    at = without_comments(gap).index(operator)
    before, after = gap[:at], gap[at + len(operator) :]
    return f"{_exchanged(before, after)},{after}"


def comma_to_operator(gap: str, operator: str = "@") -> str:
    """The inverse of `operator_to_comma`."""
    at = without_comments(gap).index(",")
    before, after = gap[:at], gap[at + 1 :]
    return f"{_exchanged(before, after)}{operator}{after}"


def _exchanged(before: str, after: str) -> str:
    return _EXCHANGED.get(before, before) if after else before


def method_to_comma(gap: str) -> tuple[str, tuple[str, str]]:
    """`x.dot(y)` becomes `x, y`: the new gap, and what stood on either side of the word `dot`."""
    plain = without_comments(gap)
    period = plain.index(".")
    word = plain.index("dot", period)
    bracket = plain.index("(", word)
    after = gap[bracket + 1 :]
    space = "" if _NEWLINE.match(after) else " "
    beside = gap[period + 1 : word], gap[word + len("dot") : bracket]
    return f"{gap[:period]},{space}{after}", beside


def comma_to_method(gap: str, beside: tuple[str, str]) -> str:
    """The inverse of `method_to_comma`."""
    at = without_comments(gap).index(",")
    after = gap[at + 1 :]
    after = after if _NEWLINE.match(after) else after[1:]
    return f"{gap[:at]}.{beside[0]}dot{beside[1]}({after}"


def assignment_to_beside(gap: str, operator: str = "@=") -> tuple[str, str]:
    """What stands before and behind `@=`, say, as it is kept beside the `=` of a keyword."""
    before, _, after = gap.partition(operator)
    return _EXCHANGED_PAIRS.get((before, after), (before, after))


def beside_to_assignment(beside: tuple[str, str], operator: str = "@=") -> str:
    """The inverse of `assignment_to_beside`."""
    return operator.join(_EXCHANGED_PAIRS.get(beside, beside))
