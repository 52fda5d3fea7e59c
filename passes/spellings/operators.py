"""Products that are operators or calls of a method `dot`: `a @ b`, `x @= b`, `x.dot(y)`.
`find` looks for these, and for the functions of the table.

The operands stay where they are, with all spaces, line breaks and comments around them.
"""

import ast
import re

from mixpert_py.passes.scopes import Scope, written_name
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings import (
    Edit,
    Match,
    Parts,
    Spelling,
    after_arguments,
    after_brackets,
    before_brackets,
    find_sign,
    functions,
)
from mixpert_py.passes.spellings.functions import Parameters

METHOD_PARAMETERS = Parameters(("b",), ("out",))
TARGET = "target"
NEWLINE = re.compile(r"[\r\n]")
# One space before `@` is what people write, and none before a comma.
BEFORE_COMMA = {" ": "", "": " "}
# One space on either side of `@=`, and none beside a keyword's `=`.
BESIDE_EQUALS = {(" ", " "): ("", ""), ("", ""): (" ", " ")}


class InfixSpelling:
    """`a @ b` → `_mixpert.matmul(a, b)`: a product for operands of any type."""

    RUNTIME, SIGN = "matmul", "@"

    def parts(self, node: ast.AST) -> Parts:
        assert isinstance(node, ast.BinOp)
        return Parts([node.left, node.right], [])

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """`@` becomes a comma. `a @ b` becomes `a, b`; elsewhere the comma stands at its place."""
        assert isinstance(node, ast.BinOp)
        text, (start, end) = source.text, source.span(node)
        left, right = source.span(node.left)[1], source.span(node.right)[0]
        at = find_sign(text, left, right, self.SIGN)
        left, right = after_brackets(text, left, at), before_brackets(text, at, right)
        before, after = text[left:at], text[at + 1 : right]
        comma = f"{BEFORE_COMMA.get(before, before) if after else before},{after}"
        return [
            Edit(start, start, _opening(text, start, call), True, depth),
            Edit(left, right, comma, False, depth),
            Edit(end, end, f"{keywords})", False, depth),
        ]


class MethodSpelling:
    """`x.dot(y)` → `_mixpert.dot_method(x, y)` for any x, whose type keeps its meaning."""

    RUNTIME = "dot_method"

    def parts(self, node: ast.AST) -> Parts:
        """The object and its method's arguments; the runtime looks the method up on the object."""
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        output = METHOD_PARAMETERS.argument(node, "out")
        return Parts([node.func.value, *node.args], list(node.keywords), output)

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """`.dot(` becomes a comma; text around `dot` goes to the first `=` of the keywords."""
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        text, start = source.text, source.span(node)[0]
        owner, name = source.span(node.func.value)[1], source.span(node.func)[1]
        first = source.span(node.args[0])[0]
        period = find_sign(text, owner, first, ".")
        bracket = find_sign(text, name, first, "(") + 1
        left, right = after_brackets(text, owner, period), before_brackets(text, bracket, first)
        space = "" if NEWLINE.match(text, bracket) and right > bracket else " "
        comma = f"{text[left:period]},{space}{text[bracket:right]}"
        sides = text[period + 1 : name - len("dot")], text[name : bracket - 1]
        last = after_arguments(node, source)
        return [
            Edit(start, start, _opening(text, start, call), True, depth),
            Edit(left, right, comma, False, depth),
            Edit(last, last, keywords.replace("=", "=".join(sides), 1), False, depth),
        ]

    def refusal(self, call: ast.Call, scope: Scope) -> str | None:
        assert isinstance(call.func, ast.Attribute)
        owner = call.func.value
        if isinstance(owner, ast.Call) and written_name(owner.func) == "super":
            return "super().dot is left native"
        if len(call.args) == 2 and any(binding.target for binding in scope.root_bindings(owner)):
            # A method's second argument is `out`, a module's function's is the second operand.
            return f"{ast.unparse(owner)} may be a module other than numpy or cupy"
        if (call.lineno, call.col_offset) != (call.func.lineno, call.func.col_offset):
            return "brackets around the method"
        return METHOD_PARAMETERS.refusal(call)


