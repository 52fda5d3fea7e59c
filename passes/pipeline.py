"""The passes in order: bytes of a file → its call sites, its rewritten text, its rewritten tree.

Each step is cheap enough for the files that reach it: a text filter; Python's own syntax tree with
a scope analysis, which finds the products and says what their names mean; LibCST, which reads each
product that would be rewritten, and must see the same.

LibCST does not find the products itself, for three reasons that were measured:

- Names. Its scope analysis does not see that the captures of a `match`, a star import, a `del` or a
  walrus in a comprehension bind or hide a name: on the programs of `tests/passes/cases/names.py` in
  which no product may be touched, it alone would rewrite 47 of 382.
- Time. On the 143 files of scikit-learn and networkx with products (5 MB), finding them takes 2 s
  of processor time with `ast` and 85 s with LibCST's positions and scopes. The data flow needs the
  scopes of whole files.
- Text. LibCST writes some files differently from how it read them, and its positions are those of
  what it would write. So edits are spans of the original text, from the positions of `ast`.
"""

import ast
import bisect
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from mixpert_py.errors import SourceError
from mixpert_py.passes.finder import Analysis, CallSite, FoundProduct, analysis_of
from mixpert_py.passes.source import FIELDS, NEWLINE, Pragmas, Source, decode, parse, refusing_depth
from mixpert_py.passes.spellings import Edit, Spelling, splice, without_comments
from mixpert_py.plan import Plan

PACKAGE = "mixpert_py"
ALIAS = "_mixpert"
MARK = "  # added by mixpert rewrite"
# The same where a docstring and the next statement shared a line.
SPLIT_MARK = f"{MARK}, which split this line"
COMMENT_LINE = re.compile(r"[ \t\f]*#[^\r\n]*(?:\r\n|\r|\n|\Z)")
SAME_LINE = re.compile(r"(?:[ \t\f;]|\\(?:\r\n|\r|\n))*")
BLANK_LINE = re.compile(r"[ \t\f]*(?:\r\n|\r|\n)")
Placed = TypeVar("Placed", ast.expr, ast.keyword)

LOCATED = (ast.stmt, ast.expr, ast.arg, ast.keyword)

Schemes = Mapping[str, str]  # site id → the scheme that the call names, if any


def analyze(source: bytes, module: str) -> tuple[CallSite, ...]:
    """Every product of a file in source order, including products that are left alone.

    Nothing of the file is imported or run. Raises SourceError, in one line, if the file is too
    large or too deep, or if Python would not accept it.
    """
    return tuple(product.site for product in analysis_of(source, module).products)


def require_syntax(source: bytes, module: str) -> None:
    """Raise SourceError if Python does not accept a file, which `analyze` may leave unparsed."""
    parse(decode(source, module).text, module)


def pragmas(source: bytes, module: str) -> Pragmas:
    """The pragmas of a file with products. Raises SourceError as `analyze` does."""
    return analysis_of(source, module).comments


def rewrite(
    source: bytes, module: str, plan: Plan | None = None, scheme: str | None = None
) -> bytes:
    """The file with its products as runtime calls; the very same bytes if it has none.

    A site takes its comment's scheme, else the plan's, else `scheme`. Rewriting twice equals
    rewriting once. Raises SourceError as `analyze` does, or if the result does not parse to
    `rewrite_tree`'s.
    """
    analysis = analysis_of(source, module)
    if not analysis.rewritten:
        return source
    name = alias(analysis.tree, analysis.source.text)
    schemes = _schemes(analysis, plan, scheme)
    edits = text_edits(analysis.rewritten, analysis.source, name, schemes)
    if not is_imported(analysis.tree, name):
        edits.append(import_edit(analysis.tree, analysis.source, name))
    text = splice(analysis.source.text, edits)
    with refusing_depth(module):
        try:
            written = parse(text, module)
        except SourceError as error:
            raise SourceError(f"{error} (after rewriting; the file is left as it is)") from None
        if not same(written, _substituted(analysis, schemes)):
            raise SourceError(
                f"{module}: the rewritten text does not mean the same; the file is left as it is"
            )
    return analysis.source.encode(text)


