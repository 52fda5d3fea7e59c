"""A rewritten program means the same, as text and as tree, and takes the plan's schemes."""

import ast
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.passes.pipeline import analyze, rewrite, rewrite_tree, same


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
    """The site ids that running a program hands to the runtime."""
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
