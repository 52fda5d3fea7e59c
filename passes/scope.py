"""The meaning of a name at a place, by Python's rules and the imports that bind it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

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

# Functions that return np.matrix objects, whose `*` is a matrix product.
MATRICES = frozenset({"matrix", "asmatrix", "bmat"})

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def written_name(node: ast.expr) -> str:
    """The last part of a dotted name; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def function_words(value: ast.expr) -> tuple[str, ...]:
    """The words of functions that a value may be or hold.

    These are names of attributes, as in `np.dot`, names given to `getattr` and `partial`, and names
    in a dict, list or tuple. A call of MATRICES has a word of its own.
    """
    parts: list[ast.expr] = []
    if isinstance(value, ast.Attribute):
        return (value.attr,)
    if isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
    elif isinstance(value, ast.Dict):
        parts = value.values
    elif isinstance(value, ast.List | ast.Tuple):
        parts = value.elts
    elif isinstance(value, ast.Call):
        function = written_name(value.func)
        if function in MATRICES:
            return (function,)
        if function == "partial" and value.args:
            return (written_name(value.args[0]),)
        match value:
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str() as word)]):
                return (word,)
    return tuple(
        word
        for part in parts
        if isinstance(part, ast.Attribute | ast.Call)
        for word in function_words(part)
    )


@dataclass(frozen=True, slots=True)
class Binding:
    """A way in which a name gets its value. target: the qualified name of an import, else None.
    words: the `function_words` of an assigned value.
    """

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
        if self.parent is None or isinstance(self.node, FUNCTIONS):
            return self
        return self.parent.home

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
        scope: Scope | None = self
        while scope:
            if scope is self or not isinstance(scope.node, ast.ClassDef):
                yield scope
            scope = scope.parent

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
        owner = self.owner(expr.id)
        if owner is None:
            return None
        if expr.id not in owner.meaning_of:
            owner.meaning_of[expr.id] = owner._meaning(expr.id)
        return owner.meaning_of[expr.id]

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

    def is_compiled(self) -> bool:
        """Whether a decorator of numba or a similar compiler covers this scope or one around it."""
        if self.parent is None:
            return False
        decorators = getattr(self.node, "decorator_list", [])
        return any(map(self.parent.names_compiler, decorators)) or self.parent.is_compiled()

    def names_compiler(self, expr: ast.expr) -> bool:
        """Whether an expression is a compiler's decorator, such as numba's: its name, a call of it,
        or a functools.partial of it.
        """
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
