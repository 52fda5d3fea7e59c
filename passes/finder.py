"""The finder: parses a file once, and finds, describes and confirms its products.

A product that is described is a call site, whose id survives edits around it.
"""

import ast
import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mixpert_py.errors import SourceError
from mixpert_py.passes import source as sources
from mixpert_py.passes.scopes import COMPILERS, COMPILING, Operation, Scope, Scopes, read_scopes
from mixpert_py.passes.spellings import Match, Spelling
from mixpert_py.passes.spellings.functions import WORDS
from mixpert_py.passes.spellings.operators import find
from mixpert_py.plan import module_in_ids

# A product is hashed with all that it multiplies, so products within products are read often.
MAX_CHARACTERS = 8 << 20
HASH_DIGITS = 6


def _any_of(words: Collection[str]) -> str:
    """A pattern that matches any of these words, by shared letters instead of one by one."""
    if len(words) == 1:
        return next(iter(words))
    first = sorted({word[:1] for word in words}, reverse=True)  # a word's end comes last
    parts = (f"{x}{_any_of({word[1:] for word in words if word[:1] == x})}" for x in first)
    return f"(?:{'|'.join(parts)})"


HINT = re.compile(rf"\b{_any_of(WORDS)}\b")
# A function that is looked up by its word, which the filter takes for a string.
LOOKED_UP = re.compile(r"\bgetattr\([\w.]+, *[\"'](?:matmul|dot|tensordot|einsum)[\"']\)")
# Files in which something is compiled have one of these. A name of COMPILING has its library's.
COMPILER_WORDS = COMPILERS | {name.partition(".")[0] for name in COMPILING}
PYTHRAN = re.compile(r"^[ \t]*#[ \t]*pythran[ \t]+export\b", re.MULTILINE)
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
F_STRING = re.compile(r"\b(?:[rR]?[fFtT]|[fFtT][rR])\Z")
# What stands before an `@` that begins a line and does not continue the line before.
BEGINS_LINE = re.compile(r"(?:\A|(?:\A|[^\\\r\n])[\r\n]+)[ \t\f]*\Z")
IS_COMPILED = "inside a compiled function"


@dataclass(frozen=True, slots=True)
class CallSite:
    """A product in the source: its id, its place, and whether it is rewritten.

    id: `module:qualname/kind~hash#n`. line and column are 1-based, column in characters.
    expression: the source text with whitespace folded. reason: why it is left alone; None if it is
    rewritten. span: offsets in the decoded text. cell: the number of a notebook's code cell, in
    which the line is counted.
    """

    id: str
    kind: str
    line: int
    column: int
    expression: str
    reason: str | None
    span: tuple[int, int]
    cell: int | None = None

    @property
    def function(self) -> str:
        """The qualified name of the function around it, `<module>` outside functions."""
        return self.id.partition(":")[2].rpartition("/")[0]


@dataclass(frozen=True, eq=False)
class FoundProduct:
    """A call site in its syntax tree. scheme: the scheme that a comment asks for."""

    site: CallSite
    node: ast.AST
    spelling: Spelling
    scheme: str | None = None


@dataclass(frozen=True, eq=False)
class Analysis:
    """A file with its products. The tree is shared and must not be changed.

    If the file has no product, the tree is empty and its comments are not read. warned: whether
    Python's parser warns about the file.
    """

    source: sources.Source
    tree: ast.Module
    scopes: Scopes
    products: tuple[FoundProduct, ...]
    comments: sources.Pragmas
    warned: bool = False

    @property
    def rewritten(self) -> tuple[FoundProduct, ...]:
        """The products that become runtime calls, outer ones before those inside them."""
        return tuple(product for product in self.products if product.site.reason is None)


def find_products(raw: bytes, module: str) -> Analysis:
    """Find every product of a file. Raises SourceError as `pipeline.analyze` does."""
    source = sources.decode(raw, module)
    is_looked_up = LOOKED_UP.search(source.text) is not None
    if not is_looked_up and not _may_multiply(source.text):
        empty = ast.Module([], [])  # not parsed: three files of four end here
        return Analysis(source, empty, read_scopes(empty), (), sources.read_pragmas(""))
    if sources.has_tokens(source.text, sources.MAX_TOKENS):
        most = f"{sources.MAX_TOKENS:,} words and signs"
        raise SourceError(f"{module}: more than {most}; the file is skipped")
    tree, warned = sources.parse_with_warnings(source.text, module)
    with sources.refusing_depth(module):
        scopes = read_scopes(tree, module)
        comments = sources.read_pragmas(source.text)
        products = _products(source, scopes, comments)
        return Analysis(source, tree, scopes, products, comments, warned)


