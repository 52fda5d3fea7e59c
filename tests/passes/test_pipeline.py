"""Whole programs, and generated ones, after rewriting."""

import ast
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from mixpert_py.errors import SourceError
from mixpert_py.passes.pipeline import analyze, rewrite, rewrite_tree, same
from tests.every_check import EVERY_CHECK, examples


def require_safe(source: bytes) -> int:
    """Rewrite a program that Python accepts, as text and as a tree; returns how many products.

    A program that is nested too deeply is refused, and 0 returned.
    """
    try:
        products = [site for site in analyze(source, "m") if site.reason is None]
        result = rewrite(source, "m")
    except SourceError as error:
        if "nested" not in str(error):
            raise
        return 0
    assert (result == source) is (not products)
    assert rewrite(result, "m") == result
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert same(ast.parse(result), rewrite_tree(source, "m", "m.py"))
    return len(products)


def test_a_product_added_to_a_rewritten_file() -> None:
    once = rewrite(b"def f():\n    c = a @ b\n", "m")
    twice = rewrite(once + b"    return a @ b\n", "m")
    assert twice.startswith(once)
    assert twice.count(b"import mixpert_py") == 1
    assert twice.count(b"#0") == 1
    assert twice.count(b"#1") == 1


def test_module_names_that_no_id_can_hold() -> None:
    [site] = analyze(b"a @ b\n", "my script~1")
    assert site.id.startswith("my_script_1:<module>/matmul~")


def test_ids_in_an_encoding_without_the_letters() -> None:
    result = rewrite(b"# coding: latin-1\na @ b\n", "größe→")
    namespace = {"a": 1, "b": 2}
    assert sites_of(result, namespace)[0].startswith("größe→:")


def sites_of(source: bytes, namespace: dict[str, Any]) -> list[str]:
    seen: list[str] = []

    def record(*operands: object, site: str, **_: object) -> None:
        seen.append(site)

    fake = types.ModuleType("mixpert_py")
    vars(fake).update(matmul=record, dot=record, dot_method=record)
    run(compile(source, "m.py", "exec"), fake, namespace)
    return seen


def run(code: types.CodeType, runtime: types.ModuleType, namespace: dict[str, Any]) -> None:
    """Run a program for which `import mixpert_py` gives the runtime."""
    original = sys.modules["mixpert_py"]
    sys.modules["mixpert_py"] = runtime
    try:
        exec(code, namespace)
    finally:
        sys.modules["mixpert_py"] = original


def native_runtime(schemes: list[str | None] | None = None) -> types.ModuleType:
    """A runtime that does what the program did."""

    def note(scheme: str | None) -> None:
        if schemes is not None:
            schemes.append(scheme)

    def call(
        a: Any,
        b: Any,
        *out: Any,
        site: str,
        native: Callable[..., Any] | None = None,
        scheme: str | None = None,
        **rest: Any,
    ) -> Any:
        note(scheme)
        return a @ b if native is None else native(a, b, *out, **rest)

    def dot_method(
        x: Any, *arguments: Any, site: str, scheme: str | None = None, **rest: Any
    ) -> Any:
        note(scheme)
        return x.dot(*arguments, **rest)

    fake = types.ModuleType("mixpert_py")
    vars(fake).update(matmul=call, dot=call, dot_method=dot_method)
    return fake


PROGRAM = b'''"""A program with every spelling."""
import numpy as np
from numpy import matmul as mm

rng = np.random.default_rng(0)
a, b, c = rng.random((3, 8, 8))
out = np.empty((8, 8))

class Vector:
    def __init__(self, x):
        self.x = x
    def __matmul__(self, other):
        return "matmul", self.x, other.x
    def dot(self, other, *rest):
        return "dot", self.x, other, rest

def chain(*arrays):
    result = arrays[0]
    for array in arrays[1:]:
        result = (result   # so far
                  @ array)
    return result

results = [
    a @ b @ c, a @ (b @ c), mm(a, b, out=out), np.dot(a, b, out).copy(),
    a.dot(b).dot(np.dot(b, c)), chain(a, b, c), [x @ x for x in (a, b)],
    (lambda m, n=a @ b: m @ n)(c), a[0] @ b[0], a @ b[0], -a @ -b, (y := a) @ y,
    np.dot(2, a), np.dot([1, 2], [3, 4]), np.matmul(a[None], b),
    (a if a.sum() else b) @ c, 1 if 0 else(a)@b, {1: a @ b}[1].T @ c, 2 * a @ b + c,
]
objects = [Vector(1) @ Vector(2), Vector(1).dot(2), Vector(1).dot(2, 3)]
'''


@pytest.mark.parametrize("way", ["text", "tree"])
def test_a_program_computes_the_same(way: str) -> None:
    expected: dict[str, Any] = {}
    exec(compile(PROGRAM, "m.py", "exec"), expected)
    schemes: list[str | None] = []
    rewritten: ast.Module | bytes
    if way == "text":
        rewritten = rewrite(PROGRAM, "m", scheme="int8x6")
    else:
        rewritten = rewrite_tree(PROGRAM, "m", "m.py", scheme="int8x6")
    namespace: dict[str, Any] = {}
    run(compile(rewritten, "m.py", "exec"), native_runtime(schemes), namespace)
    for got, wanted in zip(namespace["results"], expected["results"], strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert namespace["objects"] == expected["objects"]
    assert namespace["__doc__"] == expected["__doc__"]
    assert len(schemes) == 30
    assert set(schemes) == {"int8x6"}


def test_other_operands_are_no_equal_tree() -> None:
    assert not same(ast.parse("a @ b"), ast.parse("b @ a"))


def test_every_node_of_the_tree_has_its_place() -> None:
    tree = rewrite_tree(PROGRAM, "m", "m.py", scheme="int8x6")
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt | ast.keyword):
            assert 1 <= node.lineno <= (node.end_lineno or 0) <= PROGRAM.count(b"\n")


