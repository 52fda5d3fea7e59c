"""Finds the matrix products in a graph of PyTorch's compiler, and replaces them.

The graphs are those that Inductor begins with: what the program wrote (`x @ w`, `nn.Linear`,
`einsum`, attention) has become `aten.mm`, `addmm`, `bmm` and `baddbmm`, in the forward
and in the backward pass. A product is replaced by a call of another operator that takes the same
two operands; a sum that PyTorch adds in the same call becomes an operation of its own, which
Inductor fuses with what follows. The graph is given as it is: nothing here imports PyTorch.
"""

import ast
import hashlib
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

SITE = "mixpert"  # the key of what rewritten code notes of its products in a graph
OPERATORS: Mapping[str, int] = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # name → first operand
PROGRAM = ("__main__", "__mp_main__")  # the modules whose site ids begin with their file's name
DIGITS = 6  # of the hash in an id
FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+), in (?P<function>.+)')

Node = Any  # torch.fx.Node


@dataclass(frozen=True, slots=True)
class GraphProduct:
    """A product of a graph.

    node: the call in the graph. name: "mm" or "bmm". site: the id of its call site. settings: the
    scheme, block and backend from rewritten code. is_backward: whether the backward pass makes it;
    `site` is then that of the product in the forward pass. path, line, expression: the place of the
    call site.
    """

    node: Node
    name: str
    site: str
    settings: Mapping[str, Any]
    is_backward: bool
    path: str
    line: int
    expression: str

    @property
    def operands(self) -> tuple[Node, Node]:
        """Both operands at this time: other products may have been replaced."""
        first = OPERATORS[operator_of(self.node) or ""]
        a, b = self.node.args[first : first + 2]
        return a, b


def products(graph: Any, own_folders: tuple[str, ...]) -> Iterator[GraphProduct]:
    """The products of a graph, in order.

    own_folders: folders of PyTorch's and the runtime's files, which are not the program's.
    """
    for node in list(graph.nodes):
        operator = operator_of(node)
        if operator is None:
            continue
        place = _place(node.meta.get("stack_trace") or "", own_folders)
        noted = (node.meta.get("custom") or {}).get(SITE)
        yield GraphProduct(
            node=node,
            name=operator.removeprefix("add").removeprefix("badd"),
            site=noted["site"] if noted else _site(operator, place),
            settings={key: it for key, it in (noted or {}).items() if key != "site"},
            is_backward=bool(node.meta.get("autograd_backward")),
            path=place.path,
            line=place.line,
            expression=place.text,
        )


def operator_of(node: Node) -> str | None:
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
    like: Node,
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any] | None = None,
) -> Node:
    """A new node with the shape, type and source of another."""
    made = graph.call_function(target, arguments, named or {})
    made.meta.update(like.meta)
    return made


class _Place(NamedTuple):
    """The innermost line of the program in a stack trace, and its part that makes a product.

    text: of the line. column: the beginning of the expression in it. inner: the innermost line of
    PyTorch's own code that it calls.
    """

    path: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    column: int = 0
    inner: str = ""


def _place(trace: str, own_folders: tuple[str, ...]) -> _Place:
    """The place in a stack trace; an empty one without a trace."""
    lines = trace.splitlines()
    found = _Place()
    for at, text in enumerate(lines):
        frame = FRAME.fullmatch(text)
        if frame is None:
            continue
        code, carets = (*lines[at + 1 : at + 3], "", "")[:2]
        if frame["path"].startswith(own_folders):
            found = found._replace(inner=code.strip())
            continue
        is_underlined = bool(carets.strip()) and not carets.strip().strip("^~")
        indent = len(code) - len(code.lstrip())
        column = len(carets) - len(carets.lstrip()) - indent if is_underlined else 0
        path, line, function = frame["path"], int(frame["line"]), frame["function"]
        found = _Place(path, line, function, code.strip(), column)
    return found


def _site(operator: str, place: _Place) -> str:
    """The id of a call site that is not in rewritten code: the same at each compilation."""
    text = f"{place.text}|{place.column}|{place.inner}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    function = _qualified(place.path, place.line, place.function)
    return f"{_module(place.path)}:{function}/{operator}~{digest}#0"


def _module(path: str) -> str:
    """A file's module as in site ids: for a program, the name of its file."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == path and name not in PROGRAM:
            return name
    return Path(path).stem or "-"


@lru_cache(maxsize=4096)
def _qualified(path: str, line: int, function: str) -> str:
    """The qualified name of the function that encloses a line: `Net.forward`."""
    names: list[str] = []
    for outer in _scopes(path):
        if outer[0] <= line <= outer[1]:
            names.append(outer[2])
    return ".".join(names) if names and names[-1] == function else function or "<module>"


@lru_cache(maxsize=64)
def _scopes(path: str) -> tuple[tuple[int, int, str], ...]:
    """The first line, last line and name of each class and function of a file, outer ones first."""
    if not os.path.isfile(path):
        return ()
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return ()
    kinds = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    found = [
        (node.lineno, node.end_lineno or node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]
    return tuple(sorted(found, key=lambda scope: (scope[0], -scope[1])))
