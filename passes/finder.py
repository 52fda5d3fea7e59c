"""The finder: parses a file once, and finds, describes and confirms its products."""

import ast
import bisect
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mixpert_py.errors import SourceError
from mixpert_py.passes import bindings, call_site, pragma
from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.call_site import CallSite, Product
from mixpert_py.passes.pragma import Pragmas
from mixpert_py.passes.scope import COMPILERS, COMPILING, Scope, function_words, written_name
from mixpert_py.passes.source import (
    Source,
    children,
    decode,
    parse_with_warnings,
    preorder,
    refusing_depth,
    require_few_tokens,
    require_shallow,
)
from mixpert_py.passes.spellings import WORDS, Match, Spelling, find, matrix
from mixpert_py.plan import module_in_ids

# A product is hashed with all that it multiplies, so products within products are read often.
MAX_CHARACTERS = 8 << 20


def _any_of(words: Collection[str]) -> str:
    """A pattern that matches any of these words, by shared letters instead of one word after
    another.
    """
    if len(words) == 1:
        return next(iter(words))
    first = sorted({word[:1] for word in words}, reverse=True)  # a word's end comes last
    parts = (f"{x}{_any_of({word[1:] for word in words if word[:1] == x})}" for x in first)
    return f"(?:{'|'.join(parts)})"


HINT = re.compile(rf"\b{_any_of(WORDS)}\b")
# A function that is looked up by its word, which the filter takes for a string.
LOOKED_UP = re.compile(r"\bgetattr\([\w.]+, *[\"'](?:matmul|dot|tensordot|vecdot|einsum)[\"']\)")
# Files in which something is compiled have one of these. A name of COMPILING has its library's.
COMPILER_WORDS = COMPILERS | {name.partition(".")[0] for name in COMPILING}
PYTHRAN = re.compile(r"^[ \t]*#[ \t]*pythran[ \t]+export\b", re.MULTILINE)
# The rest of a line that can only be a decorator: a definition or another decorator follows.
# Nothing is tried twice: a line may have a megabyte.
DECORATOR = re.compile(
    r"@[ \t]*+[\w.]++(?:\([^\r\n@]*+)?+[ \t]*+(?:#[^\r\n@]*+)?+"
    r"(?=[\r\n]+[ \t\f]*(?:@|(?:async|class|def)\b))"
)
# A comment or a string without its prefix. Of strings that are not closed, and of the inner quotes
# of f-strings from Python 3.12 on, it may be a part. It begins with a set of signs, which `re`
# looks for four times as fast as for alternatives.
SKIPPED = re.compile(
    r"[#\"'](?:(?<=#)[^\r\n]*+"
    r"|(?<=\")(?:\"\"(?:[^\"\\]++|\\.|\"(?!\"\"))*+\"\"\"|(?:[^\"\\\r\n]++|\\.)*+\")"
    r"|(?<=')(?:''(?:[^'\\]++|\\.|'(?!''))*+'''|(?:[^'\\\r\n]++|\\.)*+'))",
    re.DOTALL,
)
# The prefix that says a string's kind, at the end of what stands before the string.
PREFIX = re.compile(r"\b[a-zA-Z]{1,2}\Z")
SITE = re.compile(r"\bsite\b")
MAY_BE_PRODUCT = frozenset({ast.BinOp, ast.Call, ast.AugAssign})
MAY_HOLD_PRODUCT = MAY_BE_PRODUCT | {ast.JoinedStr}
MAY_BE_COMPILED = frozenset({ast.Call, ast.FunctionDef, ast.ClassDef, ast.Lambda})
PLAIN_PREFIX = re.compile("[bru]+", re.IGNORECASE)
# The field of a node in which a word of the text filter is one of the program's names.
NAMED = {ast.Attribute: "attr", ast.Name: "id", ast.alias: "name"}


@dataclass(frozen=True, eq=False)
class Analysis:
    """A file with its products. The tree is shared and must not be changed.

    If the file has no product, the tree is empty and its comments are not read. warned: whether
    Python's parser warns about the file.
    """

    source: Source
    tree: ast.Module
    scopes: Scopes
    products: tuple[Product, ...]
    comments: Pragmas
    warned: bool = False

    @property
    def rewritten(self) -> tuple[Product, ...]:
        """The products that become runtime calls, outer ones before those inside them."""
        return tuple(product for product in self.products if product.site.reason is None)


