"""The products that PyTorch makes itself: those of modules, of `F.linear`, of backward passes.

All of them end in the operators mm, addmm, bmm and baddbmm of PyTorch's dispatcher. While anybody
wants these covered (`modules_covered`), functions of this file are these operators' CUDA kernels.
They run below autograd: PyTorch has recorded the product by then, and the backward pass makes its
products by the same operators. A product that takes no scheme is made by the kernel from before.

The context of the calling thread says whether its products are covered (`Context.modules`). A
backward pass runs in a thread of PyTorch's own, which has no context and no Python frames: its
products run in the context of the forward ones that they belong to, see `torch_sites`.
"""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from mixpert_py.runtime import worth
from mixpert_py.runtime.api import carry_out, in_force, taken_below
from mixpert_py.runtime.arrays import Array, Tensor
from mixpert_py.runtime.context import innermost, use
from mixpert_py.runtime.execute import execute
from mixpert_py.runtime.products.torch_sites import Caller, Sites
from mixpert_py.runtime.request import Call, Product, bmm_shape, mm_shape
from mixpert_py.runtime.signatures import MOST, NATIVE, kept_product, signature_of, site_of

CUDA: Final = "CUDA"
OPERATORS: Final = {"mm": mm_shape, "addmm": mm_shape, "bmm": bmm_shape, "baddbmm": bmm_shape}
Factors = dict[str, float]  # alpha and beta, where a program gives them
PRODUCTS: Final = {"addmm": "mm", "baddbmm": "bmm"}  # without the sum


class Hook:
    """The kernels of one dispatch key: PyTorch's own, and ours in their place.

    key: "CUDA", or "CPU", whose tensors are lent to the reference backend as NumPy arrays; that is
    for tests on machines without a GPU. is_needed: whether it has made a product that may take a
    scheme in later calls, or that may have a backward pass. is_trained: whether it has made
    such a product in training. natives: the number of native products since the last other one.
    Raises RuntimeError where a kernel has been replaced.
    """

    def __init__(self, torch: ModuleType, key: str = CUDA) -> None:
        self._torch = torch
        self._on_host = key != CUDA
        self._dtypes = {torch.float32, torch.float64, torch.complex64, torch.complex128}
        # PyTorch's kernels do not read the keys that they are called with.
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        self._kernels = {
            name: partial(torch.library.get_kernel(f"aten::{name}", key).call_boxed, keys)
            for name in OPERATORS
        }
        self._sites = Sites(torch)
        self.takes_small = self.is_needed = self.is_trained = False
        self.natives = 0
        self._library: Any = torch.library.Library("aten", "IMPL")
        ours = {name: self._plain(name) for name in ("mm", "bmm")}
        ours |= {name: self._sum(name) for name in ("addmm", "baddbmm")}
        # A kernel that the program has replaced stays: until 2.9 PyTorch has it so by itself.
        can_override = "allow_override" in self._library.impl.__code__.co_varnames
        options = {"allow_override": False} if can_override else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced
            try:
                for name, function in ours.items():
                    skip(function)
                    self._library.impl(name, function, key, **options)
            except RuntimeError:
                self.remove()
                raise

    def remove(self) -> None:
        """Put PyTorch's own kernels back."""
        self._library._destroy()

    def _plain(self, name: str) -> Callable[..., Any]:
        kernel, take, is_native = self._kernels[name], self._take, self._is_native

        def mm(a: Tensor, b: Tensor) -> Any:
            return kernel(a, b) if is_native(a, b) else take(name, None, a, b, {})

        return mm

    def _sum(self, name: str) -> Callable[..., Any]:
        kernel, take, is_native = self._kernels[name], self._take, self._is_native

        def addmm(c: Tensor, a: Tensor, b: Tensor, **factors: float) -> Any:
            return kernel(c, a, b, **factors) if is_native(a, b) else take(name, c, a, b, factors)

        return addmm

    def _is_native(self, a: Tensor, b: Tensor) -> bool:
        """Whether a product is native by the operands' sizes alone, as most are."""
        if self.takes_small:
            return False
        small = worth.SMALL_FLOAT32
        if (a.numel() > small or b.numel() > small) and not worth.is_thin(a, b):
            return False
        self.natives += 1
        return True

    def _take(self, name: str, c: Tensor | None, a: Tensor, b: Tensor, factors: Factors) -> Any:
        """beta · c + alpha · A·B by the scheme in force; without c the product alone."""
        context = innermost.get().context
        needs_gradient = a.requires_grad or b.requires_grad
        is_trained = needs_gradient and self._torch.is_grad_enabled()
        kinds = a.shape, b.shape, a.dtype, b.dtype, a.get_device(), b.get_device()
        operands = name, is_trained or self._sites.is_backward(), *kinds
        known = None if self._sites.has_chosen else context.everywhere.get(operands)
        if needs_gradient:
            self.is_needed = True
            if known is not None:
                self._sites.remember(a, b)
        if known is not None and known is not NATIVE:
            self.is_needed = True
            self.is_trained = self.is_trained or operands[1]
            self.natives = 0
            row = None if factors or not _is_row(c, a, b) else c
            value = known.below_autograd(a, b, row)
            if value is not None:
                return value if c is None or c is row else _sum(value, c, **factors)
        if known is not NATIVE:
            has_schemes = a.dtype in self._dtypes and a.dtype is b.dtype
            caller = self._sites.caller(name, context, a, b) if has_schemes else None
            if caller is None:
                self.is_needed = True
            elif operands not in caller.native:
                native = _Native(self._kernels, name, c, a, b, factors)
                return self._make(caller, operands, native)
        self.natives += 1
        kernel = self._kernels[name]
        return kernel(a, b) if c is None else kernel(c, a, b, **factors)

    def _make(self, caller: Caller, operands: tuple[Any, ...], native: "_Native") -> Any:
        """The same for a caller whose products of such operands are not known to be native."""
        torch, a, b, c = self._torch, native.a, native.b, native.c
        has_gradient = torch.is_grad_enabled()
        is_left = self._on_host or (has_gradient and (a.requires_grad or b.requires_grad))
        if caller.is_rewritten and not is_left:
            return native.original()  # the call in the source has decided so
        # Autograd has what it needs: below it, tensors are nothing but memory.
        if has_gradient:
            torch._C._set_grad_enabled(False)
        try:
            value = self._product(caller, operands, native)
            if operands not in caller.native:
                self.is_needed, self.natives = True, 0
                self.is_trained = self.is_trained or operands[1]
            if value is None:
                return native.original()
            return value if c is None or native.has_run else _sum(value, c, **native.factors)
        finally:
            if has_gradient:
                torch._C._set_grad_enabled(True)

    def _product(self, caller: Caller, operands: tuple[Any, ...], native: "_Native") -> Any:
        """A·B by its scheme, or the native result; None: that is to be made."""
        context, settings, shape_of = caller.context, caller.settings, OPERATORS[native.name]
        a, b = native.a, native.b
        is_sum = native.c is not None
        _, is_trained, *_ = operands
        call = Call(native, a, b, (), None, shape_of, True, is_sum=is_sum, is_trained=is_trained)
        if self._on_host:
            value = _carried_out(on_arrays(call), caller)
            return None if value is None else self._torch.from_numpy(value)
        is_traced = context.trace is not None and not caller.is_rewritten
        if is_traced or settings.scheme is not None:
            return _carried_out(call, caller)
        value = kept_product(context, site_of(call, settings), shape_of, None, a, b)
        is_prepared = value is not None and value is not NATIVE
        if value is None:
            value = _carried_out(call, caller)
        known = context.known.get(signature_of(call, settings, True))
        if known is NATIVE:
            if len(caller.native) >= MOST:
                caller.native.clear()
            caller.native.add(operands)
        if known is NATIVE or is_prepared:
            is_default = not (self._sites.has_chosen or caller.is_chosen())
            if is_default and context.modules:
                if len(context.everywhere) >= MOST:
                    context.everywhere.clear()
                context.everywhere[operands] = known
        return None if value is NATIVE else value


