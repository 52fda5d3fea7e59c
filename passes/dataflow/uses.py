"""The uses of a module's variables: intermediate variables, shown variables, differences.

By default a tuning compares what a program ends with. These facts tell its results from
intermediate variables and from residuals, whose size says little because they tend to zero. They
concern the module's own statements, in order; in doubt a variable counts as a result.

A difference, or the norm of one, may tend to zero, as `r = b - a @ x` does. Whether it has is seen
when the program has ended, by the size of `b`. For `norm(b - a @ x) / norm(b)` that size is
`norm(b) / norm(b)`.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeGuard

from mixpert_py.passes.dataflow.facts import APPENDING
from mixpert_py.passes.scopes import Scopes, written_name

# Functions that measure an array, as a norm or a sum does. They change nothing.
SIZES = frozenset(
    {"abs", "absolute", "amax", "float", "max", "mean", "norm", "ravel", "sqrt", "square", "sum"}
)
BUILTINS = frozenset({"abs", "float", "max", "sum"})
LIBRARIES = frozenset({"numpy", "cupy", "scipy"})
MAX_EXPRESSIONS = 8  # for one variable
Around = tuple[ast.AST, ...]  # the loops around a statement, and a marker of each branch
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTION_OR_CLASS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NO_NAMES: frozenset[str] = frozenset()
# Functions and methods that show or store their arguments.
WRITING = frozenset({"print", "save", "savez", "savetxt", "savez_compressed", "write", "dump"})


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of module-level variables that hold results of products.

    feeds: maps a variable to those that a statement computes from its last value. later: the same,
    without variables that only the next iteration of a loop computes. shown: variables that are
    printed, written, or passed to a call that is made for its effect, as far as the source tells.
    differences: maps a variable that is a difference, or the norm of one, to expressions for the
    size of its operands: `norm(b)` for `norm(b - a @ x)`. sums: variables that loops only add to,
    or subtract from. sites: maps a variable to the products whose results it may hold.
    """

    feeds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    later: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()
    differences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sums: frozenset[str] = frozenset()
    sites: Mapping[str, frozenset[str]] = field(default_factory=dict)


NOT_KNOWN = Uses()


