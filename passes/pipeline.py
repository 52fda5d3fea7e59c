"""The passes in order: bytes of a file → its call sites, its rewritten text, its rewritten tree.

Each step is cheap enough for what reaches it: a text filter, then `ast` and its scopes, then
LibCST, which only sees the statements with a product that would be rewritten, and the imports.
"""

import ast
from functools import lru_cache

from mixpert_py.errors import SourceError
from mixpert_py.passes import imports
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.dataflow import graph
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.passes.edits import splice
from mixpert_py.passes.finder import Analysis, find_products
from mixpert_py.passes.keywords import Setting, site_of
from mixpert_py.passes.pragma import Pragmas
from mixpert_py.passes.rewrite import (
    Restore,
    Settings,
    Substitute,
    runtime_calls,
    same,
    text_edits,
)
from mixpert_py.passes.source import parse, preorder, refusing_depth
from mixpert_py.passes.spellings import Spelling
from mixpert_py.plan import Plan

# One file is analysed, rewritten and graphed in turn, and LibCST is the cost of each.
_analysis = lru_cache(maxsize=4)(find_products)


def analyze(source: bytes, module: str, fuse: bool = False) -> tuple[CallSite, ...]:
    """Every product of a file in source order, those left alone too.

    fuse: sums such as `c += a @ b` are one site with their product, under its id.

    Nothing of the file is imported or run. Raises SourceError, in one line, if the file is too
    large or too deep, or if Python would not accept it.
    """
    return tuple(product.site for product in _analysis(source, module, fuse).products)


def pragmas(source: bytes, module: str, fuse: bool = False) -> Pragmas:
    """What the comments of a file with products say. Raises SourceError as `analyze` does."""
    return _analysis(source, module, fuse).comments


def rewrite(
    source: bytes,
    module: str,
    plan: Plan | None = None,
    scheme: str | None = None,
    fuse: bool = False,
) -> bytes:
    """The file with its products as runtime calls; without such a product, the very same bytes.

    A site takes its comment's scheme, else the plan's, else `scheme`, else none is written. fuse:
    as in `analyze`. Rewriting twice equals rewriting once. Raises SourceError as `analyze` does,
    and if undoing the change in the result's syntax tree does not give the original tree.
    """
    analysis = _analysis(source, module, fuse)
    if not analysis.rewritten:
        return source
    name = imports.alias(analysis.tree, analysis.source.text)
    edits = text_edits(analysis.rewritten, analysis.source, name, _settings(analysis, plan, scheme))
    present = imports.is_imported(analysis.tree, name)
    if not present:
        edits.append(imports.edit(analysis.tree, analysis.source, name))
    text = splice(analysis.source.text, edits)
    with refusing_depth(module):
        _require_undoable(text, analysis, name, added=not present)
    return analysis.source.encode(text)


def rewrite_tree(
    source: bytes,
    module: str,
    filename: str,
    plan: Plan | None = None,
    scheme: str | None = None,
    fuse: bool = False,
) -> ast.Module:
    """The same change made to the syntax tree, to be compiled and run instead of the file.

    Every node keeps its original location, so tracebacks and debuggers show the file's own lines;
    the import has line 1 and stands behind the docstring. The tree is the caller's own.
    """
    analysis = _analysis(source, module, fuse)
    if not analysis.rewritten:
        return parse(analysis.source.text, module)
    tree = ast.parse(analysis.source.text, filename)
    settings = _settings(analysis, plan, scheme)
    twins = dict(zip(preorder(analysis.tree), preorder(tree), strict=True))
    name = imports.alias(analysis.tree, analysis.source.text)
    products: dict[ast.AST, tuple[Spelling, str]] = {}
    for product in analysis.rewritten:
        products[twins[product.node]] = (product.spelling, product.site.id)
    with refusing_depth(module):
        Substitute(name, products, settings).visit(tree)
    if not imports.is_imported(analysis.tree, name):
        tree.body.insert(imports.position(tree), imports.node(name))
    return tree


def dependencies(source: bytes, module: str) -> Dependencies:
    """How values flow between the products of a file. Raises SourceError as `analyze` does."""
    analysis = _analysis(source, module, False)
    with refusing_depth(module):
        return graph.graph(analysis.tree, analysis.names, analysis.rewritten)


def _settings(analysis: Analysis, plan: Plan | None, scheme: str | None) -> Settings:
    """Scheme and block length of the sites that have one."""
    ids = {product.site.id: product.scheme for product in analysis.rewritten}
    settings: dict[str, Setting] = {}
    for site, asked in ids.items():
        if asked is not None:  # by the program's author, at this very place
            settings[site] = {"scheme": asked}
            continue
        entry = plan.find(site) if plan else None
        # An entry found by its hash is stale, unless it is another site of this very file.
        if entry is not None and (entry.id == site or entry.id not in ids):
            block = {} if entry.block is None else {"block": entry.block}
            settings[site] = {"scheme": entry.scheme, **block}
        elif scheme is not None:
            settings[site] = {"scheme": scheme}
    return settings


def _require_undoable(text: str, analysis: Analysis, name: str, added: bool) -> None:
    """Raise SourceError unless the rewritten text, with the products put back, is the original."""
    try:
        tree = parse(text, analysis.source.module)
    except SourceError as error:
        raise SourceError(f"{error} (after rewriting; the file is left as it is)") from None
    if added:
        del tree.body[imports.position(analysis.tree)]
    spellings = {p.site.id: p.spelling for p in analysis.rewritten}
    calls = ((call, site_of(call)) for call in runtime_calls(tree, name))
    Restore({call: spellings[site] for call, site in calls if site in spellings}).visit(tree)
    if not same(tree, analysis.tree):
        raise SourceError(
            f"{analysis.source.module}: the rewritten text does not mean the same; "
            "the file is left as it is"
        )