# A file is analysed, rewritten and graphed in turn, and the finder's work is the cost of each.
analysis_of = lru_cache(maxsize=4)(find_products)


def _may_multiply(text: str) -> bool:
    """Whether a text may have a product outside its comments and strings; most files have none.

    This takes a fifth of the time of a parse. An `@` that begins a line outside brackets belongs to
    a decorator.
    """
    if "@" not in text and HINT.search(text) is None:
        return False
    pieces = []
    done = 0
    for match in SKIPPED.finditer(text):
        start = match.start()
        string = match[0]
        shown = "" if string[0] == "#" else '""'
        if shown and text[start - 1 : start].isalpha() and F_STRING.search(text, done, start):
            # From Python 3.12 on, quotes within braces may have ended the string too early.
            if "{{" in string or "}}" in string or string.count("{") != string.count("}"):
                return True
            shown = string
        pieces += [text[done:start], shown]
        done = match.end()
    code = "".join([*pieces, text[done:]])
    if HINT.search(code if code.isascii() else unicodedata.normalize("NFKC", code)):
        return True
    depth = done = 0
    at = code.find("@")
    while at >= 0:
        depth += sum(code.count(sign, done, at) for sign in "([{")
        depth -= sum(code.count(sign, done, at) for sign in ")]}")
        if depth or not BEGINS_LINE.search(code, max(0, at - 99), at):
            return True
        done = at
        at = code.find("@", at + 1)
    return False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A product before it is confirmed and numbered. span: in an f-string that of the string."""

    operation: Operation
    spelling: Spelling
    match: Match
    span: tuple[int, int]


def _candidates(source: sources.Source, scopes: Scopes) -> list[_Candidate]:
    """Every product in the order of the source, with the reason, if any, to leave it alone."""
    text = source.text
    whole = "compiled by Pythran" if "pythran" in text and PYTHRAN.search(text) else None
    compiled = _compiled_arguments(scopes) if any(word in text for word in COMPILER_WORDS) else {}
    candidates = []
    for operation in scopes.operations:
        if found := find(operation.node, operation.scope):
            spelling, match = found
            reason = whole or _compiled(operation.scope, compiled) or operation.barred
            match = replace(match, reason=reason or match.reason)
            span = source.span(operation.string or operation.node)
            candidates.append(_Candidate(operation, spelling, match, span))
    return sorted(candidates, key=lambda candidate: (candidate.span[0], -candidate.span[1]))


def _compiled(scope: Scope, compiled: Mapping[ast.AST, str]) -> str | None:
    """The reason if a scope, or one around it, is or may be compiled, or None."""
    if scope.is_compiled():
        return IS_COMPILED
    return next(filter(None, (compiled.get(one.node) for one in scope.around())), None)


def _compiled_arguments(scopes: Scopes) -> dict[ast.AST, str]:
    """The functions handed to compilers, as in `njit(slow)`; any, where that is a variable."""
    compiled: dict[ast.AST, str] = {}
    called: set[str] = set()
    varies = False
    for operation in scopes.operations:
        node, scope = operation.node, operation.scope
        if not isinstance(node, ast.Call) or not scope.names_compiler(node.func):
            continue
        for argument in node.args:
            parts = ast.walk(argument)
            compiled |= {part: IS_COMPILED for part in parts if part in scopes.opened_by}
            if isinstance(argument, ast.Name):
                called.add(argument.id)
                varies = varies or scope.is_local(argument.id)
    for opened in scopes.opened_by:
        if isinstance(opened, ast.FunctionDef | ast.ClassDef) and opened.name in called:
            compiled[opened] = IS_COMPILED
        elif varies and isinstance(opened, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            compiled.setdefault(opened, "may be handed to a compiler")
    return compiled


def _products(
    source: sources.Source, scopes: Scopes, comments: sources.Pragmas
) -> tuple[FoundProduct, ...]:
    candidates = _candidates(source, scopes)
    if sum(end - start for start, end in (c.span for c in candidates)) > MAX_CHARACTERS:
        raise SourceError(f"{source.module}: long products nested too deeply; the file is skipped")
    places = [(source.position(c.span[0]), source.position(c.span[1])) for c in candidates]
    lines = [(start[0], end[0]) for start, end in places]
    reasons = [
        c.match.reason or comments.reason(*on) or _unreadable(c.operation.node, source)
        for c, on in zip(candidates, lines, strict=True)
    ]
    reasons = _confirmed(source, candidates, reasons)
    ids = _ids(source, scopes, candidates)
    products = []
    for i, candidate in enumerate(candidates):
        line, column = places[i][0]
        expression, kind = _expression(source, candidate), candidate.match.kind
        site = CallSite(ids[i], kind, line, column + 1, expression, reasons[i], candidate.span)
        scheme = comments.scheme(*lines[i])
        products.append(FoundProduct(site, candidate.operation.node, candidate.spelling, scheme))
    return tuple(products)


def _ids(source: sources.Source, scopes: Scopes, candidates: Sequence[_Candidate]) -> list[str]:
    """The site ids, numbered in the order in which the products stand in the source."""
    module = module_in_ids(source.module)
    prefixes = (
        f"{module}:{c.operation.scope.qualname}/{c.match.kind}"
        f"~{expression_hash(c.operation.node, scopes.scope_of)}"
        for c in candidates
    )
    # Runtime calls of an earlier rewriting have their ids already.
    taken = frozenset(
        str(keyword.value.value)
        for operation in scopes.operations
        if isinstance(operation.node, ast.Call)
        for keyword in operation.node.keywords
        if keyword.arg == "site" and isinstance(keyword.value, ast.Constant)
    )
    return number(prefixes, taken)


def _unreadable(node: ast.AST, source: sources.Source) -> str | None:
    """The reason to leave names such as ｄｏｔ, which edits would not find, or None."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    end = source.span(node.func)[1]
    return None if source.text.endswith(node.func.attr, 0, end) else "written in unusual letters"


