"""Finds the matrix products in a graph of PyTorch's compiler, and replaces them.

The graphs are those that Inductor begins with: what the program wrote (`x @ w`, `nn.Linear`,
`einsum`, attention) has become `aten.mm`, `addmm`, `bmm` and `baddbmm`, in the forward
and in the backward pass. A product is replaced by a call of another operator that takes the same
two operands; a sum that PyTorch adds in the same call becomes an operation of its own, which
Inductor fuses with what follows. The graph is given as it is: nothing here imports PyTorch.
"""

import ast
import linecache
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from mixpert_py.plan import torch_site

SITE = "mixpert"  # the key of what rewritten code notes of its products in a graph
OPERATORS: Mapping[str, int] = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # name → first operand
KINDS: Mapping[str, str] = {"mm": "mm", "addmm": "mm", "bmm": "bmm", "baddbmm": "bmm"}
# Expressions that Python gives a function of their own.
SCOPES: dict[type[ast.AST], str] = {ast.GeneratorExp: "<genexpr>"}
if sys.version_info < (3, 12):
    SCOPES |= {ast.ListComp: "<listcomp>", ast.SetComp: "<setcomp>", ast.DictComp: "<dictcomp>"}
FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+), in (?P<function>.+)')

FxNode = Any  # torch.fx.Node


@dataclass(frozen=True, slots=True)
class GraphProduct:
    """A product of a graph.

    node: the call in the graph. name: "mm" or "bmm". settings: the scheme and backend from
    rewritten code. is_backward: whether the backward pass makes it; `site` is then that of the
    forward pass.
    """

    node: FxNode
    name: str
    site: str
    settings: Mapping[str, Any]
    is_backward: bool
    path: str
    line: int
    expression: str

    @property
    def operands(self) -> tuple[FxNode, FxNode]:
        """Both operands at this time: other products may have been replaced."""
        first = OPERATORS[operator_of(self.node) or ""]
        a, b = self.node.args[first : first + 2]
        return a, b


def products(graph: Any, own_folders: tuple[str, ...], caller: str) -> Iterator[GraphProduct]:
    """The products of a graph, in order.

    own_folders: folders of PyTorch's and the runtime's files, which are not the program's. caller:
    the stack trace of the call that compiles the graph, for a graph of PyTorch's own code alone.
    """
    for node in list(graph.nodes):
        operator = operator_of(node)
        if operator is None:
            continue
        place = _place(caller + (node.meta.get("stack_trace") or ""), own_folders)
        noted = (node.meta.get("custom") or {}).get(SITE)
        yield GraphProduct(
            node=node,
            name=KINDS[operator],
            site=noted["site"] if noted else _site(operator, place),
            settings={key: it for key, it in (noted or {}).items() if key != "site"},
            is_backward=bool(node.meta.get("autograd_backward")),
            path=place.path,
            line=place.line,
            expression=place.text,
        )


def operator_of(node: FxNode) -> str | None:
    """The name of the product that a node makes, a key of OPERATORS; None for any other node."""
    if node.op != "call_function":
        return None
    packet, _, overload = str(node.target).removeprefix("aten.").partition(".")
    return packet if packet in OPERATORS and overload == "default" else None


def replace(graph: Any, product: GraphProduct, operator: Callable[..., Any], *more: Any) -> None:
    """Make `operator(a, b, *more)` compute a product; a sum in its node is added afterwards."""
    node, aten = product.node, sys.modules["torch"].ops.aten
    with graph.inserting_before(node):
        made = _call(graph, node, operator, (*product.operands, *more))
        if OPERATORS[operator_of(node) or ""]:
            addend = node.args[0]
            alpha, beta = (node.kwargs.get(name, 1) for name in ("alpha", "beta"))
            if alpha != 1:
                made = _call(graph, node, aten.mul.Scalar, (made, alpha))
            if beta != 0:  # then the addend is not read, as PyTorch does not
                scale = {} if beta == 1 else {"alpha": beta}
                made = _call(graph, node, aten.add.Tensor, (made, addend), scale)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _call(
    graph: Any,
    like: FxNode,
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any] | None = None,
) -> FxNode:
    """A new node with the shape, type and source of another."""
    made = graph.call_function(target, arguments, named or {})
    made.meta.update(like.meta)
    return made


class _CallPlace(NamedTuple):
    """The innermost line of the program in a stack trace.

    column: where the expression begins that makes the product, after the line's indentation; text:
    of the line from there on. Where the expression ends is not known.
    """

    path: str = ""
    line: int = 0
    function: str = "<module>"
    column: int = 0
    text: str = ""


def _place(trace: str, own_folders: tuple[str, ...]) -> _CallPlace:
    """The place in a stack trace; an empty one without a trace."""
    lines = trace.splitlines()
    for at, text in reversed([*enumerate(lines)]):
        frame = FRAME.fullmatch(text)
        if frame is None or frame["path"].startswith(own_folders):
            continue
        code, carets = (*lines[at + 1 : at + 3], "", "")[:2]
        indent, start = (len(it) - len(it.lstrip()) for it in (code, carets))
        if not carets.strip() or carets.strip().strip("^~"):
            start = indent
        shown = " ".join(code[start:].split())
        return _CallPlace(
            frame["path"], int(frame["line"]), frame["function"], start - indent, shown
        )
    return _CallPlace()


def _site(operator: str, place: _CallPlace) -> str:
    """The id of a call site that no rewritten code names: the same whenever it is compiled, and
    that which `runtime.products.torch_sites` finds where the same line is not compiled.
    """
    found = _expressions(place.path).get((place.line, place.column))
    function, text, number = found or (place.function, place.text, 0)
    return torch_site(place.path, function, operator, text, number)


@lru_cache(maxsize=64)
def _expressions(path: str) -> Mapping[tuple[int, int], tuple[str, str, int]]:
    """Line and column of each expression of a file, as a `_CallPlace` has them → the qualified name
    of its function, its text, and how many of the same text come before it there.
    """
    lines = linecache.getlines(path) if os.path.isfile(path) else []
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return {}
    found: dict[tuple[int, int], tuple[str, ast.AST, str]] = {}
    pending: list[tuple[ast.AST, str, ast.AST]] = [(tree, "", tree)]
    while pending:
        node, names, scope = pending.pop()
        if isinstance(node, ast.expr):
            line = lines[node.lineno - 1].encode()
            before, after = line[: node.col_offset], line[node.col_offset :]
            column = len(before.decode(errors="replace").lstrip())
            text = " ".join(after.decode(errors="replace").split())
            found[node.lineno, column] = names or "<module>", scope, text
        own, children = _own_scope(node)
        for child in ast.iter_child_nodes(node):
            is_inside = child in children
            inside = f"{names}.{own}".lstrip("."), node
            pending.append((child, *(inside if is_inside else (names, scope))))
    counts: Counter[tuple[ast.AST, str]] = Counter()
    numbered = {}
    for key, (names, scope, text) in sorted(found.items(), key=lambda item: item[0]):
        numbered[key] = names, text, counts[scope, text]
        counts[scope, text] += 1
    return numbered


def _own_scope(node: ast.AST) -> tuple[str, Collection[ast.AST]]:
    """The name of the scope that a node makes, and those of its children that are in it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name, node.body
    if isinstance(node, ast.Lambda):
        return "<lambda>", [node.body]
    name = SCOPES.get(type(node), "")
    return name, [*ast.iter_child_nodes(node)] if name else ()
