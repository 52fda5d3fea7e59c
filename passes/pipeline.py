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

from mixpert_py.errors import SourceError
from mixpert_py.passes.finder import Analysis, CallSite, analysis_of
from mixpert_py.passes.rewrite import (
    Setting,
    Settings,
    Substitute,
    alias,
    import_edit,
    import_node,
    is_imported,
    position,
    same,
    text_edits,
)
from mixpert_py.passes.source import Pragmas, decode, parse, refusing_depth
from mixpert_py.passes.spellings import splice
from mixpert_py.plan import Plan


def analyze(source: bytes, module: str) -> tuple[CallSite, ...]:
    """Every product of a file in source order, including products that are left alone.

    Nothing of the file is imported or run. Raises SourceError, in one line, if the file is too
    large or too deep, or if Python would not accept it.
    """
    return tuple(product.site for product in analysis_of(source, module).products)


def require_syntax(source: bytes, module: str) -> None:
    """Raise SourceError, in one line, if Python's parser does not accept a file.

    `analyze` does not parse a file without a word of a product.
    """
    parse(decode(source, module).text, module)


def pragmas(source: bytes, module: str) -> Pragmas:
    """The pragmas of a file with products. Raises SourceError as `analyze` does."""
    return analysis_of(source, module).comments


def rewrite(
    source: bytes,
    module: str,
    plan: Plan | None = None,
    scheme: str | None = None,
) -> bytes:
    """The file with its products as runtime calls; the very same bytes if it has none.

    A site takes its comment's scheme, else the plan's, else `scheme`, else none is written.
    Rewriting twice equals rewriting once. Raises SourceError as `analyze` does, and if the result
    does not parse to the tree of `rewrite_tree`.
    """
    analysis = analysis_of(source, module)
    if not analysis.rewritten:
        return source
    name = alias(analysis.tree, analysis.source.text)
    settings = _settings(analysis, plan, scheme)
    edits = text_edits(analysis.rewritten, analysis.source, name, settings)
    if not is_imported(analysis.tree, name):
        edits.append(import_edit(analysis.tree, analysis.source, name))
    text = splice(analysis.source.text, edits)
    with refusing_depth(module):
        try:
            written = parse(text, module)
        except SourceError as error:
            raise SourceError(f"{error} (after rewriting; the file is left as it is)") from None
        if not same(written, _substituted(analysis, settings)):
            raise SourceError(
                f"{module}: the rewritten text does not mean the same; the file is left as it is"
            )
    return analysis.source.encode(text)


def rewrite_tree(
    source: bytes,
    module: str,
    filename: str,
    plan: Plan | None = None,
    scheme: str | None = None,
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
        tree = _substituted(analysis, _settings(analysis, plan, scheme))
    analysis_of.cache_clear()  # its tree shares the statements without a product
    return tree


def _substituted(analysis: Analysis, settings: Settings) -> ast.Module:
    """The tree with runtime calls in place of products, and the import.

    It shares statements without a product with the analysed tree, which is not changed.
    """
    tree = analysis.tree
    products = {product.node: (product.spelling, product.site.id) for product in analysis.rewritten}
    name = alias(tree, analysis.source.text)
    substituted = Substitute(name, products, settings).visit(tree)
    assert isinstance(substituted, ast.Module)
    if not is_imported(tree, name):
        substituted.body.insert(position(tree), import_node(name))
    return substituted


def _settings(analysis: Analysis, plan: Plan | None, scheme: str | None) -> Settings:
    """The schemes of the sites that have one."""
    ids = {product.site.id: product.scheme for product in analysis.rewritten}
    settings: dict[str, Setting] = {}
    for site, own_scheme in ids.items():
        if own_scheme is not None:  # a comment on the line of the product
            settings[site] = {"scheme": own_scheme}
            continue
        entry = plan.find(site) if plan else None
        # An entry found by its hash is stale, unless it is another site of this very file.
        if entry is not None and (entry.id == site or entry.id not in ids):
            settings[site] = {"scheme": entry.scheme}
        elif scheme is not None:
            settings[site] = {"scheme": scheme}
    return settings