def find_products(raw: bytes, module: str) -> Analysis:
    """Find every product of a file. Raises SourceError as `pipeline.analyze` does."""
    source = decode(raw, module)
    is_looked_up = LOOKED_UP.search(source.text) is not None
    if not is_looked_up and not (
        _may_multiply(source.text) and _may_multiply_outside_strings(source.text)
    ):
        return _without_products(source)  # not parsed: three files of four end here
    require_few_tokens(source)
    tree, warned = parse_with_warnings(source.text, module)
    if not is_looked_up and not _mentions_product(tree):
        return _without_products(source)
    require_shallow(tree, module)
    with refusing_depth(module):
        scopes = bindings.read(tree)
        comments = pragma.read(source.text)
        products = _products(source, tree, scopes, comments)
        return Analysis(source, tree, scopes, products, comments, warned)


def _without_products(source: Source) -> Analysis:
    empty = ast.Module([], [])
    return Analysis(source, empty, bindings.read(empty), (), pragma.read(""))


def _may_multiply(text: str) -> bool:
    """Whether a text may have a product; for most files this is false."""
    at = text.find("@")
    while at >= 0:
        if not _is_decorator(text, at):
            return True
        at = text.find("@", at + 1)
    return HINT.search(text) is not None


def _may_multiply_outside_strings(text: str) -> bool:
    """Whether a text may have a product outside its comments and strings.

    This takes a fifth of the time of a parse. A remaining `@` that begins a line outside brackets
    belongs to a decorator.
    """
    pieces = []
    done = 0
    for match in SKIPPED.finditer(text):
        start = match.start()
        is_comment = text[start] == "#"
        if not is_comment and text[start - 1 : start].isalpha():
            prefix = PREFIX.search(text, max(done, start - 2), start)
            if prefix and not PLAIN_PREFIX.fullmatch(prefix[0]) and _may_hold_product(match[0]):
                return True
        pieces.append(text[done:start])
        pieces.append("" if is_comment else '""')
        done = match.end()
    code = "".join([*pieces, text[done:]])
    if HINT.search(code if code.isascii() else unicodedata.normalize("NFKC", code)):
        return True
    depth = done = 0
    at = code.find("@")
    while at >= 0:
        depth += sum(code.count(sign, done, at) for sign in "([{")
        depth -= sum(code.count(sign, done, at) for sign in ")]}")
        if depth or not _begins_line(code, at):
            return True
        done = at
        at = code.find("@", at + 1)
    return False


def _may_hold_product(string: str) -> bool:
    """Whether an f-string may hold a product, or, from Python 3.12 on, quotes like its own: the
    string that was found then ends within braces.
    """
    if "{{" in string or "}}" in string or string.count("{") != string.count("}"):
        return True
    return "@" in string or HINT.search(string) is not None


def _is_decorator(text: str, at: int) -> bool:
    """Whether this `@` begins a line that can only be a decorator and continues no other line."""
    return _begins_line(text, at) and DECORATOR.match(text, at) is not None


def _begins_line(text: str, at: int) -> bool:
    """Whether a sign begins a line that does not continue the line before."""
    start = at
    while start and text[start - 1] in " \t\f":
        start -= 1
    line_before = text[max(0, start - 3) : start]
    ended = line_before.removesuffix("\n").removesuffix("\r")
    return start == 0 or (ended != line_before and not ended.endswith("\\"))


