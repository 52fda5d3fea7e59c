"""The module's own statements as steps: the variables that each assigns and reads."""

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.dataflow.effects import APPENDING
from mixpert_py.passes.scope import Scope, written_name

LOOPS = (ast.For, ast.AsyncFor, ast.While)
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

    @property
    def is_update(self) -> bool:
        """Whether the old value of a variable may stay a part of its new value."""
        return self.value is None or bool(self.branches or self.writes & self.reads)


def made_by(name: str, steps: Sequence[Step]) -> Iterator[Step]:
    """The steps that made the last value of a variable, the last step first."""
    for step in reversed(steps):
        if name in step.writes:
            yield step
            if not step.is_update:
                return


def adds_to(node: ast.expr | None, name: str) -> bool:
    """Whether an expression adds something to a variable, or subtracts something from it."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub | ast.Add)
        and isinstance(node.left, ast.Name)
        and node.left.id == name
    )


def owner_of(scopes: Scopes, node: ast.Name) -> Scope | None:
    """The scope that a name in the source belongs to; None for a builtin."""
    scope = scopes.scope_of.get(node)
    return None if scope is None else scope.owner(node.id)


def read_steps(
    tree: ast.Module, scopes: Scopes, names: Collection[str]
) -> tuple[list[Step], frozenset[str], frozenset[str]]:
    """The steps of a module, in order, the variables that it shows, and their shown attributes.

    A variable is shown if it is printed, written, or passed to a call whose result is discarded; an
    attribute is, say, `model.coef_`. names: the variables that matter.
    """
    reader = _Reader(scopes, names)
    reader.block(tree.body, ())
    return reader.steps, frozenset(reader.shown), frozenset(reader.shown_attributes)


class _Reader:
    def __init__(self, scopes: Scopes, names: Collection[str]) -> None:
        self._scopes = scopes
        self._names = names
        # Functions of the module that print or write something.
        self._writers = {
            node.name
            for node in scopes.opened_by
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _writes(node)
        }
        self.steps: list[Step] = []
        self.shown: set[str] = set()
        self.shown_attributes: set[str] = set()

    def block(self, body: Iterable[ast.stmt], around: tuple[ast.AST, ...]) -> None:
        for statement in body:
            self._statement(statement, around)

    def _statement(self, node: ast.stmt, around: tuple[ast.AST, ...]) -> None:
        """Read a statement. around: the loops around it, and a marker of each branch around it."""
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assignment(targets, value, around)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assignment([target], value, around)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                whole = ast.BinOp(ast.Name(name, ast.Load()), op, value)
                self._step(self._targets(target), [target, value], whole, around)
            case ast.AugAssign(target=target, value=value):
                self._step(self._targets(target), [target, value], None, around)
            case ast.Expr(value=ast.Call() as call):
                self._call(call, around)
            case ast.For() | ast.AsyncFor():
                self._step(self._targets(node.target), [node.iter], None, (*around, node))
                self.block([*node.body, *node.orelse], (*around, node))
            case ast.While():
                self._show([node.test] if _assigns(node.test) else [])
                self.block([*node.body, *node.orelse], (*around, node))
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):  # always so in a tuning
                self.block(node.body, around)
            case ast.If():
                self._show([node.test] if _assigns(node.test) else [])
                self.block(node.body, (*around, ast.Pass()))
                self.block(node.orelse, (*around, ast.Pass()))
            case ast.With() | ast.AsyncWith():
                self._show(node.items)
                self.block(node.body, around)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass  # `uses` takes what these read for shown
            case _:  # a rare one: what it reads or assigns counts as shown, which hides nothing
                self._show([node])

    def _assignment(
        self, targets: Sequence[ast.expr], value: ast.expr, around: tuple[ast.AST, ...]
    ) -> None:
        if _assigns(value):
            self._show([value])
        # Arguments of a function that prints or writes may be what it shows.
        calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
        self._show(call for call in calls if written_name(call.func) in self._writers)
        for target in targets:
            if isinstance(target, ast.Name | ast.Tuple | ast.List):
                self._step(self._targets(target), [value], value, around)
            else:  # an element or an attribute, whose owner keeps all others
                self._step(self._targets(target), [value, target], None, around)

    def _call(self, call: ast.Call, around: tuple[ast.AST, ...]) -> None:
        """Read a call whose result is discarded: it fills an array or a container, or shows
        values.
        """
        filled = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
        if isinstance(call.func, ast.Attribute) and call.func.attr in APPENDING:
            filled.append(call.func.value)
        if filled:
            self._step(NO_NAMES.union(*map(self._targets, filled)), [call], None, around)
        else:
            self._show([call])

    def _step(
        self,
        writes: frozenset[str],
        parts: Sequence[ast.expr],
        value: ast.expr | None,
        around: tuple[ast.AST, ...],
    ) -> None:
        loops = frozenset(node for node in around if isinstance(node, LOOPS))
        reads = NO_NAMES.union(*map(self._read, parts))
        self.steps.append(Step(writes, reads, value, loops, frozenset(around) - loops))

    def _show(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.shown |= self._read(node)
            self.shown_attributes |= self._attributes(node)

    def _attributes(self, node: ast.AST) -> frozenset[str]:
        """The attributes of these variables that code reads without calling them."""
        called = {part.func for part in ast.walk(node) if isinstance(part, ast.Call)}
        return frozenset(
            f"{part.value.id}.{part.attr}"
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and part not in called
            and self._read(part.value)
        )

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


def _assigns(node: ast.expr) -> bool:
    """Whether an expression assigns a variable by `:=`."""
    return any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))


def _writes(function: ast.AST) -> bool:
    """Whether a function prints or writes something, as far as the names of its calls say."""
    calls = (part for part in ast.walk(function) if isinstance(part, ast.Call))
    return any(written_name(call.func) in WRITING for call in calls)
