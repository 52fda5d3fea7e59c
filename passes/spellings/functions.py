"""Products that are calls of a library's functions: one table, one matcher and one edit.

`np.dot(a, b)` becomes `_mixpert.dot(a, b, site="…", native=np.dot)`. Only the function's name is
replaced, and the runtime's keyword arguments are added; the runtime calls `native` for everything
that it does not multiply itself. A new function is a row of FUNCTIONS.
"""

import ast
from dataclasses import dataclass

from mixpert_py.passes.scopes import ARRAY_MODULES, Scope, written_name
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings import Edit, Match, Parts, after_arguments

TOO_FEW = "too few operands"


@dataclass(frozen=True)
class Parameters:
    """The arguments with which a function or a method is rewritten.

    required: must be given, by position (or, with `by_keyword`, by name). optional: may follow, by
    position or by name. options: only by name. any_number: up to `most` more positional arguments,
    also starred ones, may follow the required ones. as_list: all required ones except the first may
    stand in a list.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    any_number: bool = False
    most: float = float("inf")
    by_keyword: bool = False
    as_list: bool = False

    def argument(self, call: ast.Call, name: str) -> ast.expr | None:
        """The argument for a parameter; None if the call does not give it."""
        named = (keyword.value for keyword in call.keywords if keyword.arg == name)
        positional = (*self.required, *self.optional)
        at = positional.index(name) if name in positional else len(call.args)
        return call.args[at] if at < len(call.args) else next(named, None)

    def refusal(self, call: ast.Call) -> str | None:
        """The reason to leave a product with these arguments alone; None if it is rewritten."""
        keywords = [keyword.arg for keyword in call.keywords]
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        if starred and not self.any_number:
            return "starred arguments"
        if None in keywords:
            return "unpacked keyword arguments"
        positional = (*self.required, *self.optional)
        named = {*self.optional, *self.options, *(self.required if self.by_keyword else ())}
        unknown = next((word for word in keywords if word not in named), None)
        given = [*positional[: len(call.args)], *keywords]
        known = given if self.by_keyword else given[: len(call.args)]
        listed = call.args[1] if self.as_list and len(call.args) == 2 else None
        least = len(self.required) - 1
        if not unknown and isinstance(listed, ast.List | ast.Tuple) and len(listed.elts) >= least:
            return None
        if not starred and not set(self.required) <= set(known):
            return TOO_FEW if unknown is None else "operands given by keyword"
        count = len(call.args) + len(keywords)
        if self.optional == ("out",) and count > len(positional):
            return "more arguments than operands and out"
        if unknown is not None:
            return f"argument {unknown}= is left native"
        if self.any_number:
            return "too many arguments" if len(call.args) > self.most else None
        if len(call.args) > len(positional) or len(set(given)) < len(given):
            return "too many arguments"
        if any(isinstance(argument, ast.GeneratorExp) for argument in call.args):
            return "a generator as an operand"
        return None


@dataclass(frozen=True)
class Function:
    """A row of the table: functions that one function of the runtime stands for; a Spelling.

    names: their qualified names; none: methods of whatever object. RUNTIME: the runtime's function;
    LEFT_NATIVE: they are listed only. output: the parameter that the result is written or added to,
    which is no operand. by_word: list every call of this name, from any module; not for
    ambiguous names such as `inner`. by_identity: the source does not tell the module of
    functions of these names; the runtime's function decides by the function that it gets.
    """

    names: frozenset[str]
    RUNTIME: str
    parameters: Parameters
    output: str = "out"
    by_word: bool = False
    by_identity: bool = False

    @property
    def words(self) -> frozenset[str]:
        return frozenset(_word(name) for name in self.names)

    def refusal(self, call: ast.Call) -> str | None:
        reason = self.parameters.refusal(call)
        if reason is not None:
            return reason
        if self.by_identity and any(isinstance(part, ast.NamedExpr) for part in ast.walk(call)):
            return "an assignment among the arguments"  # of the variable itself, perhaps
        if call.func.lineno != call.func.end_lineno:
            return "the function's name spans several lines"
        return None

    def parts(self, node: ast.AST) -> Parts:
        assert isinstance(node, ast.Call)
        output = self.parameters.argument(node, self.output)
        function, receiver = node.func, None
        if not self.names and isinstance(function, ast.Attribute):  # a method
            receiver = function.value
        return Parts(list(node.args), list(node.keywords), output, function, receiver)

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """Replace the function's name, and add the runtime's keyword arguments."""
        assert isinstance(node, ast.Call)
        start, end = source.span(node.func)
        last = after_arguments(node, source)
        return [Edit(start, end, call, True, depth), Edit(last, last, keywords, False, depth)]


def _arrays(*functions: str) -> frozenset[str]:
    """The qualified names of functions that every array module has."""
    return frozenset(f"{module}.{name}" for module in ARRAY_MODULES for name in functions)


def _word(name: str) -> str:
    return name.rpartition(".")[2]


LEFT_NATIVE = ""
MATRIX_POWER = frozenset({"numpy.linalg.matrix_power"})
PAIR = Parameters(("a", "b"))
PAIR_OF_TENSORS = Parameters(("input", "other"), by_keyword=True)
PAIR_AND_OUT = Parameters(("a", "b"), ("out",))
EINSUM = Parameters(  # three arguments are subscripts and two operands
    ("subscripts", "a", "b"),
    options=frozenset({"optimize", "out", "dtype", "order", "casting"}),
    any_number=True,
)
BLAS = Parameters(
    ("alpha", "a", "b"), ("beta", "c", "trans_a", "trans_b", "overwrite_c"), by_keyword=True
)
OUT, OF_SUM = frozenset({"out"}), frozenset({"beta", "alpha"})
ARRAYS_AND_OUT = Parameters(("arrays",), options=OUT)
# Products that are listed only, of PyTorch, JAX and opt_einsum, and those of BLAS.
_TENSORS = Function(
    frozenset(f"torch.{x}" for x in ("addbmm", "mv", "addmv", "vdot", "matrix_power"))
    | {f"torch.{x}" for x in ("outer", "ger", "kron", "cov", "corrcoef")}
    | {f"torch.linalg.{x}" for x in ("vecdot", "matrix_power")}
    | {f"torch.nn.functional.{x}" for x in ("bilinear", "scaled_dot_product_attention")}
    | {"jax.lax.dot", "jax.lax.dot_general", "opt_einsum.contract"}
    | {"operator.imatmul", "operator.__imatmul__"},
    LEFT_NATIVE,
    PAIR,
)
_BLAS_WORDS = (
    {f"{x}{word}" for x in "sdcz" for word in ("gemv", "trmv", "symm", "syrk", "syr2k", "trmm")}
    | {f"{x}{word}" for x in "sd" for word in ("dot", "symv")}
    | {f"{x}{word}" for x in "cz" for word in ("dotu", "dotc", "hemv", "hemm", "herk", "her2k")}
)
_BLAS = Function(
    frozenset(f"scipy.linalg.blas.{word}" for word in _BLAS_WORDS), LEFT_NATIVE, PAIR, by_word=True
)

# Found by what it is given.
_FOLD = Parameters(("function", "operands"), ("initial",))
REDUCE = Function(frozenset({"functools.reduce"}), "reduce_product", _FOLD)
_REDUCED_WORDS = frozenset({"dot", "matmul"})
_REDUCED = _arrays(*_REDUCED_WORDS) | {"operator.matmul"}

FUNCTIONS: tuple[Function, ...] = (
    Function(
        frozenset({"matmul", "dot", "inner", "tensordot"}),
        "xp_product",
        Parameters(("a", "b"), options=frozenset({"out", "axes"}), any_number=True, most=3),
        by_identity=True,
    ),
    Function(frozenset({"einsum"}), "xp_product", EINSUM, by_identity=True),
    Function(frozenset({"multi_dot"}), "xp_product", ARRAYS_AND_OUT, by_identity=True),
    Function(frozenset({"matrix_power"}), "xp_product", PAIR, by_identity=True),
    Function(_arrays("matmul"), "matmul", PAIR_AND_OUT, by_word=True),
    Function(frozenset({"operator.matmul", "operator.__matmul__"}), "matmul", PAIR),
    Function(_arrays("dot"), "dot", PAIR_AND_OUT, by_word=True),
    Function(_arrays("inner"), "inner", PAIR),
    Function(_arrays("linalg.multi_dot"), "multi_dot", Parameters(("arrays",))),
    Function(MATRIX_POWER, "matrix_power", PAIR),
    Function(_arrays("tensordot"), "tensordot", Parameters(("a", "b"), ("axes",))),
    Function(_arrays("einsum"), "einsum", EINSUM),
    Function(frozenset({"torch.matmul", "torch.mm", "torch.bmm"}), "torch_matmul", PAIR),
    *(
        Function(frozenset(names.split()), "torch_call", parameters)
        for names, parameters in {
            "torch.nn.functional.linear": Parameters(
                ("input", "weight"), ("bias",), by_keyword=True
            ),
            "torch.addmm": Parameters(("input", "mat1", "mat2"), options=OF_SUM, by_keyword=True),
            "torch.baddbmm": Parameters(
                ("input", "batch1", "batch2"), options=OF_SUM, by_keyword=True
            ),
            "torch.einsum": Parameters(("equation", "a", "b"), any_number=True, as_list=True),
            "torch.tensordot": Parameters(("a", "b"), ("dims",), by_keyword=True),
            "torch.inner torch.linalg.matmul": PAIR_OF_TENSORS,
            "torch.linalg.multi_dot": Parameters(("tensors",)),
            "torch.chain_matmul": Parameters(("a", "b"), any_number=True),
        }.items()
    ),
    *(  # rows of their own, because a call of one or the other is left native
        Function(frozenset({f"scipy.linalg.blas.{x}gemm"}), "blas_gemm", BLAS, "c", by_word=True)
        for x in "sdcz"
    ),
    Function(
        frozenset({"einops.einsum"}), "einops_einsum", Parameters(("a", "pattern"), any_number=True)
    ),
    Function(_arrays("vdot"), LEFT_NATIVE, PAIR, by_word=True),
    Function(
        _arrays("cov", "corrcoef", "kron", "outer", "vecdot", "matvec", "vecmat"), LEFT_NATIVE, PAIR
    ),
    _TENSORS,
    _BLAS,
    Function(
        _arrays("linalg.matmul", "linalg.tensordot", "linalg.vecdot", "linalg.matrix_power")
        - MATRIX_POWER,
        LEFT_NATIVE,
        PAIR,
    ),
)
# Methods of tensors that return a view or a copy, and change nothing.
_VIEWS = frozenset(
    {"t", "transpose", "permute", "conj", "view", "reshape", "squeeze", "unsqueeze", "contiguous"}
)
# Methods that are listed only.
_METHODS_LEFT = frozenset(
    {"addbmm", "addmm_", "addbmm_", "baddbmm_", "addmv", "addmv_", "matrix_power", "cov"}
    | {"__matmul__", "__rmatmul__", "__imatmul__"}
)
WORDS = _METHODS_LEFT.union(*(row.words for row in FUNCTIONS))
_BY_NAME = {name: row for row in FUNCTIONS if not row.by_identity for name in row.names}
# `torch_matmul` takes its operands by position only.
_BY_NAME_WITH_KEYWORDS = _BY_NAME | {
    f"torch.{word}": Function(
        frozenset({f"torch.{word}"}), "torch_call", Parameters(("input", second), by_keyword=True)
    )
    for word, second in (("matmul", "other"), ("mm", "mat2"), ("bmm", "mat2"))
}
_BY_WORD = {word: row for row in FUNCTIONS if row.by_word for word in row.words}
_BY_STAR = {
    _word(name): row
    for row in FUNCTIONS
    if not row.RUNTIME
    for name in row.names
    if name.startswith("numpy.")
}
_BY_IDENTITY = {word: row for row in FUNCTIONS if row.by_identity for word in row.words}
# Libraries whose products are all in FUNCTIONS: no other function of theirs is one.
LISTED_WHOLLY = frozenset({"numpy", "cupy", "scipy", "torch", "tensorflow"})
# Words of methods, too: `x.dot(y)`, of arrays and tensors, or of whatever the program calls so.
METHODS = frozenset({"dot", "inner", "matmul"})
# A method `dot` in a variable, or a product of which a `partial` has the first operand.
_BOUND_DOT = Function(
    frozenset({"dot"}), "xp_product", Parameters(("b",), options=OUT), by_identity=True
)
# Methods of tensors, in calls of whatever object: the runtime calls what it is given.
_OF_ONE = Function(frozenset(), "torch_call", Parameters(("b",)))
_OF_TWO = Function(frozenset(), "torch_call", Parameters(("a", "b"), options=OF_SUM))
_TENSOR_METHODS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "inner"), _OF_ONE),
    **dict.fromkeys(("addmm", "baddbmm"), _OF_TWO),
    "mv": Function(frozenset(), LEFT_NATIVE, Parameters(("b",))),
}


def find(call: ast.Call, scope: Scope) -> tuple[Function, Match] | None:
    """The row of a call that is a product or written like one, with the reason to leave it."""
    meanings = scope.meanings(call.func)
    if meanings is None:
        return _find_unresolved(call, scope)
    first = min(meanings)
    row = (_BY_NAME_WITH_KEYWORDS if call.keywords else _BY_NAME).get(first)
    if row and row.RUNTIME and meanings <= row.names:
        return row, Match(_word(first), row.refusal(call))
    roots = {name.partition(".")[0] for name in meanings}
    row = _BY_IDENTITY.get(_word(first))
    if row and "mixpert_py" not in roots and len(set(map(_word, meanings))) == 1:
        if not roots <= LISTED_WHOLLY:  # perhaps NumPy's by another name, as autograd.numpy.dot is
            return row, Match(_word(first), row.refusal(call))
        if not any(name in _BY_NAME for name in meanings):
            return row, Match(_word(first), f"{first} is left native")
    for name in sorted(meanings):
        row = _BY_NAME.get(name) or _BY_WORD.get(_word(name))
        if row and "mixpert_py" not in roots:
            return row, Match(_word(name), f"{name} is left native")
    return None


def find_handed_on(call: ast.Call, scope: Scope) -> tuple[Function, Match] | None:
    """The row of a function passed to a call: `reduce(np.dot, x)`; others are only listed."""
    if call.args and scope.meanings(call.func) == REDUCE.names:
        function = call.args[0]
        handed = scope.meanings(function)
        # Of `xp.dot`, of whatever module, the runtime decides when it is called.
        is_unknown = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        may_be = is_unknown and written_name(function) in _REDUCED_WORDS
        if handed <= _REDUCED if handed else may_be:
            return REDUCE, Match("reduce", REDUCE.refusal(call))
    for argument in [*call.args, *[keyword.value for keyword in call.keywords]]:
        if meanings := scope.meanings(argument):
            for name in sorted(meanings):
                if row := _BY_NAME.get(name):
                    return row, Match(_word(name), f"{name} is handed on as a function")
    return None


def find_by_identity(call: ast.Call, scope: Scope) -> tuple[Function, Match] | None:
    """The row of a call such as `self.xp.dot(a, b)` that may be of a module's function."""
    word = written_name(call.func)
    row = _BY_IDENTITY.get(word)
    if row is None or not _may_be_function(call, word, scope):
        return None
    return row, Match(word, row.refusal(call))