def _mentions_product(tree: ast.Module) -> bool:
    """Whether words of the text filter appear outside comments and strings."""
    for node in preorder(tree):
        kind = type(node)
        if kind is ast.MatMult or (kind in NAMED and getattr(node, NAMED[kind]) in WORDS):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A product before it is confirmed and numbered. `at`: the node with its location."""

    node: ast.expr | ast.stmt
    at: ast.expr | ast.stmt
    scope: Scope
    spelling: Spelling
    match: Match

    def left(self, reason: str | None) -> "_Candidate":
        """The candidate with a reason for leaving it alone, if one is given and it had none."""
        return replace(self, match=replace(self.match, reason=self.match.reason or reason))


def _candidates(text: str, tree: ast.Module, scopes: Scopes) -> Iterator[_Candidate]:
    """Every product in preorder, with the reason, if any, why no call can replace it."""
    compiled = _compiled_arguments(scopes) if any(word in text for word in COMPILER_WORDS) else {}
    pythran = "pythran" in text and PYTHRAN.search(text)
    whole = "compiled by Pythran" if pythran else None
    stack: list[tuple[Any, str | None, ast.expr | None]] = [(tree, whole, None)]
    words = WORDS | _aliases(scopes)
    nodes: Iterable[Any] = scopes.scope_of
    lines = sorted(
        node.lineno
        for node in nodes
        if type(node) in MAY_HOLD_PRODUCT  # isinstance alone takes twice as long
        and (isinstance(node, ast.JoinedStr) or _may_be_product(node, words))
    )
    while stack:
        node, barred, string = stack.pop()
        if isinstance(node, ast.stmt) and not _has_line(node, lines):
            continue
        barred = barred or scopes.barred.get(node) or compiled.get(node)
        if isinstance(node, ast.JoinedStr):
            string = string or node  # Python 3.11 has no usable locations inside
        stack += [(child, barred, string) for child in children(node)]
        if type(node) not in MAY_BE_PRODUCT or not _may_be_product(node, words):
            continue
        scope = scopes.scope_of[node.target if isinstance(node, ast.AugAssign) else node]
        reason = "inside a compiled function" if scope.is_compiled() else barred
        if found := find(node, scope):
            spelling, match = found
            match = replace(match, reason=reason or match.reason)
            yield _Candidate(node, string or node, scope, spelling, match)


def _aliases(scopes: Scopes) -> frozenset[str]:
    """The names that imports or assignments give to functions with a word of the filter."""
    return frozenset(
        name
        for scope in scopes.opened_by.values()
        for name, bindings_ in scope.bindings.items()
        if any(
            (binding.target and binding.target.rpartition(".")[2] in WORDS)
            or not WORDS.isdisjoint(binding.words)
            for binding in bindings_
        )
    )


def _has_line(statement: ast.stmt, lines: Sequence[int]) -> bool:
    """Whether a statement, its decorators included, has one of these lines."""
    assert statement.end_lineno is not None
    decorators = getattr(statement, "decorator_list", ())
    first = min([statement.lineno, *(node.lineno for node in decorators)])
    return bisect.bisect_left(lines, first) < bisect.bisect_right(lines, statement.end_lineno)


def _may_be_product(node: Any, words: frozenset[str]) -> bool:
    """Whether a node may be a product; for most nodes the answer is no without looking up names.

    node: an operation or a call. words: the names that a product's function may have.
    """
    if type(node) is not ast.Call:
        if isinstance(node.op, ast.Mult | ast.Pow):
            return any(_may_be_matrix(operand, words) for operand in matrix.operands(node))
        return isinstance(node.op, ast.MatMult)
    function = node.func.value if type(node.func) is ast.Subscript else node.func
    return (
        written_name(function) in words
        or (
            type(function) in (ast.Call, ast.Dict)
            and not words.isdisjoint(function_words(function))
        )
        or any(written_name(argument) in words for argument in node.args)
        or any(written_name(keyword.value) in words for keyword in node.keywords)
    )


def _may_be_matrix(operand: ast.expr, words: frozenset[str]) -> bool:
    """Whether an operand may be a matrix object, judged by its first name."""
    while isinstance(operand, ast.Attribute | ast.BinOp):
        operand = operand.value if isinstance(operand, ast.Attribute) else operand.left
    name = operand.func if isinstance(operand, ast.Call) else operand
    return written_name(name) in words


def _compiled_arguments(scopes: Scopes) -> dict[ast.AST, str]:
    """Find the arguments of compilers, as in `fast = njit(slow)` and `njit(lambda a: a)`.

    If the argument is a local variable, as in `[njit(f) for f in (one, two)]`, it may be any
    function or class that the file defines.
    """
    arguments: dict[ast.AST, str] = {}
    called: set[str] = set()
    definitions: dict[ast.AST, str] = {}
    varies = False
    for node in scopes.scope_of:
        if type(node) not in MAY_BE_COMPILED:  # isinstance alone takes twice as long
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node] = node.name
        elif isinstance(node, ast.Lambda):
            definitions[node] = "<lambda>"
        elif isinstance(node, ast.Call):
            if not scopes.scope_of[node].names_compiler(node.func):
                continue
            for argument in node.args:
                arguments[argument] = "inside a compiled function"
                if isinstance(argument, ast.Name):
                    called.add(argument.id)
                    varies = varies or scopes.scope_of[node].is_local(argument.id)
    for node, name in definitions.items():
        if name in called:
            arguments[node] = "inside a compiled function"
        elif varies:
            arguments.setdefault(node, "may be handed to a compiler")
    return arguments


def _products(
    source: Source, tree: ast.Module, scopes: Scopes, comments: Pragmas
) -> tuple[Product, ...]:
    found = [(source.span(c.at), c) for c in _candidates(source.text, tree, scopes)]
    if sum(end - start for (start, end), _ in found) > MAX_CHARACTERS:
        raise SourceError(f"{source.module}: long products nested too deeply; the file is skipped")
    found.sort(key=lambda placed: (placed[0][0], -placed[0][1]))
    spans = [span for span, _ in found]
    lines = [(source.position(start)[0], source.position(end)[0]) for start, end in spans]
    candidates = [
        candidate.left(comments.reason(*on) or _unreadable(candidate.node, source))
        for (_, candidate), on in zip(found, lines, strict=True)
    ]
    cores = [source.span(candidate.at) for candidate in candidates]
    reasons = _confirm(source, tree, candidates, cores)
    ids = _ids(source, tree, scopes, candidates, cores)
    products = []
    for i, (candidate, span) in enumerate(zip(candidates, spans, strict=True)):
        line, column = source.position(span[0])
        expression = _expression(source, candidate, span)
        kind = candidate.match.kind
        site = CallSite(ids[i], kind, line, column + 1, expression, reasons[i], span)
        scheme = comments.scheme(*lines[i])
        products.append(Product(site, candidate.node, candidate.spelling, scheme))
    return tuple(products)


def _ids(
    source: Source,
    tree: ast.Module,
    scopes: Scopes,
    candidates: list[_Candidate],
    cores: list[tuple[int, int]],
) -> list[str]:
    """The site ids, numbered in the order in which the products stand in the source."""
    module = module_in_ids(source.module)
    prefixes = [
        f"{module}:{c.scope.qualname}/{c.match.kind}"
        f"~{call_site.expression_hash(c.node, scopes.scope_of)}"
        for c in candidates
    ]
    order = sorted(range(len(cores)), key=lambda i: (cores[i][0], -cores[i][1]))
    numbered = call_site.number((prefixes[i] for i in order), _taken(source.text, tree))
    ids = dict(zip(order, numbered, strict=True))
    return [ids[i] for i in range(len(cores))]


def _unreadable(node: ast.AST, source: Source) -> str | None:
    """The reason to leave names such as ｄｏｔ, which edits would not find, or None."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    end = source.span(node.func)[1]
    return None if source.text.endswith(node.func.attr, 0, end) else "written in unusual letters"