def rewrite_tree(
    source: bytes, module: str, filename: str, plan: Plan | None = None, scheme: str | None = None
) -> ast.Module:
    """The same change of the syntax tree, which is compiled and run instead of the file.

    Every node keeps its original location, so tracebacks and debuggers show the file's own lines.
    The import has line 1 and follows the docstring. The caller owns the tree.
    """
    analysis = analysis_of(source, module)
    if not analysis.rewritten:
        return parse(analysis.source.text, module)
    if analysis.warned:
        ast.parse(analysis.source.text, filename)  # warns of mistakes in the program, at its lines
    with refusing_depth(module):
        tree = _substituted(analysis, _schemes(analysis, plan, scheme))
    analysis_of.cache_clear()  # its tree shares the statements without a product
    return tree


def _substituted(analysis: Analysis, schemes: Schemes) -> ast.Module:
    """A tree with runtime calls and the import, which shares all other statements."""
    tree = analysis.tree
    products = {product.node: (product.spelling, product.site.id) for product in analysis.rewritten}
    name = alias(tree, analysis.source.text)
    substituted = Substitute(name, products, schemes).visit(tree)
    assert isinstance(substituted, ast.Module)
    if not is_imported(tree, name):
        here = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
        statement = ast.Import([ast.alias(PACKAGE, name, **here)], **here)
        substituted.body.insert(position(tree), statement)
    return substituted


def _schemes(analysis: Analysis, plan: Plan | None, scheme: str | None) -> Schemes:
    """The schemes of the sites that have one."""
    ids = {product.site.id: product.scheme for product in analysis.rewritten}
    schemes: dict[str, str] = {}
    for site, own_scheme in ids.items():
        entry = plan.find(site) if plan and own_scheme is None else None
        if own_scheme is not None:  # a comment on the line of the product
            schemes[site] = own_scheme
        # An entry found by its hash is stale, unless it is another site of this very file.
        elif entry is not None and (entry.id == site or entry.id not in ids):
            schemes[site] = entry.scheme
        elif scheme is not None:
            schemes[site] = scheme
    return schemes


def text_edits(
    products: Iterable[FoundProduct], source: Source, name: str, schemes: Schemes
) -> list[Edit]:
    """The edits that turn every given site into its runtime call."""
    edits: list[Edit] = []
    open_ends: list[int] = []  # where the products end that the next one may lie in
    for product in products:
        start, end = product.site.span
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        native = product.spelling.parts(product.node).native
        called = None if native is None else source.text[slice(*source.span(native))]
        scheme = schemes.get(product.site.id)
        keywords = _keywords(product.site.id, scheme, called, source.encoding)
        call = f"{name}.{product.spelling.RUNTIME}"
        edits += product.spelling.edits(product.node, source, call, keywords, len(open_ends))
        open_ends.append(end)
    return edits


class Substitute:
    """Puts runtime calls in place of the products of a tree, at the products' locations.

    products: maps each node to its spelling and site id; none is in an f-string. `visit` returns a
    new tree, which shares the nodes without a product.
    """

    def __init__(
        self, name: str, products: Mapping[ast.AST, tuple[Spelling, str]], schemes: Schemes
    ) -> None:
        self.name = name
        self.products = products
        self.schemes = schemes
        self.starts = sorted(_starts(node) for node in products)

    def visit(self, node: ast.AST) -> ast.AST:
        if not self.may_hold_product(node):
            return node
        product = self.products.get(node)
        node = ast.copy_location(type(node)(**dict(ast.iter_fields(node))), node)
        for name in FIELDS[type(node)]:
            below = getattr(node, name, None)
            if isinstance(below, list):
                # `**more` in a dict has no key.
                setattr(node, name, [part and self.visit(part) for part in below])
            elif below is not None:
                setattr(node, name, self.visit(below))
        if product is None:
            return node
        spelling, site = product

        def here(new: Placed) -> Placed:
            return ast.copy_location(new, node)

        parts = spelling.parts(node)
        keywords = parts.keywords
        runtime = here(ast.Name(self.name, ast.Load()))
        for key, value in (("site", site), ("scheme", self.schemes.get(site))):
            if value is not None:
                keywords.append(here(ast.keyword(key, here(ast.Constant(value)))))
        if parts.native is not None:
            keywords.append(here(ast.keyword("native", parts.native)))
        function = here(ast.Attribute(runtime, spelling.RUNTIME, ast.Load()))
        call = ast.copy_location(ast.Call(function, parts.arguments, keywords), node)
        statement = getattr(spelling, "statement", None)  # of a product that is no expression
        return statement(node, call) if statement else call

    def may_hold_product(self, node: ast.AST) -> bool:
        if not isinstance(node, LOCATED):
            return bool(node._fields)  # as contexts and operators have none
        if getattr(node, "decorator_list", None):  # the location leaves them out
            return True
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = bisect.bisect_left(self.starts, _starts(node))
        return first < bisect.bisect_left(self.starts, (node.end_lineno, node.end_col_offset))


