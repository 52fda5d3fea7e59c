"""Products in functions that `torch.compile` compiles.

*Calls of rewritten code.* Dynamo, which reads a function's bytecode, takes such a call for that of
the program's own product, and notes the call site beside it: the pass over graphs
(`passes.torch_graphs`) finds the note, in the forward and in the backward pass. A call that has no
product of PyTorch's to stand for it is made as it is: what comes before and after it becomes a
graph each.

*Operators.* The pass puts `mixpert::mm` and `mixpert::bmm` in the place of PyTorch's own products
where these gain. Compiled code calls the operators below autograd. While a CUDA graph is captured
they launch what earlier calls have prepared, in memory of PyTorch's allocator; where nothing is
prepared, the product is native.
"""

import operator
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.arrays import Tensor, default_scheme, name_of
from mixpert_py.runtime.backends import emulates
from mixpert_py.runtime.gpu import foreign
from mixpert_py.runtime.products.below_autograd import on_arrays, skip
from mixpert_py.runtime.products.tensors import SHAPES, torch_matmul
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, Settings
from mixpert_py.runtime.select import scheme_on_device
from mixpert_py.runtime.signatures import NATIVE

NOTE = "mixpert"  # the key of the note in a node's `custom` field
OWN = ("scheme", "backend")

# The modules whose functions rewritten code calls.
MODULES = (
    *("api", "products.blas", "products.einsum", "products.in_place", "products.inner"),
    *("products.multi_dot", "products.tensors", "products.xp"),
)


# What a call without a function `native` is in a graph. Dynamo knows NumPy's functions where code
# looks them up alone.
NATIVES: Mapping[str, Native] = {
    "dot": lambda *operands, **named: np.dot(*operands, **named),
    "dot_method": lambda a, *operands, **named: a.dot(*operands, **named),
    "einsum": lambda *operands, **named: np.einsum(*operands, **named),
    "imatmul": operator.imatmul,
    "matrix_power": lambda *operands: np.linalg.matrix_power(*operands),
    "inner": lambda *operands, **named: np.inner(*operands, **named),
    "multi_dot": lambda *operands, **named: np.linalg.multi_dot(*operands, **named),
    "tensordot": lambda *operands, **named: np.tensordot(*operands, **named),
}
_done = False


def follow() -> None:
    """Tell Dynamo, once, what the runtime's functions are in a graph. PyTorch's compiler must have
    been imported. Does nothing for a version whose Dynamo cannot be told.
    """
    global _done
    if _done:
        return
    has_notes = hasattr(torch.fx.traceback, "annotate")  # from 2.9 on
    substitute = torch.compiler.substitute_in_graph if has_notes else None
    _done = True
    for name in MODULES:
        module = import_module(f"mixpert_py.runtime.{name}")
        for function in list(vars(module).values()):
            if not isinstance(function, FunctionType) or function.__module__ != module.__name__:
                continue
            native = _native_of(function)
            if native is None or substitute is None:
                function._torchdynamo_disable = True  # type: ignore[attr-defined]
            else:
                substitute(function, skip_signature_check=True)(_traced(native))
            skip(function)  # where it is not read in a graph, it is called from between two


def _native_of(function: FunctionType) -> Callable[..., Any] | None:
    """The native function that replaces a call of this function in a graph, unless the call
    names one; None if the function is not a product.
    """
    function = getattr(function, "__wrapped__", function)  # what `trimmed` has been given
    if function.__name__.startswith("_") or "site" not in (function.__kwdefaults__ or {}):
        return None
    code = function.__code__
    takes_native = "native" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return NATIVES.get(function.__name__, operator.matmul if takes_native else None)


def _traced(default: Native) -> Native:
    """The function that Dynamo reads in the place of one of the runtime's."""

    def noted(
        *operands: object,
        native: Native | None = None,
        site: str | None = None,
        scheme: str | None = None,
        backend: str | None = None,
        **named: object,
    ) -> Any:
        function = default if native is None else native
        note = {"site": site, "scheme": scheme, "backend": backend}
        # Dynamo knows the function by this name alone.
        with torch.fx.traceback.annotate({NOTE: note}):
            return function(*operands, **named)

    return noted


DTYPES = frozenset({"float32", "float64"})
SCHEMA = "{}(Tensor a, Tensor b, str site, str? scheme, str? backend) -> Tensor"
UNKNOWN = 4096  # an extent that the compiler does not know


class Operand(NamedTuple):
    """The properties of a graph's operand that the choice of a scheme needs."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)


def operand_of(fake: Tensor) -> Operand:
    """The operand that a fake tensor stands for, with the current values of extents that may
    change.
    """
    extents = (x if isinstance(x, int) else getattr(x.node, "hint", None) for x in fake.shape)
    return Operand(tuple(UNKNOWN if x is None else int(x) for x in extents), fake.dtype)


def gains(name: str, a: Tensor, b: Tensor, scheme: str | None, backend: str | None) -> bool:
    """Whether a product of two fake tensors takes a scheme; None means the default scheme."""
    if a.dtype != b.dtype or name_of(a.dtype) not in DTYPES or a.device != b.device:
        return False
    if a.device.type != "cuda":
        return a.device.type == "cpu" and (scheme is not None or emulates(backend))
    native = getattr(torch, name)
    call = Call(native, operand_of(a), operand_of(b), (), None, SHAPES[name], takes_tensors=True)
    place = foreign.Placement(a.device.index, "torch")
    return not isinstance(scheme_on_device(call, scheme, place, backend), Reason)


def operators() -> dict[str, Any]:
    """The operators by name; the first call defines them in PyTorch's dispatcher."""
    _library()
    return {name: getattr(torch.ops.mixpert, name).default for name in SHAPES}


@cache
def _library() -> Any:
    """The object with which the operators' definitions end."""
    library: Any = torch.library.Library("mixpert", "DEF")
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    for name in SHAPES:
        library.define(SCHEMA.format(name), tags=tags)
        for key in ("CPU", "CUDA"):
            library.impl(name, _implementation(getattr(torch, name)), key)
        torch.library.register_fake(
            f"mixpert::{name}",
            lambda a, b, *settings: a.new_empty((*a.shape[:-1], b.shape[-1])),
            lib=library,
        )
    return library


def _implementation(native: Native) -> Native:
    is_capturing, shape_of = torch.cuda.is_current_stream_capturing, SHAPES[native.__name__]

    def product(a: Tensor, b: Tensor, site: str, scheme: str | None, backend: str | None) -> Any:
        settings = Settings(scheme, backend, site or None)
        if not a.is_cuda:
            call = on_arrays(Call(native, a, b, (), None, shape_of))
            return torch.from_numpy(np.ascontiguousarray(carry_out(call, settings)[0]))
        if is_capturing():
            return _captured(native, a, b, scheme)
        return torch_matmul(a, b, native=native, scheme=scheme, backend=backend, site=settings.site)

    return product


def _captured(native: Native, a: Any, b: Any, scheme: str | None) -> Any:
    """The product by launches that were prepared before the capture, else natively."""
    from mixpert_py.runtime.gpu.prepared import prepared_tensors

    taken = scheme or default_scheme(name_of(a.dtype)) or "native"
    ready = prepared_tensors(taken, a, b, is_chosen=scheme is not None)
    value = None if ready is None else ready(a, b)
    return native(a, b) if value is None or value is NATIVE else value
