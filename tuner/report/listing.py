"""The program's source with its products marked; what lies far from any is folded away."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from mixpert_py.tuner.report.html import Html, el, join
from mixpert_py.tuner.report.summary import Row, counted

NEAR = 4  # lines above and below a product that stay in sight
LEAST_FOLD = 4  # fewer lines than that are not worth a fold

# As Python's tokenizer counts lines; spans are offsets in this very text.
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

Mark = tuple[int, int, Row]


def listing(
    text: str, spans: Mapping[str, tuple[int, int]], rows: Sequence[Row], colors: Mapping[str, int]
) -> Html:
    """Numbered lines; where a product begins, its number and level stand at the end of the line."""
    marks = [(*spans[row.entry.id], row) for row in rows if row.entry.id in spans]
    lines: list[Html] = []
    near: set[int] = set()
    for at, found in enumerate(LINE.finditer(text)):
        here = [mark for mark in marks if mark[0] < found.end() and found.start() < mark[1]]
        if here:
            near |= set(range(at - NEAR, at + NEAR + 1))
        begin = sorted((row for start, _, row in here if start >= found.start()), key=_number)
        lines.append(
            el(
                "div",
                el("span", str(at + 1), class_="no"),
                el("code", *_pieces(text, *found.span(), here, colors)),
                *(_note(row, colors) for row in begin),
                class_="line product" if here else "line",
            )
        )
    return el("div", *_folded(lines, near), class_="listing")


def _number(row: Row) -> int:
    return row.number


def _pieces(
    text: str, start: int, end: int, marks: Sequence[Mark], colors: Mapping[str, int]
) -> Iterator[Html]:
    """A line, cut where a product begins or ends; the innermost product has the piece."""
    cuts = {start, end} | {min(max(cut, start), end) for mark in marks for cut in mark[:2]}
    for left, right in pairwise(sorted(cuts)):
        piece = text[left:right].rstrip("\r\n")
        around = [mark for mark in marks if mark[0] <= left and right <= mark[1]]
        if not around or not piece.strip():
            yield join(piece)
            continue
        _, _, row = min(around, key=lambda mark: mark[1] - mark[0])
        yield el(
            "a",
            piece,
            class_=f"mark level-{colors[row.level]}",
            href=f"#op-{row.number}",
            tabindex=-1,  # the note is the one to be reached by keys
            data_op=row.number,
        )


def _note(row: Row, colors: Mapping[str, int]) -> Html:
    return el(
        "a",
        f"{row.number} {row.level}",
        class_=f"note level-{colors[row.level]}",
        href=f"#op-{row.number}",
        id=f"source-{row.number}",
        data_op=row.number,
    )


def _folded(lines: Sequence[Html], near: set[int]) -> Iterator[Html]:
    for is_near, group in groupby(enumerate(lines), key=lambda pair: pair[0] in near):
        some = [line for _, line in group]
        if is_near or len(some) < LEAST_FOLD:
            yield join(*some)
        else:
            yield el("details", el("summary", counted(len(some), "line")), *some)