@dataclass(slots=True, eq=False)
class _Native:
    """PyTorch's own kernel for one call, also as a function of two operands.

    c, a, b, factors: what the call was given; c is None for a product without a sum. has_run:
    whether it has made the whole of the call, with the sum.
    """

    kernels: dict[str, Any]
    name: str
    c: Tensor | None
    a: Tensor
    b: Tensor
    factors: Factors
    has_run: bool = False

    def original(self) -> Any:
        """The whole call, as PyTorch makes it."""
        self.has_run = True
        kernel = self.kernels[self.name]
        if self.c is None:
            return kernel(self.a, self.b)
        return kernel(self.c, self.a, self.b, **self.factors)

    def __call__(self, a: Tensor, b: Tensor) -> Any:
        """The whole call where these are its operands; the product alone of casts of them."""
        if a is self.a and b is self.b:
            return self.original()
        return self.kernels[PRODUCTS.get(self.name, self.name)](a, b)


def on_arrays(call: Call) -> Call:
    """A call on tensors in the host's memory as one on NumPy arrays of the same memory, which the
    reference backend can make.
    """
    torch: Any = sys.modules["torch"]
    a, b = (x.detach().resolve_conj().resolve_neg().numpy() for x in (call.a, call.b))

    def native(x: Array, y: Array) -> Any:
        if x is a and y is b:
            return call.native(call.a, call.b).numpy()
        return call.native(*map(torch.from_numpy, (x, y))).numpy()

    return call._replace(native=native, a=a, b=b, takes_tensors=False)


def _carried_out(call: Call, caller: Caller) -> Any:
    """A call's result; None where it is to be made natively, and no trace is to know."""
    context, settings = caller.context, caller.settings
    if context.trace is not None and not caller.is_rewritten:
        with use(context):
            return carry_out(call, settings)[0]
    settings = in_force(settings, context)
    choice = caller.choice(settings)
    outcome = execute(call, settings, choice, context)
    if context.uses is not None:
        context.uses.note(choice, outcome)
    if not isinstance(outcome, Product):
        return None
    if outcome.reason is None:
        taken_below.product = outcome  # for the trace of the call in the source
    return outcome.value


def _is_row(c: Tensor | None, a: Tensor, b: Tensor) -> bool:
    """Whether launches can add c to A·B, as the same row everywhere."""
    if c is None or c.shape != b.shape[-1:] or not c.is_contiguous():
        return False
    return c.dtype is a.dtype and c.get_device() == a.get_device()


def _sum(product: Tensor, c: Tensor, beta: float = 1, alpha: float = 1) -> Any:
    """beta · c + alpha · product, in the product's place; c is not read where beta is 0."""
    if alpha != 1:
        product.mul_(alpha)
    return product if beta == 0 else product.add_(c, alpha=beta)


def skip(function: Callable[..., object], *, below: bool = True) -> None:
    """Make Dynamo skip calls of a function, and, unless told otherwise, all calls below them."""
    try:
        dynamo: Any = import_module("torch._C._dynamo.eval_frame")
        action = dynamo._FrameAction
        strategy = dynamo._FrameExecStrategy(action.SKIP, action.SKIP if below else action.DEFAULT)
        set_strategy = dynamo.set_code_exec_strategy
    except (AttributeError, ImportError):
        return
    set_strategy(function.__code__, strategy)
