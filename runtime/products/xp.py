"""`xp_product`: a call of a function that may be a product of NumPy or CuPy, or anything else."""

import functools
import sys
from collections.abc import Callable, Set
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import current, innermost
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner, tensordot
from mixpert_py.runtime.products.multi_dot import matrix_power, multi_dot
from mixpert_py.runtime.products.rearranged import as_arrays
from mixpert_py.runtime.products.tensors import torch_matmul
from mixpert_py.runtime.program_frames import pass_over, trim, trimmed
from mixpert_py.runtime.request import Native, Own


def _dot_of(*operands: object, native: Any, **given: Any) -> Any:
    """The product by an array's own method, which `native` is."""
    return dot_method(native.__self__, *operands, **given)


class Known(NamedTuple):
    """A function of the runtime: the number of arguments it takes, those taken by name, and the
    smallest number of operands.
    """

    product: Callable[..., Any]
    max_arguments: float
    options: Set[str]
    min_operands: int = 2


LIBRARIES = ("numpy", "cupy", "dask.array", "operator")
NO_OPTIONS: Set[str] = frozenset()
KNOWN = {
    "matmul": Known(matmul, 3, {"out"}),
    "dot": Known(dot, 3, {"out"}),
    "inner": Known(inner, 2, NO_OPTIONS),
    "tensordot": Known(tensordot, 3, {"axes"}),
    "einsum": Known(einsum, float("inf"), {"out", "optimize"}),
}
LINALG = {
    "multi_dot": Known(multi_dot, 1, {"out"}, min_operands=1),
    "matrix_power": Known(matrix_power, 2, NO_OPTIONS),
}
METHOD = Known(_dot_of, 2, {"out"}, min_operands=1)
OF_TENSORS = Known(torch_matmul, 2, NO_OPTIONS)


# By the ids of functions: the module and the name under which one was found, and its `Known`.
_found: dict[int, tuple[ModuleType, str, Known]] = {}


def xp_product(
    *operands: object,
    native: Native,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    **options: Any,
) -> Any:
    """native(*operands, **options), under the scheme in force if `native` is a product.

    native: anything. For the products of NumPy, CuPy, Dask, PyTorch (matmul) and autograd the
    runtime's functions of their names are called; any other function is called as it is, and an
    array's method `dot` is one. Other arguments and errors as in `matmul`.
    """
    try:
        if type(native) is functools.partial:  # a call of it is this call of its function
            operands, options = (*native.args, *operands), native.keywords | options
            native = native.func
        known = _known(native)
        if known is None or not _takes(known, operands, options.keys()):
            if (trace := innermost.get().context.trace) is not None:
                trace.add_other(site)
            return native(*operands, **options)
        if site not in innermost.get().context.passing:
            _look_up(site)
        if scheme is None and backend is None:  # few names take little time
            return known.product(*operands, **options, site=site, native=native)
        given: Own = {"scheme": scheme, "backend": backend}
        return known.product(*operands, **options, **given, site=site, native=native)
    except BaseException as error:  # `trimmed` would be one more call
        trim(error)
        raise


pass_over(xp_product)


@trimmed
def reduce_product(
    function: Native,
    *operands: Any,
    native: Callable[..., Any],
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
) -> Any:
    """native(function, *operands), where `native` is functools.reduce: products, one after another.

    function: as `native` of `xp_product`, which makes each product. operands: the sequence of
    factors, and the first one if it stands apart. Other arguments and errors as in `matmul`.
    """
    if native is not functools.reduce:
        return native(function, *operands)
    if site not in innermost.get().context.passing:
        _look_up(site)
    given: Own = {"scheme": scheme, "backend": backend}
    return native(functools.partial(xp_product, native=function, site=site, **given), *operands)


def _known(native: Native) -> Known | None:
    """The runtime's function for a library's product; None for any other function."""
    found = _found.get(id(native))
    # Asked at each call: the program may have put another function there.
    if found is not None and getattr(found[0], found[1], None) is native:
        return found[2]
    # A primitive of autograd keeps the function that it wraps.
    function = getattr(native, "fun", native) if type(native) is FunctionType else native
    name = getattr(function, "__name__", None)
    if type(name) is not str:
        return None
    if name in LINALG:
        is_linalg = any(_is_of(f"{library}.linalg", function) for library in LIBRARIES)
        return LINALG[name] if is_linalg else None
    known = KNOWN.get(name)  # for most functions the end of it
    if known is None:
        return None
    for library in LIBRARIES:  # written out: any() would take several calls
        module = sys.modules.get(library)
        if function is getattr(module, name, None):
            if module is not None and function is native:
                _found[id(native)] = module, name, known
            return known
    if name == "dot" and as_arrays(getattr(native, "__self__", None)):
        return METHOD
    return OF_TENSORS if name == "matmul" and _is_of("torch", function) else None


def _is_of(library: str, function: Native) -> bool:
    """Return whether a library has this very function under the function's name."""
    return function is getattr(sys.modules.get(library), function.__name__, None)


def _takes(known: Known, operands: tuple[object, ...], options: Set[str]) -> bool:
    """Whether the runtime's function takes these arguments."""
    count = len(operands) + (known.max_arguments == 3 and len(options))
    if len(operands) < known.min_operands or count > known.max_arguments:
        return False
    return options <= known.options


def _look_up(site: str | None) -> None:
    """Look the site up at the depth of calls at which a warning of a stale plan names the program's
    own line.
    """
    current().choice(site)