def _may_be_function(call: ast.Call, word: str, scope: Scope) -> bool:
    """Whether a call of a product's word may be a call of a library's function."""
    if isinstance(call.func, ast.Name):
        # Many programs have an `inner` of their own, which is no product.
        is_unknown = scope.owner(word) is None and not scope.has_star()
        return not scope.is_defined(word) and not (word == "inner" and is_unknown)
    if not _is_dotted(call.func):
        return False  # an expression would be evaluated after the operands
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    # A method's object is not among the arguments.
    given = len(call.args) if word in METHODS else len(call.args) + len(call.keywords)
    return given >= (1 if word == "multi_dot" else 2)


def _find_unresolved(call: ast.Call, scope: Scope) -> tuple[Function, Match] | None:
    """The row of a call of a function whose library no import tells."""
    if found := find_by_identity(call, scope):
        return found
    word = written_name(call.func)
    if isinstance(call.func, ast.Name):  # a variable, as in `contract = np.einsum`
        for assigned in scope.assigned_words(word):
            if found := _find_in_variable(call, assigned):
                return found
        if scope.owner(word) is None and scope.has_star() and (row := _BY_STAR.get(word)):
            return row, Match(word, f"{word} may come from a star import")
    if isinstance(call.func, ast.Call | ast.Subscript):
        return None
    if isinstance(call.func, ast.Attribute):
        if word in _METHODS_LEFT:
            return _TENSORS, Match(word, f"the method {word} is left native")
        # Whatever else has an `inner`, such as a decorator's function, is no tensor.
        if word in _TENSOR_METHODS and (word != "inner" or scope.imports("torch")):
            return _find_tensor_method(call, call.func, scope)
    row = _BY_WORD.get(word)
    return (row, Match(word, _unresolved(call.func, scope, row))) if row else None


