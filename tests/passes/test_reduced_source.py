"""The reduced source shows every product at its place, and every name that the whole text binds."""

import ast
import textwrap

import pytest

from mixpert_py.passes.cross_check import reduced
from mixpert_py.passes.pipeline import analyze
from mixpert_py.passes.scopes import read_scopes
from mixpert_py.passes.source import decode

SHORTENED = [
    ("function", "def f(x):\n    y = 1\n    return y\na @ b\n", 'f = """\n\n"""\na @ b\n'),
    ("decorators", "@d\n@e(\n1)\ndef f(): return 1 # c\na @ b", 'f = """\n\n\n"""\na @ b'),
    ("method in brackets", "class C:\n  @( # d\n  d)\n  def f(s): x\n  a @ b",
     'class C:\n  f = """\n\n"""\n  a @ b'),
    ("method", "class C:\n\tdef f(s):\n\t\tx\n\ta @ b", 'class C:\n\tf = """\n"""\n\ta @ b'),
    ("branch", "if x:\n  def f():\n    pass\nelse: a @ b", 'if x:\n  f = """\n"""\nelse: a @ b'),
    ("other branch", "if x: a @ b\nelif y:\n  z\nelse: w", "if x: a @ b\nelif y:\n  0\nelse: 0"),
    ("nested", "def f():\n  def g():\n    return 1\na@b", 'f = """\n\n"""\na@b'),
    ("around", "def f():\n  def g(): return 1\n  a @ b\n", "def f():\n  g = 0\n  a @ b\n"),
    ("wide letters", "def f(é):\n  'é'\nx = é @ b", 'f = """\n"""\nx = é @ b'),
    ("run", "x = f()\n# c\ny += 1\nx = 2\n\na @ b", 'x = y = """\n\n\n"""\n\na @ b'),
    ("before", "x = f(1,\n2); a @ b; y = 1\nz # c\n", 'x = f(1,\n2); a @ b; y = """\n"""\n'),
    ("targets", "a.x, b[i], (c, *d) = [e] = 1\na @ b", "c = d = e = 0\na @ b"),
    ("nothing", "print(x, (\n1))\nassert x\na @ b", '"""\n\n"""\na @ b'),
    ("loop", "for i, j in x:\n  k = 1\nelse: l = 2\na @ b", 'i = j = k = l = """\n\n"""\na @ b'),
    ("try", "try: x = 1\nexcept E as e: pass\nfinally: y = 1\na @ b",
     'e = x = y = """\n\n"""\na @ b'),
    ("annotated", "x: f(1) = 1\ny: int\na @ b", 'x = y = """\n"""\na @ b'),
    ("decorated", "x\n@d(\n1)\n@e\ndef f(): a @ b", '"""\n\n\n"""\ndef f(): a @ b'),
    ("imports", "import p.q, r as s\nfrom t import u\na @ b", '"""\n"""\na @ b'),
    ]  # fmt: skip
KEPT = [
    ("star", "from x import *\na @ b\n"),
    ("bracket", "@(\nd)\ndef f(): a @ b\n"),
    ("decorator", "@d(a @ b)\ndef f(): 0\n"),
    ("default", "def f(x=a @ b):\n  0\n"),
    ("annotation", "def f(x: (a @ b)):\n  0\n"),
    ("global", "def f():\n    global np\n    import cupy as np\nnp.dot(a, b)\n"),
    ("lambda", "f = lambda: a @ b\n"),
    ("continued", "x = 1 \\\n\na @ b\n"),
    ("class", "class C(A, k=a @ b):\n    import numpy as np\n"),
]


ROOTS = {"np", *"Ccdefgijklxyz"}


def shown(text: str) -> str:
    source, tree = decode(text.encode(), "m"), ast.parse(text)
    spans = sorted(
        source.span(node)
        for node in ast.walk(tree)
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "np.dot")
    )
    return reduced(source, read_scopes(tree), spans, ROOTS)


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(t, e, id=name) for name, t, e in SHORTENED]
)
def test_statements_without_a_product_are_one_assignment(text: str, expected: str) -> None:
    assert shown(text) == expected
    [site] = analyze(text.encode(), "m")
    assert site.reason is None


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in KEPT])
def test_what_a_product_needs_is_kept(text: str) -> None:
    assert shown(text) == text


def test_what_a_walrus_binds_and_what_is_deleted_is_assigned() -> None:
    assert shown("f((np := g))\ndel np\nnp.dot(a, b)\n") == 'np = """\n"""\nnp.dot(a, b)\n'


def test_a_name_that_a_function_left_out_binds_for_the_module() -> None:
    text = """
        import numpy as np
        def use_cupy():
            global np
            import cupy as np
        def product(a, b):
            return np.dot(a, b)
    """
    [site] = analyze(textwrap.dedent(text).encode(), "m")
    assert site.reason is None