def _expression(source: sources.Source, candidate: _Candidate) -> str:
    """The text of a product on one line, without comments."""
    text = source.text[slice(*candidate.span)]
    several = "\n" in text or "\r" in text
    if candidate.operation.string or (several and ("#" in text or "\\" in text)):
        text = ast.unparse(candidate.operation.node)
    return " ".join(text.split())


def _confirmed(
    source: sources.Source, candidates: Sequence[_Candidate], reasons: list[str | None]
) -> list[str | None]:
    """The reasons, with those of the cross-check for candidates that have none yet."""
    pairs = zip(candidates, reasons, strict=True)
    claimed = [candidate for candidate, reason in pairs if reason is None]
    if not claimed:
        return reasons
    from mixpert_py.passes import cross_check  # LibCST takes a third of a second to import

    texts = _texts_without_inner(source.text, [candidate.span for candidate in claimed])
    signs = [getattr(candidate.spelling, "SIGN", "") for candidate in claimed]
    refusals = iter(cross_check.refusals(source.module, zip(texts, signs, strict=True)))
    return [next(refusals) if reason is None else reason for reason in reasons]


def _texts_without_inner(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Each span's text with a name for each span in it, so that LibCST reads all once."""
    found, open_spans = [""] * len(spans), [(-1, -1, len(text))]  # number, place reached, end
    for number in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1])):
        start, end = spans[number]
        while start >= open_spans[-1][2]:
            _close(text, found, open_spans)
        outer, reached, its_end = open_spans[-1]
        if outer >= 0:
            found[outer] += f"{text[reached:start]}_"
        open_spans[-1] = outer, end, its_end
        open_spans.append((number, start, end))
    while len(open_spans) > 1:
        _close(text, found, open_spans)
    return found


def _close(text: str, found: list[str], open_spans: list[tuple[int, int, int]]) -> None:
    number, reached, end = open_spans.pop()
    found[number] += text[reached:end]


def expression_hash(node: ast.AST, scopes: dict[ast.AST, Scope]) -> str:
    """Hash of an expression without spacing, with local names numbered; global names count."""
    order: dict[str, str] = {}
    renamed: list[tuple[ast.Name | ast.arg, str]] = []

    def placeholder(name: str) -> str:
        return order.setdefault(name, f"_{len(order)}")

    try:
        for part in sources.preorder(node):
            if isinstance(part, ast.Name) and part in scopes and scopes[part].is_local(part.id):
                renamed.append((part, part.id))
                part.id = placeholder(part.id)
            elif isinstance(part, ast.arg):
                renamed.append((part, part.arg))
                part.arg = placeholder(part.arg)
        text = ast.unparse(node)
    finally:
        for part, name in renamed:
            setattr(part, "id" if isinstance(part, ast.Name) else "arg", name)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def number(prefixes: Iterable[str], taken: frozenset[str]) -> list[str]:
    """Site ids in source order: each prefix with its next number that is not `taken`."""
    following: dict[str, int] = {}
    ids = []
    for prefix in prefixes:
        n = following.get(prefix, 0)
        while f"{prefix}#{n}" in taken:
            n += 1
        following[prefix] = n + 1
        ids.append(f"{prefix}#{n}")
    return ids