def _find_in_variable(call: ast.Call, word: str) -> tuple[Function, Match] | None:
    """The row of a call of a variable to which a function of this word is assigned."""
    bound = _BOUND_DOT if word == "dot" else None
    for row in filter(None, (_BY_IDENTITY.get(word), bound, _TENSOR_METHODS.get(word))):
        # With one operand it is more likely a method of whatever object.
        if row.RUNTIME and (reason := row.refusal(call)) != TOO_FEW:
            return row, Match(word, reason)
    return None


def _is_dotted(expr: ast.expr) -> bool:
    while isinstance(expr, ast.Attribute):
        expr = expr.value
    return isinstance(expr, ast.Name)


def _find_tensor_method(
    call: ast.Call, method: ast.Attribute, scope: Scope
) -> tuple[Function, Match] | None:
    """The row of a call such as `x.mm(y)`, for any x."""
    word, base = method.attr, method.value
    row = _TENSOR_METHODS[word]
    if row.RUNTIME == LEFT_NATIVE:
        # Methods of other objects than tensors, such as `shell.mv(old, new)`, are given more.
        return None if row.refusal(call) else (row, Match(word, f"{word} is left native"))
    # The object is evaluated after the operands. Of a name and its views that makes no difference.
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not _is_dotted(base) and not (_is_view(base) and all(map(_is_constant, given))):
        return row, Match(word, f"the method {word} of an expression is left native")
    reason = row.refusal(call)
    if reason is None and any(isinstance(part, ast.NamedExpr) for part in ast.walk(call)):
        reason = "an assignment among the arguments"
    return row, Match(word, reason)


