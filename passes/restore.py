"""The inverse of a rewriting: the text that a rewritten one was made from, call by call.

Only the rewritten text is needed, since every edit has its inverse. A call is restored only if that
is certain: if rewriting the restored text gives the same text again.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mixpert_py.errors import SourceError
from mixpert_py.passes import imports
from mixpert_py.passes.call_site import CallSite, Product
from mixpert_py.passes.edits import Edit, moved, splice
from mixpert_py.passes.keywords import RuntimeKeywords, Setting, site_of
from mixpert_py.passes.keywords import read as read_keywords
from mixpert_py.passes.rewrite import Substitute, runtime_calls, same, text_edits
from mixpert_py.passes.source import (
    Source,
    children,
    decode,
    parse,
    refusing_depth,
    require_few_tokens,
)
from mixpert_py.passes.spellings import WRITTEN, Spelling

CHANGED = "the call was changed after it was written"


@dataclass(frozen=True, slots=True)
class Restored:
    """A file before it was rewritten.

    sites: the restored products, and with a reason the calls that stay; each has its place in the
    rewritten file.
    """

    source: bytes
    sites: tuple[CallSite, ...]


@dataclass(frozen=True, eq=False)
class _Written:
    """A runtime call with the spelling that wrote it, and the edits that restore the product."""

    call: ast.Call
    keywords: RuntimeKeywords
    spelling: Spelling
    edits: tuple[Edit, ...]


def restore(raw: bytes, module: str) -> Restored:
    """Restore every product that is certain, and remove the import if no call is left.

    The bytes that `rewrite` returned become those that it was given. Raises SourceError as
    `rewrite` does.
    """
    source = decode(raw, module)
    if imports.PACKAGE not in source.text:
        return Restored(raw, ())
    require_few_tokens(source)
    tree = parse(source.text, module)
    name = next(filter(None, map(imports.imported_as, tree.body)), None)
    if name is None:
        return Restored(raw, ())
    with refusing_depth(module):
        calls = runtime_calls(tree, name)
        written = _written(calls, source)
        certain = _certain(written, source, name)
        if len(certain) < len(written) and not _rewrites_back(certain, source, name):
            raise SourceError(
                f"{module}: its runtime calls cannot be told apart; it is left as it is"
            )
    edits = [edit for found in certain for edit in found.edits]
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))
    if uses == len(certain) and (removal := imports.undo(tree, source, name)):
        edits.append(removal)
    restored = {found.call for found in certain}
    sites = tuple(
        _site(str(site_of(call)), call, source, None if call in restored else CHANGED)
        for call in calls
    )
    return Restored(source.encode(splice(source.text, edits)), sites)


def _written(calls: Mapping[ast.Call, str], source: Source) -> list[_Written]:
    """Find the calls that have the form in which a spelling writes them."""
    found = [one for call, runtime in calls.items() if (one := _find(call, runtime, source))]
    settings: dict[str, Setting] = {}
    return [
        one
        for one in found
        if settings.setdefault(one.keywords.site, one.keywords.setting) == one.keywords.setting
    ]


def _find(call: ast.Call, runtime: str, source: Source) -> _Written | None:
    """Recognise the spelling that wrote a call; None if none writes this form."""
    keywords = read_keywords(call, source)
    if keywords is None:
        return None
    for spelling in WRITTEN:
        if runtime == spelling.RUNTIME and (edits := spelling.undo(call, source, keywords)):
            return _Written(call, keywords, spelling, tuple(edits))
    return None


def _certain(written: Sequence[_Written], source: Source, name: str) -> list[_Written]:
    """The calls that can be restored: all of them, unless the file was edited."""
    if not written or _rewrites_back(written, source, name):
        return list(written)
    if len(written) == 1:
        return []
    half = len(written) // 2
    return [
        *_certain(written[:half], source, name),
        *_certain(written[half:], source, name),
    ]


def _rewrites_back(written: Sequence[_Written], source: Source, name: str) -> bool:
    """Whether rewriting the restored text gives the text and the tree that are there."""
    edits = [edit for found in written for edit in found.edits]
    text = splice(source.text, edits)
    restored = Source(source.module, text, source.encoding, source.bom)
    try:
        tree = parse(text, source.module)
    except SourceError:
        return False
    products = _products(written, edits, source, restored, tree)
    if products is None:
        return False
    settings = {found.keywords.site: found.keywords.setting for found in written}
    if splice(text, text_edits(products, restored, name, settings)) != source.text:
        return False
    calls = {product.node: (product.spelling, product.site.id) for product in products}
    rewritten = Substitute(name, calls, settings).visit(tree)
    return same(rewritten, parse(source.text, source.module))


def _products(
    written: Sequence[_Written],
    edits: Sequence[Edit],
    source: Source,
    restored: Source,
    tree: ast.Module,
) -> list[Product] | None:
    """The products in the restored text; None if one does not stand where its call stood."""
    nodes: dict[tuple[int, int], ast.expr | ast.stmt] = {}
    pending: list[ast.AST] = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.JoinedStr):
            continue  # nothing in it is rewritten, and Python 3.11 has no usable locations there
        pending += children(part)
        if isinstance(part, ast.BinOp | ast.Call | ast.AugAssign):
            start, end = restored.span(part)
            # The call of an assignment begins behind its target, and ends where the product does.
            nodes[-1 if isinstance(part, ast.AugAssign) else start, end] = part
    move = moved(edits)
    products = []
    for found in written:
        start, end = map(move, source.span(found.call))
        node = nodes.get((start, end)) or nodes.get((-1, end))
        if node is None or not found.spelling.matches(node):
            return None
        site = _site(found.keywords.site, node, restored, None)
        products.append(Product(site, node, found.spelling))
    return sorted(products, key=lambda product: (product.site.span[0], -product.site.span[1]))


def _site(site: str, node: ast.expr | ast.stmt, source: Source, reason: str | None) -> CallSite:
    span = source.span(node)
    line, column = source.position(span[0])
    expression = " ".join(source.text[slice(*span)].split())
    kind = site.rpartition("/")[2].partition("~")[0]
    return CallSite(site, kind, line, column + 1, expression, reason, span)
