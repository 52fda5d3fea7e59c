"""Cache of decisions: for each call signature, either "run natively" or prepared launches.

The signature of a call of GPU arrays is its site, the function, and the shapes, types and devices
of its operands; of other operands, the site and their types. Two NumPy arrays have no signature:
`Context.passing` has the sites that pass, and `execute` decides about other calls. At the first
call of a signature, `execute` stores one of two things: that its calls are always native, or the
launches that make its products. Later calls find it here. Each context has its own cache: decisions
of a plan, a precision or a backend end with it. A scheme or backend of the call itself is
part of its signature. Nothing is stored for traced calls, or for calls with an `out` that is not on
a GPU.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from numpy import ndarray

from mixpert_py.runtime import worth
from mixpert_py.runtime.request import (
    Call,
    Settings,
    bmm_shape,
    dot_shape,
    is_dask,
    matmul_shape,
    mm_shape,
)

if TYPE_CHECKING:
    from mixpert_py.runtime.context import Context

# The decision for a signature: NATIVE, or a function. The function returns the product, or NATIVE
# if these operands must be multiplied natively, or None if it cannot decide this time. A signature
# has the device of its left operand alone: the right one's takes as long to ask as a small product.
Known = Callable[..., Any]


def NATIVE(a: Any, b: Any) -> None:  # noqa: N802 — a constant, and no function that anybody calls
    """Sentinel: calls with this signature always run natively."""


INTEGERS: Final = ("uint8", "int8", "int16", "int32", "int64")
MOST: Final = 4096  # signatures of a context, after which it begins anew
SHAPES: Final = frozenset({matmul_shape, dot_shape, mm_shape, bmm_shape})

# The types of arrays that may be on a GPU, of those that have been multiplied: how to ask one for
# the number of its device.
device_of: dict[type, Callable[[Any], int]] = {}
# PyTorch's types of integers whose products it makes on a CPU; none without PyTorch.
of_integers: frozenset[Any] = frozenset()
# The number of PyTorch's function modes in force, such as its default device; 0 without PyTorch.
count_modes: Callable[[], int] = int

# Whether `torch.jit.trace` runs; False without PyTorch. It records where the program's calls are
# made: all of a line's at one place, so that it finds them alike again.
is_tracing: Callable[[], bool] = bool

DEVICE_OF_CUPY: Final[Callable[[Any], int]] = attrgetter("data.device_id")

# By type of CuPy's arrays: their native product (a, b, out=None), with the bits of `@` and of the
# library's `native_functions`, and quicker; it returns NATIVE where it cannot make that. See
# `gpu.native`.
native_product_of: dict[type, Callable[..., Any]] = {}
native_functions: list[Any] = []
# What `torch.matmul` makes of two stacks of as many matrices, some µs later.
product_of_stacks: Callable[[Any, Any], Any] = NATIVE

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    # A child knows nothing: CUDA does not survive a fork.
    os.register_at_fork(after_in_child=device_of.clear)
    os.register_at_fork(after_in_child=native_product_of.clear)


def ask_torch() -> None:
    """Make `count_modes` and `is_tracing` ask PyTorch, if it is imported, and know its types."""
    global count_modes, of_integers, is_tracing, product_of_stacks
    torch: Any = sys.modules.get("torch")
    core = getattr(torch, "_C", None)
    of_integers = frozenset(getattr(torch, name, None) for name in INTEGERS)
    count_modes = getattr(core, "_len_torch_function_stack", count_modes)
    is_tracing = getattr(core, "_is_tracing", is_tracing)
    product_of_stacks = getattr(torch, "bmm", NATIVE)
    for kind in () if torch is None else (torch.Tensor, torch.nn.Parameter):
        worth.size_of[kind], device_of[kind] = torch.Tensor.numel, torch.Tensor.get_device


def is_recorded() -> bool:
    """Whether PyTorch's tracer records the program, even if PyTorch is not known yet."""
    core = getattr(sys.modules.get("torch"), "_C", None)
    return bool(getattr(core, "_is_tracing", is_tracing)())


def below_modes() -> AbstractContextManager[Any]:
    """Context manager that hides the runtime's questions to tensors from PyTorch's function
    modes, because a mode belongs to the program and sees what the program does.
    """
    core = getattr(sys.modules.get("torch"), "_C", None)
    return getattr(core, "DisableTorchFunction", nullcontext)()


def has_modes() -> bool:
    """Whether function modes of PyTorch are active besides that of the default device, which
    changes no product.
    """
    default = getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None)
    return count_modes() > (default is not None)


