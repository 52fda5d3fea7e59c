"""The excerpt shows every product at its place, and every name that the whole text binds."""

import ast
import re
import textwrap

import pytest

from mixpert_py.passes.excerpt import excerpt
from mixpert_py.passes.pipeline import analyze, rewrite
from mixpert_py.passes.source import decode

SHORTENED = [
    ("function", "def f(x):\n    y = 1\n    return y\na @ b\n", "def f(): pass\n\n\na @ b\n"),
    ("async", "async def f(x):\n    y = 1\na @ b", "def f(): pass\n\na @ b"),
    ("decorators", "@d\n@e(\n1)\ndef f(): return 1 # c\na @ b", "def f(): pass\n\n\n # c\na @ b"),
    ("more", "def f(): x = 1; y = 2;\na @ b", "def f(): pass\na @ b"),
    ("method", "class C:\n\tdef f(s):\n\t\tx\n\ta @ b", "class C:\n\tdef f(): pass\n\n\ta @ b"),
    ("branch", "if x:\n  def f():\n    pass\nelse: a @ b", "if x:\n  def f(): pass\n\nelse: a @ b"),
    ("nested", "def f():\n  def g():\n    return 1\na@b", "def f(): pass\n\n\na@b"),
    ("carriage returns", "def f():\r\n  '''\r\n'''\r\na @ b", "def f(): pass\n\n\na @ b"),
    ("mixed", "def f():\r  '''\r'''\n\r\na @ b\n", "def f(): pass\n\n\n\na @ b\n"),
    ("wide letters", "def f(é):\n  'é'\nx = é @ b", "def f(): pass\n\nx = é @ b"),
]  # fmt: skip
KEPT = [
    ("around", "def f():\n    def g(): return 1\n    return a @ b\n"),
    ("decorator", "@d(a @ b)\ndef f(): return 1\n"),
    ("default", "def f(x=a @ b): return x\n"),
    ("annotation", "def f(x: (a @ b)): return x\n"),
    ("global", "def f():\n    global np\n    import cupy as np\nnp.dot(a, b)\n"),
    ("lambda", "f = lambda: 1\na @ b\n"),
    ("class", "class C(A, k=a @ b):\n    import numpy as np\n"),
]


def shown(text: str) -> str:
    source = decode(text.encode(), "m")
    spans = sorted(
        source.span(node)
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "np.dot")
    )
    return excerpt(source, ast.parse(text), spans)


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(t, e, id=name) for name, t, e in SHORTENED]
)
def test_a_function_without_a_product_is_a_line(text: str, expected: str) -> None:
    assert shown(text) == expected
    [site] = analyze(text.encode(), "m")
    assert site.reason is None


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in KEPT])
def test_what_a_product_needs_is_kept(text: str) -> None:
    assert shown(text) == text


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


def test_the_rest_of_a_large_file_does_not_count() -> None:
    functions = "".join(f"def f{i}(x):\n    return x + {'x + ' * 50}1\n" for i in range(2_000))
    source = f"{functions}c = a @ b\n".encode()
    [site] = analyze(source, "m")
    assert site.reason is None
    assert re.search(rb"^c = _mixpert\.matmul\(a, b", rewrite(source, "m"), re.MULTILINE)