def _expression(source: Source, candidate: _Candidate, span: tuple[int, int]) -> str:
    """The text of a product on one line, without comments."""
    text = source.text[span[0] : span[1]]
    several = "\n" in text or "\r" in text
    if candidate.at is not candidate.node or (several and ("#" in text or "\\" in text)):
        text = ast.unparse(candidate.node)
    return " ".join(text.split())


def _confirm(
    source: Source, tree: ast.Module, candidates: list[_Candidate], spans: list[tuple[int, int]]
) -> list[str | None]:
    """Cross-check the candidates that have no reason yet; return the reason of every candidate."""
    reasons = [candidate.match.reason for candidate in candidates]
    unconfirmed = [i for i, reason in enumerate(reasons) if reason is None]
    if not unconfirmed:
        return reasons
    from mixpert_py.passes import cross_check  # LibCST takes a third of a second to import

    claims = [
        cross_check.Claim(
            spans[i],
            isinstance(candidates[i].node, ast.BinOp | ast.AugAssign),
            candidates[i].match.names,
            _root(candidates[i].node),
        )
        for i in unconfirmed
    ]
    for i, refusal in zip(unconfirmed, cross_check.refusals(source, tree, claims), strict=True):
        reasons[i] = refusal
    return reasons


def _root(node: ast.AST) -> str | None:
    """The first name of a call's dotted function name, or None."""
    below: ast.AST | None = node if isinstance(node, ast.Call) else None
    while isinstance(below, ast.Call | ast.Attribute | ast.Subscript):
        below = below.func if isinstance(below, ast.Call) else below.value
    return below.id if isinstance(below, ast.Name) else None


def _taken(text: str, tree: ast.Module) -> frozenset[str]:
    """The site ids of runtime calls from an earlier rewriting of the file."""
    if "site" not in text or not SITE.search(text):
        return frozenset()
    return frozenset(
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "site"
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
