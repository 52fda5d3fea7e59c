"""Site ids outlive what leaves the product as it is, and nothing else."""

import re

import pytest

from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import SITE_ID

PROGRAM = """\
import numpy as np

SCALE = np.eye(3)

def forward(x, w):
    h = x @ w
    return np.dot(h, w) @ SCALE
"""


def ids(program: str, module: str = "m") -> list[str]:
    return [site.id for site in analyze(program.encode(), module)]


EQUAL = [
    ("blank-lines", PROGRAM.replace("\n", "\n\n")),
    ("comments", PROGRAM.replace("\n    ", "\n    # why\n    ")),
    ("spaces", PROGRAM.replace(" @ ", "@").replace(", ", " ,  ")),
    ("brackets", PROGRAM.replace("x @ w", "((x) @ (w))")),
    ("lines", PROGRAM.replace("x @ w", "(x\n      @ w)")),
    ("renamed-locals", PROGRAM.replace("h", "hidden").replace("(x, w", "(inputs, w")
     .replace("x @", "inputs @").replace("fohiddenrward", "forward")),
    ("new-statement", PROGRAM.replace("    h =", "    print(x)\n    h =")),
    ("new-neighbour", PROGRAM.replace("    h =", "    g = x.T @ x @ w[0]\n    h =")),
    ("new-function", "def other(a, b):\n    return a @ b\n" + PROGRAM),
    ("crlf", PROGRAM.replace("\n", "\r\n")),
    ("docstring", '"""doc"""\n' + PROGRAM),
]  # fmt: skip


@pytest.mark.parametrize("program", [pytest.param(p, id=name) for name, p in EQUAL])
def test_ids_stay(program: str) -> None:
    program = program.replace("forwardhidden", "forward")
    assert set(ids(PROGRAM)) <= set(ids(program))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("x @ w", "w @ x.T", id="operands"),
        pytest.param("SCALE", "OTHER", id="global"),
        pytest.param("np.dot(h, w)", "h.dot(w)", id="spelling"),
        pytest.param("h, w", "h, w.T", id="attribute"),
        pytest.param("def forward", "def backward", id="function"),
    ],
)
def test_ids_change(old: str, new: str) -> None:
    assert set(ids(PROGRAM)) != set(ids(PROGRAM.replace(old, new)))


def test_the_hash_outlives_the_functions_name() -> None:
    before, after = ids(PROGRAM), ids(PROGRAM.replace("forward", "backward"))
    assert [i.partition("/")[2] for i in before] == [i.partition("/")[2] for i in after]


QUALNAMES = [
    ("a @ b", "<module>"),
    ("def f():\n    a @ b", "f"),
    ("async def f():\n    a @ b", "f"),
    ("class C:\n    x = a @ b", "C"),
    ("class C:\n    def f(self): a @ b", "C.f"),
    ("class C:\n    class D:\n        def f(self): a @ b", "C.D.f"),
    ("def f():\n    def g(): a @ b", "f.<locals>.g"),
    ("def f():\n    class C:\n        def g(self): a @ b", "f.<locals>.C.g"),
    ("f = lambda: a @ b", "<lambda>"),
    ("def f(): return lambda: a @ b", "f.<locals>.<lambda>"),
    ("[a @ b for a in x]", "<module>"),
    ("def f(): return [a @ b for a in x]", "f"),
    ("def f(): return [lambda: a @ b for a in x]", "f.<locals>.<lambda>"),
    ("class C:\n    x = [a @ b for a in x]", "C"),
    ("def f(x=a @ b): pass", "<module>"),
    ("class C:\n    def f(self, x=a @ b): pass", "C"),
    ("@d(a @ b)\ndef f(): pass", "<module>"),
    ("class C(a @ b): pass", "<module>"),
    ("def f():\n    global g\n    def g(): a @ b", "g"),
    ("def grüße(): a @ b", "grüße"),
]


@pytest.mark.parametrize(("program", "qualname"), QUALNAMES)
def test_qualname(program: str, qualname: str) -> None:
    [site] = ids(program + "\n")
    assert re.match(SITE_ID, site)
    assert site.startswith(f"m:{qualname}/matmul~")


def test_equal_products_are_numbered_in_each_function() -> None:
    program = "def f(a, b):\n    a @ b; b @ a; a @ b\ndef g(x, y): x @ y\n"
    first, second, third, other = ids(program)
    assert [i[-2:] for i in (first, second, third, other)] == ["#0", "#1", "#2", "#0"]
    assert len({i.partition("~")[2][:6] for i in (first, second, third, other)}) == 1


def test_a_site_says_where_it_is() -> None:
    source = "# é\nif x:\n    y = 'é', (a  # why\n        @ b)\n"
    assert analyze(source.encode(), "m") == (
        CallSite(
            id="m:<module>/matmul~19c998#0",
            kind="matmul",
            line=3,
            column=15,
            expression="a @ b",
            reason=None,
            span=(24, 44),
        ),
    )
