"""The passes in order: bytes of a file → its call sites, its rewritten text, its rewritten tree.

Each step is cheap enough for what reaches it: a text filter, then `ast` and its scopes, then
LibCST, which only sees the statements with a product that would be rewritten, and the imports.
"""

import ast
from functools import lru_cache

from mixpert_py.errors import SourceError
from mixpert_py.passes import dependency, imports
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.dependency import Dependencies
from mixpert_py.passes.edit import splice
from mixpert_py.passes.pragma import Pragmas
from mixpert_py.passes.reading import Reading, read
from mixpert_py.passes.source import parse, preorder, refusing_depth
from mixpert_py.passes.spellings import Spelling
from mixpert_py.passes.substitution import (
    Restore,
    Settings,
    Substitute,
    runtime_calls,
    same,
    text_edits,
)
from mixpert_py.passes.tail import Setting, site_of
from mixpert_py.plan import Plan

# One file is analysed, rewritten and graphed in turn, and LibCST is the cost of each.
_read = lru_cache(maxsize=4)(read)


def analyze(source: bytes, module: str, fuse: bool = False) -> tuple[CallSite, ...]:
    """Every product of a file in source order, those left alone too.

    fuse: sums such as `c += a @ b` are one site with their product, under its id.

    Nothing of the file is imported or run. Raises SourceError, in one line, if the file is too
    large or too deep, or if Python would not accept it.
    """
    return tuple(product.site for product in _read(source, module, fuse).products)


def pragmas(source: bytes, module: str, fuse: bool = False) -> Pragmas:
    """What the comments of a file with products say. Raises SourceError as `analyze` does."""
    return _read(source, module, fuse).comments


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
    reading = _read(source, module, fuse)
    if not reading.rewritten:
        return source
    name = imports.alias(reading.tree, reading.source.text)
    edits = text_edits(reading.rewritten, reading.source, name, _settings(reading, plan, scheme))
    present = imports.is_imported(reading.tree, name)
    if not present:
        edits.append(imports.edit(reading.tree, reading.source, name))
    text = splice(reading.source.text, edits)
    with refusing_depth(module):
        _require_undoable(text, reading, name, added=not present)
    return reading.source.encode(text)


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
    reading = _read(source, module, fuse)
    if not reading.rewritten:
        return parse(reading.source.text, module)
    tree = ast.parse(reading.source.text, filename)
    settings = _settings(reading, plan, scheme)
    twins = dict(zip(preorder(reading.tree), preorder(tree), strict=True))
    name = imports.alias(reading.tree, reading.source.text)
    products: dict[ast.AST, tuple[Spelling, str]] = {}
    for product in reading.rewritten:
        products[twins[product.node]] = (product.spelling, product.site.id)
    with refusing_depth(module):
        Substitute(name, products, settings).visit(tree)
    if not imports.is_imported(reading.tree, name):
        tree.body.insert(imports.position(tree), imports.node(name))
    return tree


def dependencies(source: bytes, module: str) -> Dependencies:
    """How values flow between the products of a file. Raises SourceError as `analyze` does."""
    reading = _read(source, module, False)
    with refusing_depth(module):
        return dependency.graph(reading.tree, reading.names, reading.rewritten)


def _settings(reading: Reading, plan: Plan | None, scheme: str | None) -> Settings:
    """Scheme and block length of the sites that have one."""
    ids = {product.site.id: product.scheme for product in reading.rewritten}
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


def _require_undoable(text: str, reading: Reading, name: str, added: bool) -> None:
    """Raise SourceError unless the rewritten text, with the products put back, is the original."""
    try:
        tree = parse(text, reading.source.module)
    except SourceError as error:
        raise SourceError(f"{error} (after rewriting; the file is left as it is)") from None
    if added:
        del tree.body[imports.position(reading.tree)]
    spellings = {p.site.id: p.spelling for p in reading.rewritten}
    calls = ((call, site_of(call)) for call in runtime_calls(tree, name))
    Restore({call: spellings[site] for call, site in calls if site in spellings}).visit(tree)
    if not same(tree, reading.tree):
        raise SourceError(
            f"{reading.source.module}: the rewritten text does not mean the same; "
            "the file is left as it is"
        )
