"""Product: a call site with its node in the tree and the spelling that can rewrite it."""

import ast
from dataclasses import dataclass

from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.spellings import Spelling


@dataclass(frozen=True, eq=False)
class Product:
    """A call site in its tree. scheme: the one that a comment asks for."""

    site: CallSite
    node: ast.AST
    spelling: Spelling
    scheme: str | None = None
