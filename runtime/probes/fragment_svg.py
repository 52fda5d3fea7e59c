"""The fragments of an instruction as one SVG: A left of C, B above C, coloured by thread."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Protocol

CELL_WIDTH, CELL_HEIGHT = 34, 18
MARGIN, HEADING = 16, 26
HUES = 8  # groups of four threads each
STYLE = """
.page { fill: #fff } text { font: 11px monospace; fill: #1f1f1f } .title { font-size: 13px }
.cell { stroke: #888; stroke-width: 0.5 }
@media (prefers-color-scheme: dark) {
  .page { fill: #14171b } text { fill: #f2f5f8 } .cell { fill-opacity: 0.3 }
}
"""


class Held(Protocol):
    """A fragment as `runtime.probes.fragments` has it: which threads hold which element."""

    @property
    def operand(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    def holders(self) -> list[list[list[tuple[int, int]]]]: ...


def drawing(name: str, parts: Sequence[Held]) -> str:
    """An SVG of A, B and C. Hovering over an element shows all threads that hold it. The picture
    follows the light or dark setting.
    """
    a, b, c = parts
    left = 2 * MARGIN + a.columns * CELL_WIDTH
    top = 2 * HEADING + b.rows * CELL_HEIGHT + MARGIN
    width = left + c.columns * CELL_WIDTH + MARGIN
    height = top + HEADING + c.rows * CELL_HEIGHT + MARGIN
    body = [
        *_matrix(a, MARGIN, top),
        *_matrix(b, left, HEADING),
        *_matrix(c, left, top),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" x="0" y="0" width="{width}" height="{height}"/>',
            _text(MARGIN, HEADING - 8, f"{name}, thread:element", "title"),
            *body,
            "</svg>",
            "",
        ]
    )


def _matrix(part: Held, x: int, y: int) -> Iterator[str]:
    yield _text(x, y + HEADING - 8, part.operand, "title")
    for i, line in enumerate(part.holders()):
        for j, held in enumerate(line):
            lane, element = held[0]
            at = x + j * CELL_WIDTH, y + HEADING + i * CELL_HEIGHT
            known = ", ".join(f"thread {lane} element {element}" for lane, element in held)
            yield (
                f"<g><title>{part.operand}[{i}, {j}]: {known}</title>"
                f'<rect class="cell" x="{at[0]}" y="{at[1]}" width="{CELL_WIDTH}" '
                f'height="{CELL_HEIGHT}" '
                f'fill="hsl({lane // 4 * 360 // HUES}, 70%, {88 - 5 * (lane % 4)}%)"/>'
                f"{_text(at[0] + 3, at[1] + 13, f'{lane}:{element}')}</g>"
            )


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{named}>{escape(text)}</text>'
