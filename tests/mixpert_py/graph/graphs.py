"""Graphs that are written."""

import random

from mixpert_py.graph import Graph, of_source


def graph(source: str) -> Graph:
    return of_source(f"import numpy as np\n{source}".encode(), "p.py", "p")


def hard_to_write() -> Graph:
    """Names and texts that every format has to escape somehow."""
    return of_source(
        'x = {"a\\"<&>\'\x01\\\\": 1}\ndef größe(x):\n'
        '    y = x["a\\"<&>\'\x01\\\\"] @ x["]]>", "漢字"]\n    return y @ y\n'.encode(),
        'a "b" <&>\n\udcff\\.py',
        "p",
    )


def of_fifty(seed: int) -> Graph:
    """Fifty products, forwards and around two loops."""
    chance = random.Random(seed)
    lines = ["def f(a):"]
    for at in range(50):
        one, other = chance.choices(["a", *(f"v{before}" for before in range(at))], k=2)
        within = 20 <= at < 26 or 35 <= at < 38
        if at in (20, 35):
            lines.append("    for _ in range(9):")
        one = f"v{at - 1}" if within else one
        wide = "b" * chance.randrange(30)
        lines.append(f"    {'    ' * within}v{at} = {one} @ ({other} + {wide}1)")
        if at in (25, 37):
            lines.append(f"        v{19 if at == 25 else 34} = v{at}")
    return graph("\n".join(lines))


# Files of different names, so that a path tells which graph something is of.
GRAPHS = [hard_to_write(), graph("print()\n"), of_fifty(0)]
