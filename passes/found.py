"""Found: what a spelling says about a node that is written its way."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A product. `names`: what the called name means, so that a second reader can confirm it.

    product: what the site is called after, where that is but a part of the node.
    """

    kind: str
    reason: str | None = None
    names: frozenset[str] = frozenset()
    product: ast.expr | None = None
