"""`precision`: one scheme for all products of a block, and the cover of PyTorch's own products.

The *hook* (`products.below_autograd`) replaces the kernels by which PyTorch makes matrix products.
`modules_covered` keeps it in place while its block runs. Each product then takes the host up to
20 µs more, small ones too. So where only large products are to be covered, and PyTorch is not
imported yet, the hook is put in place late: before the first product that may gain, in a call of a
module with parameters, or in a rewritten call that PyTorch carries out. In a program that trains
nothing it is removed after more than MOST_NATIVE native products in a row, until the next one that
may gain. Calls of modules are watched all the time, so whether a product takes a scheme does not
depend on earlier products.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from mixpert_py.runtime import select, worth
from mixpert_py.runtime.arrays import Tensor, name_of
from mixpert_py.runtime.backends import emulates, require_backend
from mixpert_py.runtime.context import Choice, Modules, SchemeUse, checked, current, use
from mixpert_py.runtime.gpu.foreign import torch_is_full
from mixpert_py.runtime.program_frames import warn
from mixpert_py.runtime.worth import SHIPPED, SMALL_FLOAT32

if TYPE_CHECKING:
    from mixpert_py.runtime.products.below_autograd import Hook

Module = Any  # of PyTorch's
TORCH = "torch"
MOST_TRIALS = 1 << 5  # of calls in rewritten code: to replace the kernels takes some 0.3 ms
MOST_NATIVE: Final = 1 << 8  # in a row, after which the hook is removed: they lose more than 0.3 ms
MOST_SMALL: Final = 1 << 15  # float32 elements: calls with fewer, as in decoding, are not watched
MOST_SHAPES: Final = 1 << 6  # of a module's operands
DIGITS: Final = 4  # leading bits of a number of rows that count; the others are taken to be 0


class _State:
    """The hook, and the users that want it in place. There is one such object in the process.

    users: for each user, whether small products are to be covered, too. call: PyTorch's own
    `Module.__call__` while `_watched_call` replaces it, else None; code: that of the replacement.
    native: id of a module → what does not need the hook: single calls (shape and type of the
    operand, whether gradients are recorded), and all calls inside the module (rows, device, type,
    whether gradients are recorded). trials: how often the hook may still be removed because no
    product needs it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: list[bool] = []
        self.hook: Hook | None = None
        self.call: Any = None
        self.code: Any = None
        self.native: dict[int, set[object]] = {}
        self.trials = MOST_TRIALS
        self.key = "CUDA"
        self.has_warned = False

    def begin(self, takes_small: bool) -> None:
        with self.lock:
            self.users.append(takes_small)
            if self.hook is None:
                self.put_in_place()
            else:
                self.hook.takes_small = any(self.users)

    def end(self, takes_small: bool) -> None:
        with self.lock:
            self.users.remove(takes_small)
            if not self.users:
                self.watch_no_more()
            if self.hook is None:
                return
            self.hook.takes_small = any(self.users)
            # PyTorch looks kernels up without a lock: not while others may do so.
            if not self.users and is_alone():
                self.remove()

    def remove(self) -> None:
        """Put PyTorch's own kernels back, if they are replaced."""
        if self.hook is not None:
            self.hook.remove()
            self.hook = None

    def put_in_place(self) -> None:
        """Replace PyTorch's kernels, if it is imported; else when that has been done."""
        torch = sys.modules.get(TORCH)
        if torch is None:
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            return
        if not hasattr(torch, "Tensor") or not hasattr(torch, "library"):
            return  # it is being imported
        if not hasattr(torch.library, "get_kernel"):
            self.warn(f"{torch.__version__} makes them itself, and lets others do so from 2.9 on")
            return
        from mixpert_py.runtime.products.below_autograd import Hook

        try:
            self.hook = Hook(torch, self.key)
        except RuntimeError as error:  # the program has replaced a kernel itself
            self.warn(str(error))
        else:
            self.hook.takes_small = any(self.users)

    def warn(self, reason: str) -> None:
        """Say once why the products of modules are not covered."""
        if not self.has_warned:
            self.has_warned = True
            warn(f"products of PyTorch's modules stay native: {reason}")

    def begin_late(self) -> None:
        """PyTorch has just been imported: put the hook in place when it is needed."""
        torch: Any = sys.modules[TORCH]
        module = torch.nn.Module
        with self.lock:
            if not self.users or self.hook is not None:
                return
            own = getattr(module, "_wrapped_call_impl", None)
            if any(self.users) or module.__call__ is not own:
                self.put_in_place()
                return
            from mixpert_py.runtime.products.below_autograd import skip

            # The first use makes code, and frees it: not in a profiled call, since torch.profiler
            # keeps pointers to the names of all code that it sees.
            worth.layer_gains(SHIPPED, "float32", (1, 1, 1), is_trained=False)
            watched = _watched_call(torch)
            skip(watched, below=False)  # as PyTorch's own: else all share one limit of graphs
            skip(_State.see_call)
            self.code = watched.__code__
            self.call, module.__call__ = module.__call__, watched

    def see_call(self, module: Module, x: Tensor, call: object) -> None:
        """Put the hook in place if a product of a called module's first operand with one of its
        parameters may take a scheme; remove it after many products that did not.

        call: what the answer depends on, besides the module.
        """
        if self.hook is not None:
            if self.hook.natives > MOST_NATIVE:
                self.rest(self.hook)
            return
        torch, known = sys.modules[TORCH], self.known(module)
        try:
            if torch.is_autocast_enabled("cuda") or not torch_is_full():
                return
            if self.pays(torch, module, x):
                self.cover(is_trained=torch.is_grad_enabled())
                return
        except (AttributeError, IndexError, RuntimeError, ValueError, ZeroDivisionError):
            return  # the module has no parameter yet, or the operand no shape
        if len(known) >= MOST_SHAPES:
            known.clear()
        known.add(call)

    def known(self, module: Module) -> set[object]:
        """The entry of a module in `native`, which is dropped when the module is."""
        if id(module) not in self.native:
            self.native[id(module)] = set()
            finalize(module, self.native.pop, id(module), None).atexit = False
        return self.native[id(module)]

    def pays(self, torch: ModuleType, module: Module, x: Tensor) -> bool:
        """Return whether the hook pays for a call: a product of the module may take a scheme, and
        all products of its model take the device longer than PyTorch takes the host, and save more
        than the hook costs. Only rows, types and the shapes of weights decide, on a device.
        """
        device = torch.cuda.get_device_name(x.device) if x.is_cuda else SHIPPED
        dtype, is_trained, k = name_of(x.dtype), torch.is_grad_enabled(), x.shape[-1]
        m = x.numel() // k
        digits = max(m.bit_length() - DIGITS, 0)
        m = m >> digits << digits  # few numbers, each of which takes the model up to 2 ms

        def layer(w: Tensor) -> tuple[float, float]:
            extents = w.shape[-2:] if w.shape[-2] == k else w.shape[:-3:-1]  # stored either way
            return worth.layer_gains(device, dtype, (m, *extents), is_trained=is_trained)

        own = _weights(module if module._parameters else module.linear1)
        own = [w for w in own if k in w.shape[-2:] and max(x.numel(), w.numel()) > SMALL_FLOAT32]
        if not any(layer(w)[0] for w in own):
            return False
        model = _outermost(module, self.code)
        rows, known = (m, device, dtype, is_trained), self.known(model)
        if rows in known:
            return False  # to look at all weights takes milliseconds
        embedding, parts = torch.nn.Embedding, model.modules()
        layers = [layer(w) for it in parts if type(it) is not embedding for w in _weights(it)]
        gain, native = map(sum, zip(*layers, strict=True))
        products, least = (3, worth.LAYER_TRAINED) if is_trained else (1, worth.LAYER)
        if min(native / least, gain / (worth.HOOK * products)) > len(layers):
            return True
        known.add(rows)
        return False

    def rest(self, hook: "Hook") -> None:
        """Remove the hook if no training needs it, and no thread can be looking kernels up."""
        with self.lock:
            hook.natives = 0
            if not hook.is_trained and not any(self.users) and is_alone():
                self.remove()

    def cover(self, *, is_trained: bool) -> None:
        """Put the hook in place, if it is not and `users` want it."""
        with self.lock:
            if self.users and self.hook is None:
                self.put_in_place()
            if self.hook is not None:
                self.hook.is_needed = True
                self.hook.is_trained = self.hook.is_trained or is_trained

    def leave_unneeded(self) -> bool:
        """Return whether no product has needed the hook since `stay_covered` put it in place for a
        call. Then remove it, unless other threads run or this has happened MOST_TRIALS times.
        """
        with self.lock:
            if self.hook is None or self.hook.is_needed:
                return False
            if is_alone() and self.trials:
                self.trials -= 1
                self.users.remove(False)
                self.remove()
            return True

    def watch_no_more(self) -> None:
        if self.call is not None:
            sys.modules[TORCH].nn.Module.__call__ = self.call
            self.call = None


