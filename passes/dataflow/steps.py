"""The module's own statements as steps: the variables that each assigns and reads."""

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.dataflow.effects import APPENDING
from mixpert_py.passes.scope import Scope, written_name

Around = tuple[ast.AST, ...]  # the loops around a statement, and a marker of each branch
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTION_OR_CLASS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NO_NAMES: frozenset[str] = frozenset()
# Functions and methods that show or store their arguments.
WRITING = frozenset({"print", "save", "savez", "savetxt", "savez_compressed", "write", "dump"})


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A statement that assigns or changes variables of the module.

    writes, reads: these variables. value: the assigned expression, if it becomes all of a variable,
    or is unpacked into several; `a += b` has the value `a + b`. loops, branches: the loops and
    conditional branches around it.
    """

    writes: frozenset[str]
    reads: frozenset[str]
    value: ast.expr | None
    loops: frozenset[ast.AST]
    branches: frozenset[ast.AST]


def made_by(name: str, steps: Sequence[Step]) -> Iterator[Step]:
    """The steps that made the last value of a variable, the last step first."""
    for step in reversed(steps):
        if name in step.writes:
            yield step
            if step.value and not step.branches and not step.writes & step.reads:
                return  # nothing of the old value is left


def adds_to(node: ast.expr | None, name: str) -> bool:
    """Whether an expression adds something to a variable, or subtracts something from it."""
    match node:
        case ast.BinOp(left=ast.Name(id=left), op=ast.Sub() | ast.Add()):
            return left == name
    return False


def owner_of(scopes: Scopes, node: ast.Name) -> Scope | None:
    """The scope that a name in the source belongs to; None for a builtin."""
    scope = scopes.scope_of.get(node)
    return None if scope is None else scope.owner(node.id)


class Reader:
    """Reads the steps of a module, in order, and what it shows.

    names: the variables that matter. shown: those that are printed, written, or passed to a call
    whose result is discarded. shown_attributes: attributes that are, such as `model.coef_`.
    """

    def __init__(self, tree: ast.Module, scopes: Scopes, names: Collection[str]) -> None:
        self._scopes, self._names = scopes, names
        self.steps: list[Step] = []
        self.shown: set[str] = set()
        self.shown_attributes: set[str] = set()
        # Functions of the module that print or write something, as far as their calls' names say.
        self._writers = {
            node.name
            for node in scopes.opened_by
            if isinstance(node, FUNCTION_OR_CLASS[:2])
            and any(written_name(call.func) in WRITING for call in _calls(node))
        }
        self._block(tree.body, ())
        # Variables that `:=` assigns, or that functions and classes read at any time, count as
        # shown, which hides nothing.
        rare = (ast.NamedExpr, *FUNCTION_OR_CLASS, ast.Lambda)
        for node in ast.walk(tree):
            if isinstance(node, rare):
                self.shown |= self._read(node)

    def _block(self, body: Iterable[ast.stmt], around: Around) -> None:
        for statement in body:
            self._statement(statement, around)

    def _statement(self, node: ast.stmt, around: Around) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assignment(targets, value, around)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assignment([target], value, around)
            case ast.AugAssign(target=target, op=op, value=value):
                is_name = isinstance(target, ast.Name)
                whole = ast.BinOp(target, op, value) if is_name else None
                self._step([target], [target, value], whole, around)
            case ast.Expr(value=ast.Call() as call):
                filled = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
                if isinstance(call.func, ast.Attribute) and call.func.attr in APPENDING:
                    filled.append(call.func.value)
                if filled:
                    self._step(filled, [call], None, around)
                else:
                    self._show([call])
            case ast.For() | ast.AsyncFor():
                self._step([node.target], [node.iter], None, (*around, node))
                self._block([*node.body, *node.orelse], (*around, node))
            case ast.While():
                self._block([*node.body, *node.orelse], (*around, node))
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):  # always so in a tuning
                self._block(node.body, around)
            case ast.If():
                for body in (node.body, node.orelse):
                    self._block(body, (*around, ast.Pass()))
            case ast.With() | ast.AsyncWith():
                self._show(node.items)
                self._block(node.body, around)
            case _ if not isinstance(node, FUNCTION_OR_CLASS):  # a rare one
                self._show([node])

    def _assignment(self, targets: Sequence[ast.expr], value: ast.expr, around: Around) -> None:
        # Arguments of a function that prints or writes may be what it shows.
        self._show(call for call in _calls(value) if written_name(call.func) in self._writers)
        for target in targets:
            if isinstance(target, ast.Name | ast.Tuple | ast.List):
                self._step([target], [value], value, around)
            else:  # an element or an attribute, whose owner keeps all others
                self._step([target], [value, target], None, around)

    def _step(
        self,
        targets: Sequence[ast.expr],
        parts: Sequence[ast.expr],
        value: ast.expr | None,
        around: Around,
    ) -> None:
        loops = frozenset(node for node in around if isinstance(node, LOOPS))
        writes = NO_NAMES.union(*map(self._targets, targets))
        reads = NO_NAMES.union(*map(self._read, parts))
        self.steps.append(Step(writes, reads, value, loops, frozenset(around) - loops))

    def _show(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.shown |= self._read(node)
            called = {call.func for call in _calls(node)}
            for part in ast.walk(node):
                match part:
                    case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                        if part not in called and self._read(part.value):
                            self.shown_attributes.add(f"{name}.{attribute}")

    def _read(self, node: ast.AST) -> frozenset[str]:
        """The variables of the module that stand anywhere in a piece of code."""
        return frozenset(
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name)
            and part.id in self._names
            and owner_of(self._scopes, part) is self._scopes.module
        )

    def _targets(self, target: ast.expr) -> frozenset[str]:
        """The variables that an assignment to a target sets or changes."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return NO_NAMES.union(*map(self._targets, parts))
            case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Starred(value=inner):
                return self._targets(inner)
            case ast.Name(id=name) if name in self._names:
                return frozenset({name})
        return NO_NAMES


def _calls(node: ast.AST) -> list[ast.Call]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)]
