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
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.dataflow.steps import Reader, Step, adds_to, made_by, owner_of
from mixpert_py.passes.scope import written_name

# Functions that measure an array, as a norm or a sum does. They change nothing.
SIZES = frozenset(
    {"abs", "absolute", "amax", "float", "max", "mean", "norm", "ravel", "sqrt", "square", "sum"}
)
BUILTINS = frozenset({"abs", "float", "max", "sum"})
LIBRARIES = frozenset({"numpy", "cupy", "scipy"})
MAX_EXPRESSIONS = 8  # for one variable


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of module-level variables that hold results of products.

    feeds: maps a variable to those that a statement computes from its last value. later: the same,
    without variables that only the next iteration of a loop computes. shown: variables that are
    printed, written, or passed to a call that is made for its effect, as far as the source tells.
    differences: maps a variable that is a difference, or the norm of one, to expressions for the
    size of its operands: `norm(b)` for `norm(b - a @ x)`. sums: variables that loops only add to,
    or subtract from. sites: maps a variable to the products whose results it may hold. attributes:
    shown attributes of variables, such as `model.coef_`.
    """

    feeds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    later: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()
    differences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sums: frozenset[str] = frozenset()
    sites: Mapping[str, frozenset[str]] = field(default_factory=dict)
    attributes: frozenset[str] = frozenset()


NOT_KNOWN = Uses()


def uses(tree: ast.Module, scopes: Scopes, sites: Mapping[str, frozenset[str]]) -> Uses:
    """The uses of the variables that hold these sites' results when the module ends."""
    if not sites:
        return NOT_KNOWN
    reader = Reader(tree, scopes, sites)
    steps = reader.steps
    feeds: dict[str, frozenset[str]] = defaultdict(frozenset)
    later: dict[str, frozenset[str]] = defaultdict(frozenset)
    place = {step: number for number, step in enumerate(steps)}
    last = {name: step for step in steps for name in step.writes}
    for name in last:
        for step in made_by(name, steps):
            for read in step.reads & last.keys() - {name}:
                made = last[read]
                if not step.branches <= made.branches:
                    continue  # it may not have been executed
                if place[made] < place[step]:
                    later[read] |= {name}
                if place[made] < place[step] or made.loops & step.loops:
                    feeds[read] |= {name}
    finder = _Finder(scopes, last, steps)
    sizes = {name: finder.of_variable(name)[:MAX_EXPRESSIONS] for name in last}
    return Uses(
        dict(feeds),
        dict(later),
        frozenset(reader.shown),
        {name: tuple(map(ast.unparse, several)) for name, several in sizes.items() if several},
        frozenset(name for name in last if _is_sum(name, steps)),
        sites,
        frozenset(reader.shown_attributes),
    )


def _is_sum(name: str, steps: Sequence[Step]) -> bool:
    """Whether loops change a variable only by adding to it."""
    repeated = [step for step in made_by(name, steps) if step.loops]
    return bool(repeated) and all(adds_to(step.value, name) for step in repeated)


class _Finder:
    """Finds expressions for the size of the operands of variables that are differences."""

    def __init__(self, scopes: Scopes, names: Collection[str], steps: Sequence[Step]) -> None:
        self._scopes, self._names, self._steps = scopes, names, steps
        self._pending: set[str] = set()

    def of_variable(self, name: str) -> list[ast.expr]:
        """The sizes of a variable's operands; none unless its last value is a difference.

        An update such as `r = r - alpha * ap` says nothing about the size of `r`; the value before
        it does.
        """
        if name in self._pending:
            return []
        self._pending.add(name)
        found: list[ast.expr] = []
        for step in made_by(name, self._steps):
            sizes = self._of(step.value, name) if step.value and step.writes == {name} else []
            if not sizes and not adds_to(step.value, name):
                found = []
                break
            found += sizes
        self._pending.discard(name)
        return found

    def _of(self, node: ast.expr, name: str) -> list[ast.expr]:
        """The expression with its difference replaced by each of the operands."""
        match node:
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return [side for side in (left, right) if self._is_operand(side, name)]
            case ast.Name(id=other) if other != name and other in self._names:
                return self.of_variable(other)
            case ast.BinOp(left=part, op=ast.Div() | ast.Mult() | ast.Pow(), right=right):
                measures = self._is_plain(right)
            case ast.UnaryOp(op=ast.USub(), operand=part):
                return self._of(part, name)
            case ast.Call(args=[part, *rest], keywords=named) if self._is_size(node.func):
                measures = all(map(_is_constant, [*rest, *(one.value for one in named)]))
            case ast.Call(func=ast.Attribute(value=part, attr=method), args=[], keywords=[]):
                measures = method in SIZES and not self._scopes.module.meanings(node.func)
            case _:
                return []
        sizes = self._of(part, name) if measures else []
        return [deepcopy(node, {id(part): size}) for size in sizes]

    def _is_operand(self, node: ast.expr, name: str) -> bool:
        """Return whether an expression is the name of a module's variable other than `name`."""
        if not isinstance(node, ast.Name) or node.id == name:
            return False
        return owner_of(self._scopes, node) is self._scopes.module

    def _is_plain(self, node: ast.expr) -> bool:
        """Return whether evaluating an expression a second time is cheap and changes nothing."""
        if isinstance(node, ast.Call) and self._is_size(node.func) and not node.keywords:
            return all(map(self._is_plain, node.args))
        return _is_constant(node) or self._is_operand(node, "")

    def _is_size(self, function: ast.expr) -> bool:
        """Return whether a function is one of SIZES, of an array library or built in."""
        word, module = written_name(function), self._scopes.module
        if names := module.meanings(function):
            return word in SIZES and all(one.partition(".")[0] in LIBRARIES for one in names)
        is_builtin = isinstance(function, ast.Name) and word in BUILTINS
        return is_builtin and module.owner(word) is None


def _is_constant(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)
