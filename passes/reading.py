"""Reading: one file, parsed once, with its products found, described and confirmed."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mixpert_py.passes import call_site, names
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.found import Found
from mixpert_py.passes.names import Names
from mixpert_py.passes.product import Product
from mixpert_py.passes.scope import ARRAY_MODULES, Scope
from mixpert_py.passes.source import Source, decode, parse, refusing_depth, require_shallow
from mixpert_py.passes.spellings import WORDS, Spelling, find

HINT = re.compile(rf"\b(?:{'|'.join(sorted(WORDS))})\b")
# A line that can only be a decorator: `@` begins it, the line before does not continue, and a
# definition or another decorator follows.
DECORATOR = re.compile(
    r"(?<!\\)(?:\A|\r\n|\r|\n)[ \t\f]*@[ \t]*[\w.]+(?:\([^\r\n@]*)?[ \t]*(?:#[^\r\n@]*)?"
    r"(?=[\r\n]+[ \t\f]*(?:@|(?:async|class|def)\b))"
)

# What a method's call must not be for LibCST.
ARRAY_DOTS = frozenset(f"{module}.dot" for module in ARRAY_MODULES)


@dataclass(frozen=True, eq=False)
class Reading:
    """What is known about a file. The tree is shared: nobody changes it."""

    source: Source
    tree: ast.Module
    names: Names
    products: tuple[Product, ...]

    @property
    def rewritten(self) -> tuple[Product, ...]:
        """The products that become runtime calls, outer ones before those inside them."""
        return tuple(product for product in self.products if product.site.reason is None)


def read(raw: bytes, module: str) -> Reading:
    """Find every product of a file. Raises SourceError where `pipeline.analyze` says."""
    source = decode(raw, module)
    tree = parse(source.text, module)
    if not _may_multiply(source.text) or not _mentions_product(tree):
        return Reading(source, tree, names.read(ast.Module([], [])), ())
    require_shallow(tree, module)
    with refusing_depth(module):
        known = names.read(tree)
        return Reading(source, tree, known, _products(source, tree, known))


def _may_multiply(text: str) -> bool:
    """False for most files, from their text alone."""
    return HINT.search(text) is not None or text.count("@") > len(DECORATOR.findall(text))


def _mentions_product(tree: ast.Module) -> bool:
    """False if the words of the text filter stand in comments and strings only."""
    for node in ast.walk(tree):
        match node:
            case ast.MatMult():
                return True
            case ast.Attribute(attr=word) | ast.Name(id=word) | ast.alias(name=word):
                if word in WORDS:
                    return True
    return False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A product before it is confirmed and numbered. `at`: the node that has its location."""

    node: ast.expr | ast.stmt
    at: ast.expr | ast.stmt
    scope: Scope
    spelling: Spelling | None
    found: Found


def _candidates(tree: ast.Module, known: Names) -> Iterator[_Candidate]:
    """Every product in preorder, with the reason of the place it stands in."""
    compiled = _compiled_arguments(tree, known)
    stack: list[tuple[ast.AST, str | None, ast.expr | None]] = [(tree, None, None)]
    while stack:
        node, barred, string = stack.pop()
        barred = barred or known.barred.get(node) or compiled.get(node)
        if isinstance(node, ast.JoinedStr):
            string = string or node  # Python 3.11 has no usable locations inside
        stack += [(child, barred, string) for child in ast.iter_child_nodes(node)]
        if not isinstance(node, ast.BinOp | ast.Call | ast.AugAssign):
            continue
        scope = known.scope[node.target if isinstance(node, ast.AugAssign) else node]
        if answer := find(node, scope):
            spelling, found = answer
            reason = barred or ("inside a compiled function" if scope.is_compiled() else None)
            found = replace(found, reason=reason or found.reason)
            yield _Candidate(node, string or node, scope, spelling, found)


def _compiled_arguments(tree: ast.Module, known: Names) -> dict[ast.AST, str]:
    """The functions that a call hands to a compiler: `fast = njit(slow)`, `njit(lambda a: a)`."""
    arguments: dict[ast.AST, str] = {}
    called: set[str] = set()
    functions: list[ast.FunctionDef] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.append(node)
        elif isinstance(node, ast.Call) and known.scope[node].names_compiler(node.func):
            for argument in node.args:
                arguments[argument] = "inside a compiled function"
                if isinstance(argument, ast.Name):
                    called.add(argument.id)
    for function in functions:
        if function.name in called:
            arguments[function] = "inside a compiled function"
    return arguments


def _products(source: Source, tree: ast.Module, known: Names) -> tuple[Product, ...]:
    candidates = list(_candidates(tree, known))
    spans = [source.span(candidate.at) for candidate in candidates]
    order = sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1]))
    candidates = [candidates[i] for i in order]
    spans = [spans[i] for i in order]
    reasons = _confirm(source, candidates, spans)
    module = re.sub(r"[:/~#\s]", "_", source.module) or "_"
    prefixes = [
        f"{module}:{c.scope.qualname}/{c.found.kind}"
        f"~{call_site.expression_hash(c.node, known.scope)}"
        for c in candidates
    ]
    products = []
    for site, candidate, span, reason in zip(
        call_site.number(prefixes, _taken(tree)), candidates, spans, reasons, strict=True
    ):
        line, column = source.position(span[0])
        described = CallSite(
            id=site,
            kind=candidate.found.kind,
            line=line,
            column=column + 1,
            expression=_expression(source, candidate, span),
            reason=reason,
            spelling=candidate.spelling.NAME if candidate.spelling else "left_native",
            span=span,
        )
        products.append(Product(described, candidate.node, candidate.spelling))
    return tuple(products)


def _expression(source: Source, candidate: _Candidate, span: tuple[int, int]) -> str:
    text = source.text[span[0] : span[1]]
    several = "\n" in text or "\r" in text
    if candidate.at is not candidate.node or (several and ("#" in text or "\\" in text)):
        text = ast.unparse(candidate.node)
    return " ".join(text.split())


def _confirm(
    source: Source, candidates: list[_Candidate], spans: list[tuple[int, int]]
) -> list[str | None]:
    """The reason of each candidate, after LibCST has been asked about those that have none."""
    reasons = [candidate.found.reason for candidate in candidates]
    open_cases = {
        i: (*source.position(spans[i][0]), *source.position(spans[i][1]))
        for i, reason in enumerate(reasons)
        if reason is None
    }
    if not open_cases:
        return reasons
    from mixpert_py.passes import witness  # LibCST takes a third of a second to import

    testimony = witness.read(source.text, open_cases.values())
    for i, position in open_cases.items():
        seen = testimony.products.get(position)
        found = candidates[i].found
        if testimony.objection is not None:
            reasons[i] = testimony.objection
        elif seen is None:
            reasons[i] = "LibCST does not find it at this position"
        elif isinstance(candidates[i].node, ast.BinOp):
            reasons[i] = None if seen == witness.OPERATOR else "LibCST finds no @ here"
        elif seen != found.names if found.names else seen & ARRAY_DOTS:
            reasons[i] = "LibCST resolves the name differently"
    return reasons


def _taken(tree: ast.Module) -> frozenset[str]:
    """The site ids of runtime calls that an earlier rewriting left in the file."""
    return frozenset(
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "site"
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
