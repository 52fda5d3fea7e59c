"""The cross-check: LibCST must read the text of a product as that product, or it stays unchanged.

LibCST has its own parser. Of a file it reads the products alone, at the places that `ast` gives:
that tells a wrong place, and takes a tenth of the time of the whole file.
"""

from collections.abc import Iterable
from typing import Any

import libcst as cst

from mixpert_py.errors import SourceError
from mixpert_py.passes.source import has_tokens

# LibCST takes 2.5 kB and a hundredth of a millisecond for each token.
MAX_CHARACTERS = 1 << 20
MAX_TOKENS = 150_000
OPERATORS = {
    "@": (cst.BinaryOperation, cst.MatrixMultiply),
    "@=": (cst.AugAssign, cst.MatrixMultiplyAssign),
}


def refusals(module: str, products: Iterable[tuple[str, str]]) -> list[str | None]:
    """Why LibCST does not confirm each product, a text and its sign ("" for a call), or None."""
    products = list(products)
    whole = "\n".join(text for text, _ in products)
    if len(whole) > MAX_CHARACTERS or has_tokens(whole, MAX_TOKENS):
        raise SourceError(
            f"{module}: more than {MAX_TOKENS:,} words or {MAX_CHARACTERS >> 20} MiB in its "
            "products; the file is skipped"
        )
    return [_refusal(text, sign) for text, sign in products]


def _refusal(text: str, sign: str) -> str | None:
    read: Any
    try:
        if sign == "@=":
            read = cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine).body[0]
        else:
            read = cst.parse_expression(f"({text}\n)")
    except (MemoryError, RecursionError):
        raise
    except Exception:  # of several types
        return "LibCST does not read it"
    if not sign:
        return None if isinstance(read, cst.Call) else "LibCST finds no call here"
    kind, operator = OPERATORS[sign]
    is_product = isinstance(read, kind) and isinstance(read.operator, operator)
    return None if is_product else f"LibCST finds no {sign} here"
