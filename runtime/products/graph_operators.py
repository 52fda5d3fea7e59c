"""The operators `mixpert::mm` and `mixpert::bmm` of PyTorch's graphs, and when they gain.

The pass over graphs (`passes.fx`) puts them in the place of PyTorch's own products. They are called
by compiled code, below autograd. While a CUDA graph is captured they launch what earlier calls have
prepared, in memory of PyTorch's allocator; where nothing is prepared, the product is native.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.arrays import default_scheme, name_of
from mixpert_py.runtime.backends import emulates
from mixpert_py.runtime.gpu import foreign
from mixpert_py.runtime.products.below_autograd import on_arrays
from mixpert_py.runtime.products.tensors import SHAPES, torch_matmul
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Settings
from mixpert_py.runtime.select import scheme_on_device
from mixpert_py.runtime.signatures import NATIVE

DTYPES = frozenset({"float32", "float64"})
SCHEMA = "{}(Tensor a, Tensor b, str site, str? scheme, int? block, str? backend) -> Tensor"
UNKNOWN = 4096  # an extent that the compiler does not know


class Operand(NamedTuple):
    """The properties of a graph's operand that the choice of a scheme needs."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)


def operand_of(fake: Any) -> Operand:
    """The operand that a fake tensor stands for, with the current values of extents that may
    change.
    """
    extents = (x if isinstance(x, int) else getattr(x.node, "hint", None) for x in fake.shape)
    return Operand(tuple(UNKNOWN if x is None else int(x) for x in extents), fake.dtype)


def gains(name: str, a: Any, b: Any, scheme: str | None, backend: str | None) -> bool:
    """Whether a product of two fake tensors takes a scheme; None means the default scheme."""
    if a.dtype != b.dtype or name_of(a.dtype) not in DTYPES or a.device != b.device:
        return False
    if a.device.type != "cuda":
        return a.device.type == "cpu" and (scheme is not None or emulates(backend))
    torch = sys.modules["torch"]
    native = getattr(torch, name)
    call = Call(native, operand_of(a), operand_of(b), (), None, SHAPES[name], takes_tensors=True)
    place = foreign.Placement(a.device.index, foreign.torch_is_full, foreign.Borrowed, "torch")
    return not isinstance(scheme_on_device(call, scheme, place, backend), Reason)


def operators() -> dict[str, Any]:
    """The operators by name; the first call defines them in PyTorch's dispatcher."""
    _library()
    return {name: getattr(sys.modules["torch"].ops.mixpert, name).default for name in SHAPES}


@cache
def _library() -> Any:
    """The object with which the operators' definitions end."""
    torch: Any = sys.modules["torch"]
    library = torch.library.Library("mixpert", "DEF")
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    for name in SHAPES:
        library.define(SCHEMA.format(name), tags=tags)
        for key in ("CPU", "CUDA"):
            library.impl(name, _implementation(torch, getattr(torch, name)), key)
        torch.library.register_fake(f"mixpert::{name}", _fake, lib=library)
    return library


def _fake(a: Any, b: Any, *settings: Any) -> Any:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _implementation(torch: Any, native: Callable[..., Any]) -> Callable[..., Any]:
    is_capturing, shape_of = torch.cuda.is_current_stream_capturing, SHAPES[native.__name__]

    def product(
        a: Any, b: Any, site: str, scheme: str | None, block: int | None, backend: str | None
    ) -> Any:
        if a.is_cpu:
            call = on_arrays(Call(native, a, b, (), None, shape_of))
            result = carry_out(call, Settings(scheme, block, backend, site or None))[0]
            return torch.from_numpy(np.ascontiguousarray(result))
        if is_capturing():
            return _captured(native, a, b, scheme, block)
        return torch_matmul(
            *(a, b),
            native=native,
            scheme=scheme,
            block=block,
            backend=backend,
            site=site or None,
        )

    return product


def _captured(
    native: Callable[..., Any], a: Any, b: Any, scheme: str | None, block: int | None
) -> Any:
    """The product by launches that were prepared before the capture, else natively."""
    from mixpert_py.runtime.gpu.prepared import prepared_tensors

    taken = scheme or default_scheme(name_of(a.dtype)) or "native"
    ready = prepared_tensors(taken, block, a, b, is_chosen=scheme is not None)
    value = None if ready is None else ready(a, b)
    return native(a, b) if value is None or value is NATIVE else value
