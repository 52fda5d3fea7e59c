"""How a graph looks: colours for light and dark pages, and what is seen when something is hovered.

Plain rules only, no variables: what turns SVG into other pictures reads them as a browser does, and
leaves out the media query.
"""

# Far enough from the page for a line of one pixel and a half; neighbours in the source differ.
LIGHT = ("#1f4e9c", "#b3471d", "#2b7a3d", "#7a3b9a", "#8a6a00", "#0f7680", "#a82a5c", "#555555")
DARK = ("#7fb0ff", "#ff9a66", "#6fd08a", "#cf9cf0", "#dfbe4a", "#5fd0da", "#ff8ab5", "#b8b8b8")

_RULES = """\
text { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }
.edge { fill: none; stroke-width: 1.5 }
.cycle { stroke-width: 2.5 }
.upward { stroke-dasharray: 6 3 }
.unseen { stroke-dasharray: 1.5 3.5 }
.edge:hover { stroke-width: 5 }
.operator .box { stroke-width: 1 }
.operator.cyclic .box { stroke-width: 2 }"""

_LIGHT = """\
.page { fill: #ffffff }
text { fill: #1a1a1a }
.place { fill: #5f6368 }
.operator .box { fill: #f6f7f9; stroke: #8a8f98 }
.operator.cyclic .box { stroke: #3c4043 }
.track { fill: #e3e5e9 }
.share { fill: #d9730d }"""

_DARK = """\
.page { fill: #16181c }
text { fill: #e8eaed }
.place { fill: #a0a6ad }
.operator .box { fill: #24272d; stroke: #6b7178 }
.operator.cyclic .box { stroke: #d0d4da }
.track { fill: #3a3e45 }
.share { fill: #ff9f43 }"""


def style() -> str:
    """The style sheet of a picture. `.c0` … are edges and `.a0` … their arrows, by producer."""
    dark = "\n".join([_DARK, *_colors(DARK)])
    return "\n".join(
        [_RULES, _LIGHT, *_colors(LIGHT), f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}"]
    )


def focus(name: str) -> str:
    """While the operator of this id is hovered, only its own edges are seen."""
    others = f'.edge:not([data-producer="{name}"]):not([data-consumer="{name}"])'
    return f'svg:has([id="{name}"]:hover) {others} {{ opacity: 0.08 }}'


def _colors(colors: tuple[str, ...]) -> list[str]:
    return [
        f".c{at} {{ stroke: {color} }} .a{at} {{ fill: {color} }}"
        for at, color in enumerate(colors)
    ]