def is_alone() -> bool:
    """Return whether no Python thread runs but this one and tqdm's, which only reads the clock."""
    return all(
        it is threading.current_thread() or type(it).__module__.startswith("tqdm")
        for it in threading.enumerate()
    )


def _weights(module: Module) -> list[Tensor]:
    """The parameters of a module that are matrices, or stacks of them."""
    return [w for w in module._parameters.values() if w is not None and 1 < w.dim() < 4]


def _outermost(module: Module, code: CodeType) -> Module:
    """The outermost module whose call is running. code: that of the function that watches it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_locals["self"] if frame.f_code is code else module
        frame = frame.f_back
    return module


def _watched_call(torch: ModuleType) -> Callable[..., Any]:
    """PyTorch's `Module.__call__`, which lets `_State.see_call` see it first, unless the operand is
    so small that no product of it gains.
    """
    tensor, float32, is_grad_enabled = torch.Tensor, torch.float32, torch.is_grad_enabled
    encoder, native = torch.nn.TransformerEncoderLayer, _state.native
    is_compiling, is_traced = torch.compiler.is_compiling, torch._C._is_tracing

    def called_module(self: Module, *operands: Tensor, **named: object) -> object:
        if (
            operands
            and type(x := operands[0]) is tensor
            and (self._parameters or type(self) is encoder)
            # What follows would be traced: sizes become part of the program's graph.
            and not (is_compiling() or is_traced())
            and (x.numel() > MOST_SMALL or x.dtype is not float32 or _state.hook is not None)
            and not x.is_nested  # then it has no shape
        ):
            call = x.shape, x.dtype, is_grad_enabled()
            if _state.hook is not None or call not in native.get(id(self), ()):
                _state.see_call(self, x, call)
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*operands, **named)
        return self._call_impl(*operands, **named)

    return called_module


class _Finder:
    """Comes before all finders until a module is imported, to act when it has been.

    after: called then. Python imports a package before what is in it, so one finder serves one
    module.
    """

    def __init__(self, name: str, after: Callable[[], None]) -> None:
        self.name, self.after = name, after
        self._is_searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name or self._is_searching:
            return None
        self._is_searching = True
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    """A module's own loader, and what is to be done after it."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        finders: list[Any] = sys.meta_path
        if self._finder in finders:  # and no earlier: a program may look for the spec alone
            finders.remove(self._finder)
        self._loader.exec_module(module)
        self._finder.after()


