"""PyTorch's functions, under the scheme that is in force for this call.

`torch_matmul` is its matmul, mm and bmm; `torch_call` any function or method that ends in products
which PyTorch makes itself, such as F.linear, addmm and einsum.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from itertools import chain
from types import BuiltinFunctionType, ModuleType
from typing import Any

from mixpert_py.runtime import signatures
from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.arrays import Tensor
from mixpert_py.runtime.context import innermost, passes
from mixpert_py.runtime.modules import is_in_place, leave_unneeded, stay_covered
from mixpert_py.runtime.program_frames import pass_over, trim
from mixpert_py.runtime.request import Call, Native, Settings, bmm_shape, matmul_shape, mm_shape
from mixpert_py.runtime.signatures import NATIVE, below_modes, keep, kept_product
from mixpert_py.runtime.worth import SMALL_BYTES, SMALL_ELEMENTS, may_gain, size_of

# The types of what is no array among the arguments of PyTorch's functions, or what they belong to.
PLAIN = frozenset({str, int, float, bool, type(None), type, ModuleType})
SHAPES = {"mm": mm_shape, "bmm": bmm_shape}


def torch_matmul(
    a: Tensor,
    b: Tensor,
    *,
    native: Native,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
) -> Any:
    """native(a, b): the product of tensors.

    native: torch.matmul, torch.mm (two matrices) or torch.bmm (two stacks of as many matrices).
    Tensors on a GPU take the scheme, as those of `a @ b` do, and come back as tensors of that
    device, on that stream; those that need a gradient stay native. Other arguments and errors as in
    `matmul`.
    """
    try:
        shape_of = SHAPES.get(getattr(native, "__name__", ""), matmul_shape)
        own = None if type(native) is BuiltinFunctionType else native  # the program's
        if scheme is None and backend is None:
            value = kept_product(innermost.get().context, site, shape_of, own, a, b)
            if value is NATIVE or (value is None and _is_on_host(a) and passes(site)):
                return native(a, b)
            if value is not None:
                return value
        call = Call(native, a, b, (), None, shape_of, takes_tensors=True)
        return carry_out(call, Settings(scheme, backend, site))[0]
    except BaseException as error:  # `trimmed` would be one more call
        trim(error)
        raise


def torch_call(
    *operands: Any,
    native: Callable[..., Any],
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    **named: Any,
) -> Any:
    """native(*operands, **named), whose products of float tensors on a GPU are covered.

    They are made below autograd, with a gradient too, and have this call's settings:
    `products.below_autograd` finds them in the frame of this function. Arguments as in `matmul`.
    """
    try:
        context = innermost.get().context
        if scheme is not None or backend is not None:
            context.note_own((scheme, backend))
        given = scheme, backend, context.scheme, context.plan, context.trace
        takes_small = given != (None, None, None, None, None)
        multiplied, own = operands, getattr(native, "__self__", None)
        if named or type(own) not in PLAIN:
            multiplied = *operands, *named.values(), own
        if not signatures.of_integers:
            signatures.ask_torch()
        signature = None
        if not (takes_small or signatures.count_modes() or signatures.is_tracing()):
            is_einsum = bool(operands) and type(operands[0]) is str
            if not is_einsum and _are_small(multiplied):
                return native(*operands, **named)
            signature = _signature(site, native, multiplied, named)
            known = context.known.get(signature)
            if known is not None:
                return native(*operands, **named) if known is NATIVE else known(*operands)
            if is_einsum and _are_small(multiplied):
                keep(context, signature, _later(native, operands))
                return native(*operands, **named)
        was_in_place = is_in_place()
        if takes_small or not was_in_place:
            with below_modes():
                is_wanted = takes_small or any(map(may_gain, multiplied))
            if is_wanted:
                stay_covered(takes_small=takes_small)
        if context.trace is not None:
            context.trace.add_other(site)  # products that are made below have their own records
        if _has_integers(multiplied):
            with _integers()(Settings(scheme, backend, site)):
                return native(*operands, **named)
        value = native(*operands, **named)
        is_first = signature is not None and not was_in_place
        if is_first and (leave_unneeded() or not is_in_place()):
            keep(context, signature, _later(native, operands))
        return value
    except BaseException as error:  # not by `trimmed`, whose frame would be found instead
        trim(error)
        raise


pass_over(torch_matmul, torch_call)


def _later(native: Callable[..., Any], operands: Sequence[Any]) -> Callable[..., Any]:
    """How later calls like a native one are made: by NATIVE; for `torch.einsum` without its search
    for an order of contractions, which has one result for the same shapes.
    """
    torch: Any = sys.modules["torch"]
    order = torch.backends.opt_einsum
    if native is not torch.einsum or type(operands[0]) is not str:
        return NATIVE
    if len(operands) < 4 or not order.is_available():
        return lambda words, *tensors: torch._VF.einsum(words, tensors, path=None)
    how, path = (order.enabled, order.strategy), None
    if order.enabled:
        search = order.get_opt_einsum().contract_path
        path = [*chain(*search(*operands, optimize=order.strategy)[0])]

    def by_path(words: str, *tensors: object) -> Any:
        if (order.enabled, order.strategy) != how:
            return native(words, *tensors)
        return torch._VF.einsum(words, tensors, path=path)

    return by_path


def _are_small(operands: Iterable[Any]) -> bool:
    """Whether products of these operands are too small to take a scheme unasked. Tensors of a type
    that has not been multiplied are not.
    """
    for x in operands:
        count = size_of.get(type(x))
        if count is None:
            if type(x) not in PLAIN:
                return False
        elif (size := count(x)) > SMALL_ELEMENTS and size * x.itemsize > SMALL_BYTES:
            return False
    return True


def _signature(
    site: str | None, native: Callable[..., Any], operands: Iterable[Any], names: Iterable[str]
) -> Any:
    """The key for what is known of a call by `torch_call` without gradients; None where nothing can
    be known.
    """
    # A method is another object each time. Tensors of several types or devices are refused.
    found = [site, getattr(native, "__name__", native), *names]
    some, records = None, sys.modules["torch"].is_grad_enabled()
    try:
        for x in operands:
            if type(x) in signatures.device_of:
                if records and x.requires_grad:
                    return None
                found.append(x.shape)
                some = x
            elif type(x) in PLAIN:
                found.append(x)
            else:
                return None
        return None if some is None else (*found, some.dtype, some.get_device())
    except RuntimeError:  # tensors in name only
        return None


def _has_integers(operands: Sequence[object], is_below: bool = False) -> bool:
    """Whether PyTorch may make a large product of integers in the host's memory of the operands.

    is_below: whether this is called inside `below_modes`.
    """
    if signatures.count_modes() and not is_below:
        with below_modes():
            return _has_integers(operands, True)
    for x in operands:
        if isinstance(x, (list, tuple)) and _has_integers(x, is_below):
            return True
        if getattr(x, "dtype", None) in signatures.of_integers and may_gain(x):
            return True
    return False


@cache
def _integers() -> Any:
    """The mode of PyTorch's dispatcher under which products of integers are calls of a site."""
    torch: Any = sys.modules["torch"]
    from torch.utils._python_dispatch import TorchDispatchMode

    shapes = {torch.ops.aten.mm.default: mm_shape, torch.ops.aten.bmm.default: bmm_shape}

    class Integers(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self, settings: Settings) -> None:
            super().__init__()
            self._settings = settings

        def __torch_dispatch__(
            self,
            operator: Native,
            types: object,
            given: tuple[Tensor, ...] = (),
            named: Mapping[str, object] | None = None,
        ) -> Any:
            shape_of = shapes.get(operator)
            if shape_of is None or named or given[0].dtype not in signatures.of_integers:
                return operator(*given, **(named or {}))
            a, b = given
            call = Call(operator, a, b, (), None, shape_of, takes_tensors=True)
            return carry_out(call, self._settings)[0]

    return Integers


def _is_on_host(x: Tensor) -> bool:
    """Whether a tensor is in the host's memory, and its products take no scheme unasked."""
    with below_modes() if signatures.count_modes() else nullcontext():
        return getattr(x, "is_cuda", True) is False and x.dtype not in signatures.of_integers
