"""Excerpt: what of a file a slow second reader must see, with every line at its number."""

import ast
import bisect
import re
from collections.abc import Iterator, Sequence

from mixpert_py.passes.source import NEWLINE, Source

INDENT = re.compile(r"[ \t\f]*")


def excerpt(source: Source, tree: ast.Module, products: Sequence[tuple[int, int]]) -> str:
    """The text with `def name(): pass` for every function that no product lies in.

    products: their spans. What remains are the products, the functions around
    them, and all that binds a name in the module or in a class. Every newline becomes `\\n`: lines
    and columns of what remains are those of the file.
    """
    starts = sorted(start for start, _ in products)
    pieces = []
    done = 0
    for function in _outermost_functions(tree):
        first = min(node.lineno for node in (function, *function.decorator_list))
        start, end = source.line_starts[first - 1], source.span(function)[1]
        # A product in the function's lines, be it in a decorator or a default value, is shown.
        if bisect.bisect_left(starts, start) < bisect.bisect_left(starts, end):
            continue
        if any(isinstance(node, ast.Global) for node in ast.walk(function)):
            continue  # it binds names of the module
        indent = INDENT.match(source.text, start)
        assert indent is not None
        lines = (function.end_lineno or first) - first
        stub = f"{indent[0]}def {function.name}(): pass" + "\n" * lines
        pieces += [source.text[done:start], stub]
        done = end
    pieces.append(source.text[done:])
    return "".join(NEWLINE.sub("\n", piece) for piece in pieces)


def _outermost_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module and of its classes, but none inside another, in order."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif not isinstance(node, ast.expr):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))
