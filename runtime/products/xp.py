"""`xp_product`: a call of a function that may be a product of NumPy's or CuPy's, or anything."""

import sys
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import current, passes
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.request import Native


class Known(NamedTuple):
    """A product of ours: how many arguments it takes by position, and which by name."""

    product: Callable[..., Any]
    most: float
    options: Collection[str]


KNOWN = {
    "matmul": Known(matmul, 3, {"out"}),
    "dot": Known(dot, 3, {"out"}),
    "inner": Known(inner, 2, ()),
    "tensordot": Known(tensordot, 3, {"axes"}),
    "einsum": Known(einsum, float("inf"), {"out", "optimize", "dtype", "order", "casting"}),
}


def xp_product(
    *operands: Any,
    native: Native,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    block: int | None = None,
    **options: Any,
) -> Any:
    """native(*operands, **options), under the scheme in force if `native` is a product.

    native: anything. NumPy's and CuPy's own matmul, dot, inner, tensordot and einsum do what our
    functions of these names do; all else is called and nothing more. Other arguments and errors as
    in `matmul`.
    """
    known = _known(native)
    if known is None or not _takes(known, operands, options):
        return native(*operands, **options)
    if not passes(site):
        _choose(site)
    ours = {"scheme": scheme, "backend": backend, "site": site, "block": block, "native": native}
    return known.product(*operands, **options, **ours)


def _known(native: Native) -> Known | None:
    """Ours for a function, if it is one of theirs."""
    modules = (np, sys.modules.get("cupy"), sys.modules.get("dask.array"))
    for name, known in KNOWN.items():
        if any(native is getattr(module, name, None) for module in modules if module):
            return known
    return None


def _takes(known: Known, operands: tuple[Any, ...], options: dict[str, Any]) -> bool:
    count = len(operands) + (known.most == 3 and len(options))
    return len(operands) >= 2 and count <= known.most and options.keys() <= set(known.options)


def _choose(site: str | None) -> None:
    """Look the site up from here, where a warning of a stale plan finds the program's own line."""
    current().choice(site)
