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
from dataclasses import dataclass, field

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.dataflow.steps import Step, adds_to, made_by, owner_of, read_steps
from mixpert_py.passes.scope import FUNCTIONS, written_name

# Functions that measure an array, as a norm or a sum does. They change nothing.
SIZES = frozenset(
    {"abs", "absolute", "amax", "float", "max", "mean", "norm", "ravel", "sqrt", "square", "sum"}
)
BUILTINS = frozenset({"abs", "float", "max", "sum"})
LIBRARIES = frozenset({"numpy", "cupy", "scipy"})
MOST = 8  # expressions for one variable


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
    steps, shown, attributes = read_steps(tree, scopes, frozenset(sites))
    feeds: dict[str, set[str]] = defaultdict(set)
    later: dict[str, set[str]] = defaultdict(set)
    place = {step: number for number, step in enumerate(steps)}
    last = {name: step for step in steps for name in step.writes}
    for name in last:
        for step in made_by(name, steps):
            for read in step.reads & last.keys() - {name}:
                made = last[read]
                if not step.branches <= made.branches:
                    continue  # it may not have been executed
                if place[made] < place[step]:
                    later[read].add(name)
                if place[made] < place[step] or made.loops & step.loops:
                    feeds[read].add(name)
    return Uses(
        {name: frozenset(to) for name, to in feeds.items()},
        {name: frozenset(to) for name, to in later.items()},
        shown | _shared(tree, scopes, sites),
        sizes_of_operands(scopes, last, steps),
        frozenset(name for name in last if _is_sum(name, steps)),
        sites,
        attributes,
    )


def _is_sum(name: str, steps: Sequence[Step]) -> bool:
    """Whether loops change a variable only by adding to it."""
    repeated = [step for step in made_by(name, steps) if step.loops]
    return bool(repeated) and all(adds_to(step.value, name) for step in repeated)


def _shared(tree: ast.Module, scopes: Scopes, names: Collection[str]) -> frozenset[str]:
    """Variables of the module that its functions and classes read or assign, at any time."""
    return frozenset(
        part.id
        for node in ast.walk(tree)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef))
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and part.id in names
        and owner_of(scopes, part) is scopes.module
    )


def sizes_of_operands(
    scopes: Scopes, names: Collection[str], steps: Sequence[Step]
) -> Mapping[str, tuple[str, ...]]:
    """Maps those variables that are differences to expressions for their size."""
    finder = _Finder(scopes, names, steps)
    found = {name: finder.of_variable(name) for name in names}
    return {
        name: tuple(ast.unparse(size) for size in sizes[:MOST])
        for name, sizes in found.items()
        if sizes
    }


class _Finder:
    def __init__(self, scopes: Scopes, names: Collection[str], steps: Sequence[Step]) -> None:
        self._scopes = scopes
        self._names = names
        self._steps = steps
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
            if step.value is None or step.writes != {name}:
                found = []
                break
            sizes = self._of(step.value, name)
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
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult() | ast.Pow() as op, right=right):
                if not self._is_plain(right):
                    return []
                return [ast.BinOp(size, op, right) for size in self._of(left, name)]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._of(inner, name)
            case ast.Name(id=other) if other != name and other in self._names:
                return self.of_variable(other)
            case ast.Call(args=arguments, keywords=keywords) if _is_size(node.func, self._scopes):
                rest = arguments[1:]
                if not all(map(_is_constant, [*rest, *(k.value for k in keywords)])):
                    return []
                sizes = [size for first in arguments[:1] for size in self._of(first, name)]
                return [ast.Call(node.func, [size, *rest], keywords) for size in sizes]
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[], keywords=[]):
                if method not in SIZES or self._scopes.module.meanings(node.func):
                    return []
                sizes = self._of(inner, name)
                return [ast.Call(ast.Attribute(x, method, ast.Load()), [], []) for x in sizes]
        return []

    def _is_operand(self, node: ast.expr, name: str) -> bool:
        """Return whether an expression is the name of a module's variable other than `name`."""
        return (
            isinstance(node, ast.Name)
            and node.id != name
            and owner_of(self._scopes, node) is self._scopes.module
        )

    def _is_plain(self, node: ast.expr) -> bool:
        """Return whether evaluating an expression a second time is cheap and changes nothing."""
        if isinstance(node, ast.Call) and _is_size(node.func, self._scopes) and not node.keywords:
            return all(map(self._is_plain, node.args))
        return _is_constant(node) or self._is_operand(node, "")


def _is_constant(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def _is_size(function: ast.expr, scopes: Scopes) -> bool:
    """Whether a function is one of SIZES, of an array library or built in."""
    if written_name(function) not in SIZES:
        return False
    names = scopes.module.meanings(function)
    if names:
        return all(name.partition(".")[0] in LIBRARIES for name in names)
    is_name = isinstance(function, ast.Name) and function.id in BUILTINS
    return is_name and scopes.module.owner(written_name(function)) is None