def test_tracebacks_show_the_original_line() -> None:
    source = b'"""doc"""\nx = 1\n\ndef f():\n    return x @ x\n\nf()\n'
    code = compile(rewrite_tree(source, "m", "m.py"), "m.py", "exec")
    with pytest.raises(TypeError) as raised:
        run(code, native_runtime(), {})
    frames = [f for f in traceback.extract_tb(raised.value.__traceback__) if f.filename == "m.py"]
    last = frames[-1]
    assert (last.lineno, last.colno, last.end_colno) == (5, 11, 16)
    assert frames[0].lineno == 7


def test_what_the_parser_warns_of_is_told_at_the_file_s_line() -> None:
    with pytest.warns((SyntaxWarning, DeprecationWarning), match="invalid escape") as caught:
        rewrite_tree(b"x = a @ b\ny = '\\d'\n", "m", "place.py")
    assert [(w.filename, w.lineno) for w in caught] == [("place.py", 2)]


# Stretches of text between two tokens, as nobody writes them.
GAPS = st.sampled_from(
    ["", " ", "  ", "\t", " \t", "\x0c", "\n", " \n  ", " # @ ( , é\n", "\\\n ", "\n#.dot(\n\n "]
)
NAMES = st.sampled_from(["a", "b1", "é", "x.T", "x [0]", "f( a , b )", "'@,(#'", "1", "2.", "-a"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(NAMES)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))

    def gap() -> str:
        return draw(GAPS)

    match draw(st.integers(0, 6)):
        case 0:
            return f"{left}{gap()}@{gap()}{right}"
        case 1:
            return f"({gap()}{left}{gap()})"
        case 2:
            return f"({left}){gap()}.{gap()}dot{gap()}({gap()}{right}{gap()})"
        case 3:
            return f"np{gap()}.{gap()}dot{gap()}({left}{gap()},{gap()}{right}{gap()},{gap()})"
        case 4:
            return f"(mm){gap()}({gap()}{left},{right},out{gap()}={gap()}c{gap()})"
        case 5:
            return f"{left}{gap()}@{gap()}({gap()}{right}{gap()}){gap()}@{gap()}{left}"
        case _:
            return draw(NAMES)


FORMS = [
    "é  @=({}) ; x . y@=({}\n)#@=\né [ {} ]\t@=é",
    "z = ({})",
    "def g():\n  return({})@a",
    "def g(): return{}",
    "[0for i in({})@b]",
    "if a:\n\tz=[{},\n{}]\n\x0c",
    "class C:\n    z = ({}) ; y=a@b # a@b",
]
HEADS = [
    "import numpy as np\nfrom numpy import matmul as mm\n",
    "#!/bin/python\n# coding: {}\n'doc'\nfrom numpy import matmul as mm; import numpy as np\n",
    "'doc' ; import numpy as np;from numpy import matmul as mm\n",
    "\n# coding: {}\n\n'''doc\n'''; \\\n  \nimport numpy as np, os\nmm = np.matmul\n",
]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    encoding = draw(st.sampled_from(["utf-8", "latin-1", "cp1252"]))
    head = draw(st.sampled_from(HEADS))
    utf8 = encoding == "utf-8" or "coding" not in head
    body = []
    for form in draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=3)):
        expression = draw(expressions())
        body.append(form.replace("{}", expression))
    newlines = draw(st.sampled_from(["\n", "\r\n", "\r", "mixed"]))
    text = head.format(encoding) + "\n".join(body) + draw(st.sampled_from(["", "\n", "\n\n\t\n"]))
    if newlines == "mixed":
        lines = text.split("\n")
        ends = [draw(st.sampled_from(["\n", "\r\n", "\r"])) for _ in lines[1:]]
        text = "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))
    else:
        text = text.replace("\n", newlines)
    bom = b"\xef\xbb\xbf" if utf8 and draw(st.booleans()) else b""
    return bom + text.encode("utf-8" if utf8 else encoding)


# A failing program is small as it is, and shrinking one takes minutes.
GENERATED = settings(
    deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)


@st.deferred
def programs() -> st.SearchStrategy[str]:
    """Deferred: hypothesmith reads Python's grammar for seconds, where this file is collected."""
    import hypothesmith

    return hypothesmith.from_grammar()


HEAD = "import numpy as np\nfrom numpy import matmul as mm\n"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(GENERATED, max_examples=960 if EVERY_CHECK else 32)
@given(programs, st.sampled_from(FORMS), expressions(depth=2))
def test_products_in_a_generated_program(program: str, form: str, expression: str) -> None:
    """Before and after lines, comments and letters as the grammar allows them."""
    text = f"{program}\n{HEAD}{form.replace('{}', expression)}\n{program}"
    require_safe(accepted(text))


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=examples(150), deadline=None)
@given(files())
def test_products_in_any_spacing(source: bytes) -> None:
    require_safe(accepted(source))


def accepted(text: str | bytes) -> bytes:
    """The text as a file; the example counts only if Python accepts it."""
    try:
        source = text.encode() if isinstance(text, str) else text
        ast.parse(source)
    except (SyntaxError, ValueError):
        assume(False)
    return source
