"""The scopes of a module: every binding in them, and the meaning of a name at a place.

A name means what Python's rules and the imports that bind it say.
"""

# ruff: noqa: N802, N815 — named after the nodes, as a visitor's methods are

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from mixpert_py.errors import SourceError
from mixpert_py.passes.source import children

# LibCST recurses several Python frames for every level of nesting, and `ast` accepts up to a
# thousand levels; code that a person wrote stays below 100.
MAX_DEPTH = 250
# LibCST nests the operands of `and` and `or`, and the loops of a comprehension, which `ast` has in
# a row: from some thousand on it ends the process.
MAX_PARTS = 1000
ARRAY_MODULES = frozenset({"numpy", "cupy", "dask.array"})
# Decorators whose function is compiled from its source or bytecode: a runtime call would not be.
COMPILERS = frozenset(
    {"jit", "njit", "vectorize", "guvectorize", "cfunc", "generated_jit", "stencil", "jitclass"}
    | {"rawkernel", "register_jitable", "overload", "overload_method", "overload_attribute"}
    | {"intrinsic"}
)
# Libraries whose `jit` runs the function as Python, to see what it computes.
TRACERS = frozenset({"jax", "flax", "equinox", "haiku", "objax", "brainpy", "brainstate"})
# Decorators whose last word means something else in other modules.
COMPILING = frozenset(
    {"torch.jit.script", "taichi.kernel", "taichi.func", "warp.kernel", "warp.func"}
    | {"dace.program", "dace.method"}
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
OPERATIONS = frozenset({ast.BinOp, ast.Call, ast.AugAssign})
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def written_name(node: ast.expr) -> str:
    """The last part of a dotted name; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def function_words(value: ast.expr) -> tuple[str, ...]:
    """The words of functions that a value may be: `np.dot`, or given to `getattr` or `partial`."""
    match value:
        case ast.Attribute(attr=word):
            return (word,)
        case ast.IfExp(body=one, orelse=other):
            return tuple(word for it in (one, other) for word in function_words(it))
        case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str() as word)]):
            return (word,)
        case ast.Call(func=function, args=[first, *_]) if written_name(function) == "partial":
            return (written_name(first),)
    return ()


@dataclass(frozen=True, slots=True)
class Binding:
    """How a name gets its value. target: an import's qualified name. words: of what is assigned."""

    target: str | None
    module: bool = False  # bound by `import x`, so certainly a module
    line: int = 0
    certain: bool = False  # a statement of the module itself, in no `try` or `if`
    defined: bool = False  # by a `def` or a `class` of the file
    words: tuple[str, ...] = ()


@dataclass(eq=False)
class Scope:
    """A namespace of the program: module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: "Scope | None"
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    declarations: dict[str, type[ast.stmt]] = field(default_factory=dict)  # global, nonlocal
    star_imports: list[Binding] = field(default_factory=list)
    meaning_of: dict[str, frozenset[str] | None] = field(default_factory=dict)  # a cache

    @cached_property
    def home(self) -> "Scope":
        """The scope of the function or module whose code contains this scope."""
        return self if not self.parent or isinstance(self.node, FUNCTIONS) else self.parent.home

    @property
    def qualname(self) -> str:
        """The `__qualname__` as in Python; a comprehension has that of the function around it."""
        if self.parent is None:
            return "<module>"
        if isinstance(self.node, COMPREHENSIONS):
            return self.parent.qualname
        name = getattr(self.node, "name", "<lambda>")
        around = self.parent
        while isinstance(around.node, COMPREHENSIONS) and around.parent:
            around = around.parent
        if around.parent is None or self.parent.declarations.get(name) is ast.Global:
            return str(name)
        inner = ".<locals>." if isinstance(around.node, FUNCTIONS) else "."
        return f"{around.qualname}{inner}{name}"

    def chain(self) -> Iterator["Scope"]:
        """The scopes in which a name used here may be bound; classes around it are not searched."""
        return (x for x in self.around() if x is self or not isinstance(x.node, ast.ClassDef))

    def owner(self, name: str) -> "Scope | None":
        """The scope that owns a name used here; None for a builtin or a star import."""
        declared = self.declarations.get(name)
        for scope in self.chain():
            if declared is ast.Global and scope.parent is not None:
                continue
            if declared is ast.Nonlocal and (scope is self or scope.parent is None):
                continue
            if name in scope.bindings:
                return scope
            if scope is not self and scope.declarations.get(name) is ast.Global:
                declared = ast.Global
        return None

    def is_local(self, name: str) -> bool:
        """Whether the name is a variable of a function, lambda or comprehension."""
        owner = self.owner(name)
        return owner is not None and isinstance(owner.node, (*FUNCTIONS, *COMPREHENSIONS))

    def meanings(self, expr: ast.expr) -> frozenset[str] | None:
        """All possible meanings of a dotted name, such as {"numpy.dot"}; None if they are not
        certain.

        `x = None` beside an import is the idiom for a missing package and changes nothing.
        """
        if isinstance(expr, ast.Attribute):
            base = self.meanings(expr.value)
            return None if base is None else frozenset(f"{name}.{expr.attr}" for name in base)
        if not isinstance(expr, ast.Name):
            return None
        if expr.id not in self.meaning_of:
            owner = self.owner(expr.id)
            self.meaning_of[expr.id] = None if owner is None else owner._meaning(expr.id)
        return self.meaning_of[expr.id]

    def _meaning(self, name: str) -> frozenset[str] | None:
        """All possible meanings of a variable of this scope; None if they are not certain."""
        bindings = self.bindings[name]
        latest = max((binding.line for binding in bindings if binding.certain), default=0)
        if any(
            star.line > latest and star.target not in ARRAY_MODULES for star in self.star_imports
        ):
            return None
        targets = {binding.target for binding in bindings}
        return None if None in targets or targets == {""} else frozenset(t for t in targets if t)

    def has_star(self) -> bool:
        """Whether a star import may have bound a name used here."""
        return any(scope.star_imports for scope in self.chain())

    def imports(self, library: str) -> bool:
        """Whether a name that may be used here is imported from a library."""
        return any(
            str(binding.target).partition(".")[0] == library
            for scope in self.chain()
            for bindings in scope.bindings.values()
            for binding in bindings
        )

    def root_bindings(self, expr: ast.expr) -> list[Binding]:
        """Every binding, including hidden ones, of the first name of a dotted name."""
        while isinstance(expr, ast.Attribute):
            expr = expr.value
        if not isinstance(expr, ast.Name):
            return []
        return [binding for scope in self.chain() for binding in scope.bindings.get(expr.id, ())]

    def is_defined(self, name: str) -> bool:
        """Whether every binding of a name used here is a `def` or a `class` of the file."""
        owner = self.owner(name)
        return owner is not None and all(b.defined for b in owner.bindings[name])

    def assigned_words(self, name: str) -> list[str]:
        """The `function_words` of values assigned to a name used here, as in `f = np.dot`."""
        owner = self.owner(name)
        bindings = [] if owner is None else owner.bindings[name]
        return [word for binding in bindings for word in binding.words]

    def is_module(self, expr: ast.expr) -> bool:
        """Whether the first name of a dotted name is, or hides, an imported module."""
        return any(b.module or b.target in ARRAY_MODULES for b in self.root_bindings(expr))

    def around(self) -> Iterator["Scope"]:
        """This scope and those around it, from inside to outside."""
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.parent

    def is_compiled(self) -> bool:
        """Whether a decorator of numba or a similar compiler covers this scope or one around it."""
        return any(
            scope.parent is not None and scope.parent.names_compiler(decorator)
            for scope in self.around()
            for decorator in getattr(scope.node, "decorator_list", ())
        )

    def names_compiler(self, expr: ast.expr) -> bool:
        """Whether an expression names a compiler's decorator, calls it, or is a partial of it."""
        if isinstance(expr, ast.Call):
            is_partial = written_name(expr.func) == "partial" and expr.args
            expr = expr.args[0] if is_partial else expr.func
        known = self.meanings(expr)
        if known is not None:
            return any(map(_compiles, known))
        if isinstance(expr, ast.Attribute):
            return expr.attr in COMPILERS
        if not isinstance(expr, ast.Name):
            return False
        targets = [binding.target for binding in self.root_bindings(expr) if binding.target]
        if targets and not any(map(_may_compile, targets)):
            return False
        return any(map(_compiles, (expr.id, *targets)))


def _compiles(name: str) -> bool:
    """Whether a qualified name is a compiler's decorator, such as numba.njit."""
    return name in COMPILING or (name.rpartition(".")[2] in COMPILERS and _may_compile(name))


def _may_compile(name: str) -> bool:
    """Whether a qualified name may be a compiler's: false for libraries known to have none."""
    return name.partition(".")[0] not in ARRAY_MODULES | TRACERS


class Operation(NamedTuple):
    """A node of a kind that products are, with its scope.

    barred: why no runtime call can stand there, or None. string: the outermost f-string around it.
    """

    node: ast.BinOp | ast.Call | ast.AugAssign
    scope: Scope
    barred: str | None
    string: ast.expr | None


@dataclass(frozen=True)
class Scopes:
    """The scopes of a module, and its operations in the order of the source."""

    module: Scope
    scope_of: dict[ast.AST, Scope]  # in which a statement or an expression is evaluated
    opened_by: dict[ast.AST, Scope]  # the scope that a function, class or comprehension opens
    operations: list[Operation]


def read_scopes(tree: ast.Module, name: str = "") -> Scopes:
    """A module's scopes and bindings. Raises SourceError beyond MAX_DEPTH or MAX_PARTS."""
    reader = _Reader(tree, name)
    reader.visit_all(tree.body)
    for scope, name, binding in reader.late:
        home = scope.owner(name) or reader.scopes.module
        home.bindings.setdefault(name, []).append(binding)
    return reader.scopes


class _Reader:
    """Follows the compiler's rules for which scope evaluates which part of a statement."""

    def __init__(self, tree: ast.Module, name: str) -> None:
        self.name = name
        self.depth = 1
        self.here = Scope(tree, None)
        self.top = frozenset(tree.body)  # run exactly once, in order, when the module is imported
        self.scopes = Scopes(self.here, {}, {tree: self.here}, [])
        self.scope_of = self.scopes.scope_of
        self.late: list[tuple[Scope, str, Binding]] = []
        self.barred: str | None = None
        self.string: ast.expr | None = None

    def visit(self, node: ast.AST) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SourceError(
                f"{self.name}: nested more than {MAX_DEPTH} levels; the file is skipped"
            )
        self.scope_of[node] = self.here
        kind = type(node)
        if kind in OPERATIONS:
            operation: Any = node
            found = Operation(operation, self.here, self.barred, self.string)
            self.scopes.operations.append(found)
        method = METHODS.get(kind)
        if method is not None:
            method(self, node)
        else:
            for child in children(node):  # as `generic_visit` does, for most of all nodes
                self.visit(child)
        self.depth -= 1

    def generic_visit(self, node: ast.AST) -> None:
        self.visit_all(children(node))

    def require_few(self, parts: int) -> None:
        if parts > MAX_PARTS:
            raise SourceError(f"{self.name}: more than {MAX_PARTS} in a row; the file is skipped")

    def bind(self, name: str | None, binding: Binding | int) -> None:
        """Bind a name, if there is one. binding: a line stands for an unknown value set there."""
        if name is None:
            return
        if isinstance(binding, int):
            binding = Binding(None, line=binding)
        if name in self.here.declarations:
            self.late.append((self.here, name, binding))
        else:
            self.here.bindings.setdefault(name, []).append(binding)

    def enter(self, node: ast.AST) -> Scope:
        outer = self.here
        self.here = self.scopes.opened_by[node] = Scope(node, outer)
        return outer

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def annotation(self, node: ast.expr | None) -> None:
        outer, self.barred = self.barred, self.barred or "inside an annotation"
        self.visit_all([node])
        self.barred = outer

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, node.lineno)

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
        self.bind(node.target.id, node.lineno)
        self.here = inner

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.require_few(len(node.values))
        self.visit_all(node.values)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            target = alias.name if alias.asname else first
            self.bind(alias.asname or first, Binding(target, True, node.lineno, node in self.top))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.here.star_imports.append(Binding(module, line=node.lineno))
                continue
            target = f"{module}{'.' if node.module else ''}{alias.name}"
            binding = Binding(target, line=node.lineno, certain=node in self.top)
            self.bind(alias.asname or alias.name, binding)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        for name in node.names:
            self.here.declarations[name] = type(node)

    visit_Nonlocal = visit_Global

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar | ast.ExceptHandler) -> None:
        self.bind(node.name, node.lineno)
        self.generic_visit(node)

    visit_MatchStar = visit_ExceptHandler = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.bind(node.rest, node.lineno)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        outer = self.barred, self.string
        self.barred, self.string = self.barred or "inside an f-string", self.string or node
        self.generic_visit(node)
        self.barred, self.string = outer

    visit_TemplateStr = visit_JoinedStr

    def visit_TypeAlias(self, node: ast.AST) -> None:
        self.visit(getattr(node, "name"))  # noqa: B009 (the node exists from Python 3.12 on)
        self.type_parameters(node)
        self.annotation(getattr(node, "value"))  # noqa: B009

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bind(node.name, Binding(None, line=node.lineno, defined=True))
        self.visit_all([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        self.annotation(node.returns)
        parameters = _arguments(node.args)
        for parameter in parameters:
            self.annotation(parameter.annotation)
        self.inside(node, node.body, parameters)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all([*node.args.defaults, *node.args.kw_defaults])
        self.inside(node, [node.body], _arguments(node.args))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, Binding(None, line=node.lineno, defined=True))
        keywords = [keyword.value for keyword in node.keywords]
        self.visit_all([*node.decorator_list, *node.bases, *keywords])
        self.inside(node, node.body)

    def inside(
        self, node: ast.AST, body: Iterable[ast.AST], parameters: Iterable[ast.arg] = ()
    ) -> None:
        """Read the body of a function, lambda or class in its own scope."""
        outer = self.enter(node)
        self.type_parameters(node)
        for parameter in parameters:
            self.bind(parameter.arg, parameter.lineno)
        self.visit_all(body)
        self.here = outer

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        self.require_few(len(node.generators))
        # The outermost iterable is evaluated in the scope around the comprehension.
        self.visit(node.generators[0].iter)
        outer = self.enter(node)
        for index, generator in enumerate(node.generators):
            self.visit(generator.target)
            if index:
                self.visit(generator.iter)
            self.visit_all(generator.ifs)
        if isinstance(node, ast.DictComp):
            self.visit_all([node.key, node.value])
        else:
            self.visit(node.elt)
        self.here = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def type_parameters(self, node: ast.AST) -> None:
        for parameter in getattr(node, "type_params", []):
            self.bind(parameter.name, parameter.lineno)
            self.annotation(getattr(parameter, "bound", None))
            self.annotation(getattr(parameter, "default_value", None))


# Looked up once, and not by name for every node.
METHODS: dict[type[ast.AST], Callable[[_Reader, Any], None]] = {
    getattr(ast, name.removeprefix("visit_")): method
    for name, method in vars(_Reader).items()
    if name.startswith("visit_") and hasattr(ast, name.removeprefix("visit_"))
}


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    single = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *single]
