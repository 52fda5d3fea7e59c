"""Pictures by matplotlib as inline SVG, in the colours of the page that they stand in.

Pictures are drawn in the stand-in colours below. In the SVG each becomes a variable of the page's
style sheet, so that the picture follows the light or dark setting.
"""

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from html import escape
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mixpert_py.errors import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE, GROUND, OVER = "#000001", "#000002", "#000003", "#000004", "#000005"
LEVELS = tuple(f"#00010{number}" for number in range(7))
VARIABLES = {
    **dict(
        zip((INK, SOFT, LINE, GROUND, OVER), ("ink", "soft", "line", "ground", "over"), strict=True)
    ),
    **{color: f"level-{number}" for number, color in enumerate(LEVELS)},
}
METADATA = ("Creator", "Date", "Format", "Type")
NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text, in the page's own font
    "svg.hashsalt": "mixpert",  # the same picture has the same bytes
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.minor.bottom": False,
    "ytick.minor.left": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
WIDTH, HEIGHT = 7.2, 3.6  # inches


def style() -> AbstractContextManager[None]:
    """The context in which pictures are drawn."""
    import matplotlib

    return matplotlib.rc_context(SETTINGS)


def panels(count: int, height: float = HEIGHT) -> "tuple[Figure, Sequence[Axes]]":
    """A figure with so many axes, two in a row where there are several. height: of one, inches."""
    from matplotlib.figure import Figure

    rows, across = (1, 1) if count == 1 else (-(-count // 2), 2)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    found = [figure.add_subplot(rows, across, at + 1) for at in range(count)]
    for axes in found:
        axes.grid(color=LINE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.patch.set_alpha(0)
    figure.patch.set_alpha(0)
    return figure, found


def svg(figure: "Figure", title: str) -> str:
    """The figure as SVG markup with a title for those who do not see it, in the page's colours."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=dict.fromkeys(METADATA))
    text = visible(written.getvalue())
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda it: it[0] if it[1] in used else "", text)
    # Several pictures stand in one page, and ids are the page's.
    own = f"{crc32(text.encode()):08x}"
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>p{own}", text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    _, _, body = text.partition("<svg")[2].partition(">")
    start = f'<svg class="picture" role="img" {box[0]} {NAMESPACES}>'
    return f"{start}\n<title>{escape(visible(title))}</title>{body.rstrip()}"