def _is_constant(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Name | ast.Constant)


def _is_view(expr: ast.expr) -> bool:
    """Whether an expression such as `x.T.reshape(m, n).t()` consists of names and of _VIEWS."""
    while not isinstance(expr, ast.Name):
        if isinstance(expr, ast.Call) and written_name(expr.func) in _VIEWS and not expr.keywords:
            if not all(map(_is_constant, expr.args)):
                return False
            expr = expr.func
        if not isinstance(expr, ast.Attribute):
            return False
        expr = expr.value
    return True


def _unresolved(function: ast.expr, scope: Scope, row: Function) -> str:
    """The reason why a function that is written like a product is not known to be one."""
    libraries = ("numpy", "cupy") if any(x.startswith("numpy") for x in row.names) else ("scipy",)
    if isinstance(function, ast.Attribute):
        base = function.value
        while isinstance(base, ast.Attribute):
            base = base.value
        owner = ast.unparse(function.value) if isinstance(base, ast.Name) else "an expression"
        return f"{owner} is not known to be {' or '.join(libraries)}"
    assert isinstance(function, ast.Name)
    if scope.owner(function.id) is None and scope.has_star():
        return f"{function.id} may come from a star import"
    owners = " or ".join(f"{library}'s" for library in libraries)
    return f"{function.id} is not known to be {owners}"
