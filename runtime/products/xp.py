"""`xp_product`: a call of a function that may be a product of NumPy or CuPy, or anything else."""

import sys
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import current, passes
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.request import Native


class Known(NamedTuple):
    """A function of the runtime, the most arguments that it takes, and those taken by name."""

    product: Callable[..., Any]
    max_arguments: float
    options: Collection[str]


LIBRARIES = ("numpy", "cupy", "dask.array")
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

    native: anything. For matmul, dot, inner, tensordot and einsum of NumPy, CuPy and Dask the
    runtime's functions of these names are called; any other function is called as it is. Other
    arguments and errors as in `matmul`.
    """
    known = _known(native)
    if known is None or not _takes(known, operands, options):
        return native(*operands, **options)
    if not passes(site):
        _look_up(site)
    if scheme is None and backend is None and block is None:  # few names take little time
        return known.product(*operands, **options, site=site, native=native)
    ours = {"scheme": scheme, "backend": backend, "site": site, "block": block, "native": native}
    return known.product(*operands, **options, **ours)


def _known(native: Native) -> Known | None:
    """The runtime's function for a library's product; None for any other function."""
    known = KNOWN.get(getattr(native, "__name__", ""))  # for most functions the end of it
    if known is None:
        return None
    for library in LIBRARIES:
        # Asked at each call: the program may have put another function there.
        if native is getattr(sys.modules.get(library), native.__name__, None):
            return known
    return None


def _takes(known: Known, operands: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether the runtime's function takes these arguments."""
    count = len(operands) + (known.max_arguments == 3 and len(options))
    if len(operands) < 2 or count > known.max_arguments:
        return False
    return options.keys() <= set(known.options)


def _look_up(site: str | None) -> None:
    """Look the site up at the depth of calls at which a warning of a stale plan names the program's
    own line.
    """
    current().choice(site)
