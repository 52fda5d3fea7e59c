"""The scopes of a module: every binding in them, and the places where nothing is rewritten."""

# ruff: noqa: N802, N815 — named after the nodes, as a visitor's methods are

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixpert_py.passes.scope import COMPREHENSIONS, Binding, Scope, function_words
from mixpert_py.passes.source import children

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Scopes:
    """The scopes of a module, and the expressions in which no runtime call can stand."""

    module: Scope
    scope_of: dict[ast.AST, Scope]  # in which a statement or an expression is evaluated
    opened_by: dict[ast.AST, Scope]  # the scope that a function, class or comprehension opens
    barred: dict[ast.AST, str]  # topmost expression -> why nothing in it is rewritten


def read(tree: ast.Module) -> Scopes:
    """Read the scopes of a module, and every binding in them."""
    reader = _Reader(tree)
    for statement in tree.body:
        reader.visit(statement)
    for scope, name, binding in reader.late:
        home = scope.owner(name) or reader.scopes.module
        home.bindings.setdefault(name, []).append(binding)
    return reader.scopes


class _Reader:
    """Follows the compiler's rules for which scope evaluates which part of a statement."""

    def __init__(self, tree: ast.Module) -> None:
        self.here = Scope(tree, None)
        self.top = frozenset(tree.body)
        self.scopes = Scopes(self.here, {}, {tree: self.here}, {})
        self.scope_of = self.scopes.scope_of
        self.late: list[tuple[Scope, str, Binding]] = []

    def visit(self, node: ast.AST) -> None:
        self.scope_of[node] = self.here
        method = METHODS.get(type(node))
        if method is not None:
            method(self, node)
            return
        for child in children(node):  # as `generic_visit` does, for most of all nodes
            self.visit(child)

    def generic_visit(self, node: ast.AST) -> None:
        for child in children(node):
            self.visit(child)

    def bind(self, name: str | None, binding: Binding) -> None:
        if name is None:
            return
        if name in self.here.declarations:
            self.late.append((self.here, name, binding))
            return
        self.here.bindings.setdefault(name, []).append(binding)

    def enter(self, node: ast.AST) -> Scope:
        outer = self.here
        self.here = self.scopes.opened_by[node] = Scope(node, outer)
        return outer

    def visit_all(self, nodes: list[ast.expr] | list[ast.stmt] | list[ast.expr | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def annotation(self, node: ast.expr | None) -> None:
        if node is not None:
            self.scopes.barred[node] = "inside an annotation"
            self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, Binding(None, line=node.lineno))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        missing = isinstance(node.value, ast.Constant) and node.value.value is None
        words = function_words(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scopes.scope_of[target] = self.here
                name = "" if missing else None
                self.bind(target.id, Binding(name, line=node.lineno, words=words))
            else:
                self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        self.annotation(node.annotation)
        if node.value:
            self.visit(node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.scopes.scope_of[node.target] = self.here
        inner = self.here  # a walrus in a comprehension binds in the function around it
        while isinstance(self.here.node, COMPREHENSIONS) and self.here.parent:
            self.here = self.here.parent
        self.bind(node.target.id, Binding(None, line=node.lineno))
        self.here = inner

    def certain(self, node: ast.stmt) -> bool:
        """Whether a statement runs exactly once, and in order, when the module is imported."""
        return node in self.top

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            target = alias.name if alias.asname else first
            self.bind(alias.asname or first, Binding(target, True, node.lineno, self.certain(node)))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.here.star_imports.append(Binding(module, line=node.lineno))
                continue
            target = f"{module}{'.' if node.module else ''}{alias.name}"
            binding = Binding(target, line=node.lineno, certain=self.certain(node))
            self.bind(alias.asname or alias.name, binding)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        for name in node.names:
            self.here.declarations[name] = type(node)

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.bind(node.name, Binding(None, line=node.lineno))
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self.bind(node.name, Binding(None, line=node.lineno))
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.bind(node.rest, Binding(None, line=node.lineno))
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.scopes.barred[node] = "inside an f-string"
        self.generic_visit(node)

    visit_TemplateStr = visit_JoinedStr

    def visit_TypeAlias(self, node: ast.AST) -> None:
        self.visit(getattr(node, "name"))  # noqa: B009 (the node exists from Python 3.12 on)
        self.type_parameters(node)
        self.annotation(getattr(node, "value"))  # noqa: B009

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bind(node.name, Binding(None, line=node.lineno, defined=True))
        self.visit_all(node.decorator_list)
        self.defaults(node.args)
        self.annotation(node.returns)
        for argument in _arguments(node.args):
            self.annotation(argument.annotation)
        outer = self.enter(node)
        self.type_parameters(node)
        self.parameters(node.args)
        self.visit_all(node.body)
        self.here = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.defaults(node.args)
        outer = self.enter(node)
        self.parameters(node.args)
        self.visit(node.body)
        self.here = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, Binding(None, line=node.lineno, defined=True))
        self.visit_all(node.decorator_list)
        self.visit_all(node.bases)
        self.visit_all([keyword.value for keyword in node.keywords])
        outer = self.enter(node)
        self.type_parameters(node)
        self.visit_all(node.body)
        self.here = outer

    def comprehension(self, node: Comprehension) -> None:
        # The outermost iterable is evaluated in the scope around the comprehension.
        self.visit(node.generators[0].iter)
        outer = self.enter(node)
        for index, generator in enumerate(node.generators):
            self.visit(generator.target)
            if index:
                self.visit(generator.iter)
            self.visit_all(generator.ifs)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self.here = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def defaults(self, arguments: ast.arguments) -> None:
        self.visit_all(arguments.defaults)
        self.visit_all(arguments.kw_defaults)

    def parameters(self, arguments: ast.arguments) -> None:
        for argument in _arguments(arguments):
            self.bind(argument.arg, Binding(None, line=argument.lineno))

    def type_parameters(self, node: ast.AST) -> None:
        for parameter in getattr(node, "type_params", []):
            self.bind(parameter.name, Binding(None, line=parameter.lineno))
            self.annotation(getattr(parameter, "bound", None))
            self.annotation(getattr(parameter, "default_value", None))


# Looked up once, and not by name for every node.
METHODS: dict[type[ast.AST], Callable[[_Reader, Any], None]] = {
    getattr(ast, name.removeprefix("visit_")): method
    for name, method in vars(_Reader).items()
    if name.startswith("visit_") and hasattr(ast, name.removeprefix("visit_"))
}


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter of a function, in the order of its signature."""
    single = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *single]