def uses(tree: ast.Module, scopes: Scopes, sites: Mapping[str, frozenset[str]]) -> Uses:
    """The uses of the variables that hold these sites' results when the module ends."""
    if not sites:
        return NOT_KNOWN
    reader = _StepReader(tree, scopes, sites)
    feeds: dict[str, frozenset[str]] = defaultdict(frozenset)
    later: dict[str, frozenset[str]] = defaultdict(frozenset)
    place = {step: number for number, step in enumerate(reader.steps)}
    last = {name: step for step in reader.steps for name in step.writes}
    for name in last:
        for step in reader.made_by(name):
            for read in step.reads & last.keys() - {name}:
                made = last[read]
                if not step.branches <= made.branches:
                    continue  # it may not have been executed
                if place[made] < place[step]:
                    later[read] |= {name}
                if place[made] < place[step] or made.loops & step.loops:
                    feeds[read] |= {name}
    sizes = {name: map(ast.unparse, reader.sizes(name)[:MAX_EXPRESSIONS]) for name in last}
    return Uses(
        dict(feeds),
        dict(later),
        frozenset(reader.shown),
        {name: several for name, found in sizes.items() if (several := tuple(found))},
        frozenset(filter(reader.is_sum, last)),
        sites,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
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


def _adds_to(node: ast.expr | None, name: str) -> bool:
    """Whether an expression adds something to a variable, or subtracts something from it."""
    match node:
        case ast.BinOp(left=ast.Name(id=left), op=ast.Sub() | ast.Add()):
            return left == name
    return False


class _StepReader:
    """Reads the steps of a module, in order, and what it shows.

    names: the variables that matter. shown: those that are printed, written, or passed to a call
    whose result is discarded.
    """

    def __init__(self, tree: ast.Module, scopes: Scopes, names: Collection[str]) -> None:
        self._scopes, self._names = scopes, frozenset(names)
        self.steps: list[_Step] = []
        self.shown: set[str] = set()
        # Functions of the module that print or write something, as far as their calls' names say.
        self._writers = {
            node.name
            for node in scopes.opened_by
            if isinstance(node, FUNCTION_OR_CLASS[:2])
            and any(written_name(call.func) in WRITING for call in _calls(node))
        }
        self._block(tree.body)
        # Variables that `:=` assigns, or that functions and classes read at any time, count as
        # shown, which hides nothing.
        rare = (ast.NamedExpr, *FUNCTION_OR_CLASS, ast.Lambda)
        for node in ast.walk(tree):
            if isinstance(node, rare):
                self.shown |= self._read(node)

    def made_by(self, name: str) -> Iterator[_Step]:
        """The steps that made the last value of a variable, the last step first."""
        for step in reversed(self.steps):
            if name in step.writes:
                yield step
                if step.value and not step.branches and not step.writes & step.reads:
                    return  # nothing of the old value is left

    def is_sum(self, name: str) -> bool:
        """Whether loops change a variable only by adding to it."""
        repeated = [step for step in self.made_by(name) if step.loops]
        return bool(repeated) and all(_adds_to(step.value, name) for step in repeated)

    def sizes(self, name: str, pending: frozenset[str] = NO_NAMES) -> list[ast.expr]:
        """Expressions for the sizes of a difference's operands; none unless a variable is one.

        An update such as `r = r - alpha * ap` says nothing about the size of `r`; the value before
        it does.
        """
        found: list[ast.expr] = []
        for step in self.made_by(name):
            value = step.value if step.writes == {name} else None
            sizes = self._sizes(value, pending | {name}) if value else []
            if not sizes and not _adds_to(step.value, name):
                return []
            found += sizes
        return found

    def _sizes(self, value: ast.expr, pending: frozenset[str]) -> list[ast.expr]:
        """The expression with its difference replaced by each of the operands."""
        for part in ast.walk(value):
            sizes: list[ast.expr] = []
            match part:
                case ast.BinOp(left=left, op=ast.Sub(), right=right):
                    sizes = [side for side in (left, right) if self._is_variable(side, pending)]
                case ast.Name(id=other) if other in self._names and other not in pending:
                    sizes = self.sizes(other, pending)
            if sizes and self._measures(value, part):
                return [deepcopy(value, {id(part): size}) for size in sizes]
        return []

    def _measures(self, node: ast.expr, part: ast.AST) -> bool:
        """Whether an expression measures a part of it, and is cheap and changes nothing."""
        match node:
            case _ if node is part or isinstance(node, ast.Constant):
                return True
            case ast.Name():
                return self._is_variable(node)
            case ast.UnaryOp(operand=inner):
                return self._measures(inner, part)
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult() | ast.Pow(), right=right):
                return self._measures(left, part) and self._measures(right, part)
            case ast.Call(func=function, args=[*several], keywords=named):
                word, module = written_name(function), self._scopes.module
                if names := module.meanings(function):
                    is_known = all(name.partition(".")[0] in LIBRARIES for name in names)
                elif is_known := isinstance(function, ast.Attribute):
                    several.append(function.value)  # the object of a method
                else:
                    is_known = word in BUILTINS and module.owner(word) is None
                several += [keyword.value for keyword in named]
                return is_known and word in SIZES and all(self._measures(x, part) for x in several)
        return False

    def _is_variable(self, node: ast.AST, others: frozenset[str] = NO_NAMES) -> TypeGuard[ast.Name]:
        """Whether a node names a variable of the module. others: names that do not count."""
        if not isinstance(node, ast.Name) or node.id in others:
            return False
        scope = self._scopes.scope_of.get(node)
        return scope is not None and scope.owner(node.id) is self._scopes.module

    def _block(self, body: Iterable[ast.stmt], around: Around = ()) -> None:
        for node in body:
            match node:
                case (
                    ast.Assign(value=value)
                    | ast.AnnAssign(value=ast.expr() as value)
                    | ast.AugAssign(value=value)
                ):
                    # Arguments of a function that prints or writes may be what it shows.
                    self._show(x for x in _calls(value) if written_name(x.func) in self._writers)
                    if isinstance(node, ast.AugAssign):
                        value = ast.BinOp(node.target, node.op, value)
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        # The owner of an element or an attribute keeps all others.
                        is_whole = isinstance(target, ast.Name | ast.Tuple | ast.List)
                        parts = [value] if is_whole else [value, target]
                        self._step([target], parts, value if is_whole else None, around)
                case ast.Expr(value=ast.Call() as call):
                    filled = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
                    if isinstance(call.func, ast.Attribute) and call.func.attr in APPENDING:
                        filled.append(call.func.value)
                    if filled:
                        self._step(filled, [call], None, around)
                    else:
                        self._show([call])
                case ast.For() | ast.AsyncFor() | ast.While():
                    within = (*around, node)
                    if not isinstance(node, ast.While):
                        self._step([node.target], [node.iter], None, within)
                    self._block([*node.body, *node.orelse], within)
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):  # true in a tuning
                    self._block(node.body, around)
                case ast.If():
                    for branch in (node.body, node.orelse):
                        self._block(branch, (*around, ast.Pass()))
                case ast.With() | ast.AsyncWith():
                    self._show(node.items)
                    self._block(node.body, around)
                case _ if not isinstance(node, FUNCTION_OR_CLASS):  # a rare one
                    self._show([node])

    def _step(
        self, targets: list[ast.expr], parts: list[ast.expr], value: ast.expr | None, around: Around
    ) -> None:
        loops = frozenset(node for node in around if isinstance(node, LOOPS))
        writes = NO_NAMES.union(*map(self._targets, targets))
        reads = NO_NAMES.union(*map(self._read, parts))
        self.steps.append(_Step(writes, reads, value, loops, frozenset(around) - loops))

    def _show(self, nodes: Iterable[ast.AST]) -> None:
        self.shown = self.shown.union(*map(self._read, nodes))

    def _read(self, node: ast.AST) -> frozenset[str]:
        """The variables of the module that stand anywhere in a piece of code."""
        return self._names & {part.id for part in ast.walk(node) if self._is_variable(part)}

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