def kept_product(
    context: "Context",
    site: object,
    shape_of: object,
    native: object,
    a: Any,
    b: Any,
    is_below: bool = False,
) -> Any:
    """The product by the cached launches for a call, or by `native_product_of` if the call is known
    to be native; NATIVE if the program's own function has to make it; None if nothing is known, or
    the launches cannot be made.

    native: the function that the program called; None for `@`, and for functions of tensors.
    is_below: whether this is called inside `below_modes`.
    """
    kind = type(a)
    ask = device_of.get(kind)
    try:
        if ask is None or (type(b) is not kind and ask is not device_of.get(type(b))):
            # Operands that are on no GPU have no launches.
            return context.known.get((site, native is None, kind, type(b)))
        # Vectors take as long as they are read. One branch for both libraries would cost more.
        known: Any = None
        if ask is DEVICE_OF_CUPY:
            left, right = a.ndim, b.ndim
            if site in context.passing and (
                left == 1
                or right == 1
                or (
                    left + right < 5
                    and a.size <= worth.SMALL_ELEMENTS
                    and b.size <= worth.SMALL_ELEMENTS
                )
            ):
                known = NATIVE
        else:
            if count_modes() and not is_below:
                with below_modes():
                    return kept_product(context, site, shape_of, native, a, b, True)
            left, right = a.dim(), b.dim()
            passes = site in context.passing
            if (passes and (left == 1 or right == 1)) or is_tracing():
                return NATIVE
            if (
                passes
                and left + right < 5
                and a.numel() <= worth.SMALL_ELEMENTS
                and b.numel() <= worth.SMALL_ELEMENTS
            ):
                return NATIVE
        if known is None:
            key = site, shape_of, native is None, a.shape, b.shape, a.dtype, b.dtype, ask(a)
            known = context.known.get(key)
            if known is None:
                is_native = left == 1 or right == 1 or worth.is_small(a, b) or worth.is_thin(a, b)
                if not (is_native and site in context.passing):
                    return None
                known = NATIVE
                if len(context.known) < MOST // 2:  # so that stacks that grow evict nothing
                    keep(context, key, NATIVE)
    except (AttributeError, RuntimeError, TypeError):
        return None  # arrays in name only, types that cannot be hashed
    value = NATIVE if known is NATIVE else known(a, b)
    if value is not NATIVE or is_below or (right > 2 and shape_of is not matmul_shape):
        return value
    if ask is not DEVICE_OF_CUPY:
        is_bmm = left == right == 3 and native is None and a.shape[0] == b.shape[0]
        return product_of_stacks(a, b) if is_bmm else NATIVE
    quicker = native_product_of.get(kind)
    is_one = native is None or native in native_functions
    return quicker(a, b) if quicker is not None and is_one and left + right > 2 else NATIVE


def site_of(call: Call, settings: Settings) -> Any:
    """The call site as a part of signatures, with what else chooses a scheme: a call's own, and
    whether it is of a training, which has a default of its own.
    """
    own = settings.scheme, settings.backend, call.is_trained
    return (settings.site, *own) if any(own) else settings.site


def signature_of(call: Call, settings: Settings, takes_tensors: bool) -> Any:
    """The key for `kept_product`; None for a call for which nothing is cached."""
    if call.rest or call.shape_of not in SHAPES:
        return None
    if call.out is not None and type(call.out) not in device_of:
        return None
    if is_dask(call.a, call.b):
        return None  # whether Dask's products take a scheme depends on more than their type
    site, a, b = site_of(call, settings), call.a, call.b
    kind, other = type(a), type(b)
    if kind is other is ndarray:
        return None  # whether moving them is worth it changes while a program runs
    ask = device_of.get(kind)
    if ask is None or ask is not device_of.get(other):
        return site, takes_tensors, kind, other
    try:
        if (device := ask(a)) != ask(b):
            return None
        return site, call.shape_of, takes_tensors, a.shape, b.shape, a.dtype, b.dtype, device
    except (AttributeError, RuntimeError, TypeError):
        return None


def signature_of_contraction(
    site: str | None, native: object, words: object, arrays: Sequence[Any]
) -> Any:
    """The signature of a call that rearranges its arrays into products.

    words: its description of them, such as an einsum's subscripts. None if the last array is not on
    a GPU: NumPy's call takes longer than the decision.
    """
    found = [site, native, words]
    try:
        found.append(device_of[type(arrays[-1])](arrays[-1]))
        for x in arrays:
            found += type(x), x.shape, x.dtype
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError):
        return None
    return tuple(found)


def keep(context: "Context", signature: object, known: Known) -> None:
    """Cache a decision for later calls of a signature; None has no effect."""
    if signature is None:
        return
    if len(context.known) >= MOST:
        context.known.clear()
    context.known[signature] = known
