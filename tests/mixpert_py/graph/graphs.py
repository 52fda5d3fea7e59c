"""Graphs that are written."""

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


LOOPS = """\
def f(a, b):
    x = a @ b
    for _ in range(9):
        y = x @ (a + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)
        for _ in range(9):
            x = (y @ x) @ (x @ b)
    return x.dot(y)
"""

# Files of different names, so that a path tells which graph something is of.
GRAPHS = [hard_to_write(), graph("print()\n"), graph(LOOPS)]