class AssignmentSpelling:
    """`x @= b` → `x = _mixpert.imatmul(x, b)`, `o.x @= b` → `_mixpert.target(o).x.imatmul(b)`.

    Both forms evaluate the parts of the statement once and in its order.
    """

    RUNTIME, SIGN = "imatmul", "@="

    def parts(self, node: ast.AST) -> Parts:
        """The target, which is also an operand, and the right side; `statement` makes the rest."""
        assert isinstance(node, ast.AugAssign)
        return Parts([node.target, node.value], [])

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """The spaces around `@=` move to the sides of the first `=` of the keywords."""
        assert isinstance(node, ast.AugAssign)
        text, (start, end) = source.text, source.span(node)
        left, right = source.span(node.target)[1], source.span(node.value)[0]
        right = before_brackets(text, left, right)
        before, _, after = text[left:right].partition(self.SIGN)
        sides = BESIDE_EQUALS.get((before, after), (before, after))
        closing = Edit(end, end, f"{keywords.replace('=', '='.join(sides), 1)})", False, depth)
        if isinstance(node.target, ast.Name):
            return [Edit(left, right, f" = {call}({text[start:left]}, ", False, depth), closing]
        runtime, _, method = call.rpartition(".")
        owner = source.span(node.target.value)[1]
        sign = "." if isinstance(node.target, ast.Attribute) else "["
        owner = after_brackets(text, owner, find_sign(text, owner, left, sign))
        return [
            Edit(start, start, f"{runtime}.{TARGET}(", True, depth),
            Edit(owner, owner, ")", False, depth),
            Edit(left, right, f".{method}(", False, depth),
            closing,
        ]

    def refusal(self, node: ast.AugAssign) -> str | None:
        if (node.lineno, node.col_offset) != (node.target.lineno, node.target.col_offset):
            return "brackets around the target"
        if isinstance(node.value, ast.Tuple | ast.Yield | ast.YieldFrom):
            return "an operand that a call would take apart"
        return None

    def statement(self, node: ast.AugAssign, call: ast.Call) -> ast.stmt:
        """The statement that replaces a product, made from the call with its arguments."""
        target, *values = call.args
        if isinstance(target, ast.Name):
            call.args[0] = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            return ast.copy_location(ast.Assign([target], call), node)
        assert isinstance(target, ast.Attribute | ast.Subscript)
        assert isinstance(call.func, ast.Attribute)
        owner = target.value
        function = ast.copy_location(ast.Attribute(call.func.value, TARGET, ast.Load()), owner)
        target.value = ast.copy_location(ast.Call(function, [owner], []), owner)
        target.ctx = ast.Load()
        call.func = ast.copy_location(ast.Attribute(target, call.func.attr, ast.Load()), node)
        call.args = values
        return ast.copy_location(ast.Expr(call), node)


OPERATOR, METHOD, ASSIGNMENT = InfixSpelling(), MethodSpelling(), AssignmentSpelling()


def _opening(text: str, at: int, call: str) -> str:
    """The beginning of a runtime call before the operand at an offset.

    `return(a)@b` is valid, `return_mixpert.matmul` is another name. The second space distinguishes
    it from `return (a)@b`.
    """
    glued = at and (text[at - 1].isalnum() or text[at - 1] == "_")
    return f" {call}( " if glued else f"{call}("


def find(node: ast.BinOp | ast.AugAssign | ast.Call, scope: Scope) -> tuple[Spelling, Match] | None:
    """The spelling of a product and its Match; None if the node is not a product."""
    if not isinstance(node, ast.Call):
        return find_operator(node)
    # `x.dot(y)` is a method's call unless x is, or hides, an imported module; `x.dot(y, z)` may be
    # either, which shows when it runs.
    is_dot = isinstance(node.func, ast.Attribute) and node.func.attr == "dot"
    if is_dot and not scope.is_module(node.func):
        chosen = functions.find_by_identity(node, scope)
        return chosen or (METHOD, Match("dot", METHOD.refusal(node, scope)))
    return functions.find(node, scope) or functions.find_handed_on(node, scope)


def find_operator(
    node: ast.BinOp | ast.AugAssign,
) -> tuple[InfixSpelling | AssignmentSpelling, Match] | None:
    """The spelling of an operator that is a product; None for any other operator."""
    if not isinstance(node.op, ast.MatMult):
        return None
    if isinstance(node, ast.BinOp):
        return OPERATOR, Match("matmul")
    return ASSIGNMENT, Match("matmul", ASSIGNMENT.refusal(node))