_state = _State()
_finder: Any = _Finder(TORCH, _state.begin_late)
_watched: dict[str, Any] = {}  # the finders of `when_imported`, by module


@contextmanager
def modules_covered(*, takes_small: bool) -> Iterator[None]:
    """Cover the products that PyTorch makes itself, in contexts that ask for it.

    takes_small: also those of small matrices, which stay native unless a scheme, a plan or
    a trace is in force. Costs nothing where PyTorch is not imported.
    """
    _state.begin(takes_small)
    try:
        yield
    finally:
        _state.end(takes_small)


def stay_covered(*, takes_small: bool) -> None:
    """Cover the products that PyTorch makes itself from now on, if it is imported.

    For calls in rewritten code, which come again and again: contexts that do not ask for it, and
    other code, see PyTorch's own products as before.
    """
    hook = _state.hook
    if hook is not None and (hook.takes_small or not takes_small):
        return
    if TORCH in sys.modules and not _state.has_warned:
        _state.begin(takes_small)


select.cover_torch = stay_covered


leave_unneeded = _state.leave_unneeded


@contextmanager
def covered_for(backend: str | None, *, takes_small: bool) -> Iterator[None]:
    """As `modules_covered`, for a whole program: where its backend emulates, products of tensors in
    the host's memory are covered instead of a GPU's.
    """
    is_emulated = emulates(backend) and not _state.users
    with on_host() if is_emulated else nullcontext(), modules_covered(takes_small=takes_small):
        yield


@contextmanager
def on_host() -> Iterator[None]:
    """Cover products of tensors in the host's memory instead, by the reference backend.

    Nobody may want products covered when it begins.
    """
    assert not _state.users
    _state.remove()  # idle threads may have kept it in place
    _state.key = "CPU"
    try:
        yield
    finally:
        _state.key = "CUDA"


def when_imported(name: str, act: Callable[[], None]) -> None:
    """Call a function once a module has been imported: at once where it has been."""
    if name in sys.modules:
        act()
    elif name not in _watched:
        _watched[name] = _Finder(name, act)
        sys.meta_path.insert(0, _watched[name])


def is_in_place() -> bool:
    """Whether PyTorch's kernels are replaced now."""
    return _state.hook is not None


@contextmanager
def precision(scheme: str, *, backend: str | None = None) -> Iterator[None]:
    """Run every product inside under one scheme: in this thread or task, and in tasks begun here.

    It comes before every plan, and before schemes that comments, `accelerate`, `install` or
    `mixpert rewrite` have put at a call site; of several, the innermost counts. Only a call with a
    `scheme` and without a `site`, which a person wrote, keeps its own. Warns at the end if no
    product inside took the scheme.
    Raises PlanError for an unknown scheme or backend, DeviceError for an absent device.
    """
    checked(Choice(scheme))
    require_backend(backend)
    outer = current()
    backend = backend or outer.backend
    uses = SchemeUse(scheme, outer.uses)
    inner = replace(
        outer, scheme=scheme, backend=backend, overrides_sites=True, modules=Modules(), uses=uses
    )
    with modules_covered(takes_small=True), use(inner):
        yield
    why_not = uses.why_not()
    if not uses.has_products and scheme != "native":
        why_not = (
            "no product inside reached MixPert-Py; @mixpert_py.accelerate and `mixpert run` "
            "rewrite code"
        )
    if why_not is not None:
        warn(f"precision({scheme!r}): {why_not}")