def _starts(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def same(one: ast.AST, other: ast.AST) -> bool:
    """Return whether two trees are equal except for their locations. Does not recurse."""
    pairs: list[tuple[object, object]] = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, ast.AST):
            fields, others = vars(left), vars(right)
            for name in left._fields:
                pair = fields.get(name), others.get(name)
                if pair[0] is not pair[1]:  # as most names are, and all that trees share
                    pairs.append(pair)
        elif left != right and not (left != left and right != right):
            return False
    return True


def _keywords(site: str, scheme: str | None, native: str | None, encoding: str) -> str:
    """The runtime's keyword arguments as text, with characters that the file's encoding has."""
    text = f", site={_literal(site, encoding)}"
    text += "" if scheme is None else f', scheme="{scheme}"'
    return text if native is None else f"{text}, native={native}"


def _literal(site: str, encoding: str) -> str:
    try:
        site.encode(encoding)
    except UnicodeError:
        return ascii(site)
    is_plain = site.isprintable() and '"' not in site and "\\" not in site
    return f'"{site}"' if is_plain else repr(site)


def position(tree: ast.Module) -> int:
    """The number of statements that stay before the import: docstring and future imports."""
    body = tree.body
    count = int(ast.get_docstring(tree, clean=False) is not None)
    while count < len(body) and getattr(body[count], "module", None) == "__future__":
        count += 1
    return count


def alias(tree: ast.Module, text: str) -> str:
    """The name for the runtime: from an import in the file, else a name that is not in use."""
    before = position(tree)
    for statement in tree.body[before:]:
        if name := imported_as(statement):
            return name
    number = 0
    name = ALIAS
    while name in text and re.search(rf"\b{name}\b", text):
        number += 1
        name = f"{ALIAS}_{number}"
    return name


def is_imported(tree: ast.Module, name: str) -> bool:
    """Return whether the file has the import that an earlier rewriting added."""
    return any(imported_as(statement) == name for statement in tree.body)


def imported_as(statement: ast.stmt) -> str | None:
    """The name that an `import mixpert_py as _mixpert` statement binds; None for others."""
    if isinstance(statement, ast.Import) and len(statement.names) == 1:
        name = statement.names[0]
        if name.name == PACKAGE and name.asname and re.fullmatch(r"_mixpert(_\d+)?", name.asname):
            return name.asname
    return None


def import_edit(tree: ast.Module, source: Source, name: str) -> Edit:
    """The import as a line of its own, where a person would put it.

    It stands before a first statement that is an import, else after the docstring, the future
    imports or the opening comment. What follows a docstring on its line moves behind the import.
    """
    text = source.text
    before = position(tree)
    line = f"import {PACKAGE} as {name}"
    first = source.span(tree.body[before])[0]
    if before:
        end = source.span(tree.body[before - 1])[1]
        if SAME_LINE.fullmatch(without_comments(text[end:first])):
            newline = _newline(source, first)
            return Edit(first, first, f"{newline}{line}{SPLIT_MARK}{newline}", True, -1)
        newline_after = NEWLINE.search(text, end)
        at = newline_after.end() if newline_after else len(text)
    else:
        at = _after_opening_comment(text)
    if isinstance(tree.body[before], ast.Import | ast.ImportFrom):
        at = source.line_starts[tree.body[before].lineno - 1]
    return Edit(at, at, f"{line}{MARK}{_newline(source, at)}", True, -1)


def _after_opening_comment(text: str) -> int:
    """The offset after the first block of comment lines; 0 if the file opens with code."""
    at = 0
    while blank := BLANK_LINE.match(text, at):
        at = blank.end()
    if not COMMENT_LINE.match(text, at):
        return 0
    while (comment := COMMENT_LINE.match(text, at)) and comment[0]:
        at = comment.end()
    return at


def _newline(source: Source, at: int) -> str:
    """The file's newline, unless it would join with a character beside it."""
    beside = source.text[at - 1 : at] == "\r", source.text[at : at + 1] == "\n"
    if source.newline == "\n" and beside[0]:
        return "\r"
    return "\n" if source.newline == "\r" and beside[1] else source.newline
