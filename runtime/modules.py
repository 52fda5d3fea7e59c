"""`precision`: one scheme for all products of a block, and the cover of PyTorch's own products.

`modules_covered` keeps the hook in place while it is entered. What the hook does is in
`products.below_autograd`, which is imported when PyTorch is there and somebody wants its products
covered. Each product then takes the host up to 20 µs more, small ones too. So it is put in place as
late as can be, where only large products are to be covered and PyTorch is not imported yet: with
the first large parameter or operand of a module, or the first large product of rewritten code that
PyTorch makes itself, unless that turns out to be native for good.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mixpert_py.runtime import select
from mixpert_py.runtime.backends import emulates, require_backend
from mixpert_py.runtime.context import Choice, Modules, SchemeUse, checked, current, use
from mixpert_py.runtime.program_frames import warn
from mixpert_py.runtime.worth import TRAINED_BYTES, may_gain

if TYPE_CHECKING:
    from mixpert_py.runtime.products.below_autograd import Hook

TORCH = "torch"
# PyTorch's functions that register hooks for all modules.
PARAMETERS = "register_module_parameter_registration_hook"
CALLS = "register_module_forward_pre_hook"
MOST_CALLS = 1 << 11  # of modules with small operands, each of which takes some 5 µs to watch
MOST_TRIALS = 1 << 5  # of calls in rewritten code: to replace the kernels takes some 0.3 ms
# What PyTorch says of such hooks where a module is compiled.
GLOBAL_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"


class _State:
    """The users of the hook, and the hook; one for the process.

    users: of each, whether it takes small products, too. parameters, calls: while the hook waits,
    the handles by which PyTorch calls `see_parameter` and `see_call`; None: it does not. unseen:
    the calls of modules that are watched yet. trials: how often the hook may still be removed
    because no product needs it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: list[bool] = []
        self.hook: Hook | None = None
        self.parameters: Any = None
        self.calls: Any = None
        self.unseen = MOST_CALLS
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
            if not self.users and threading.active_count() == 1:
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
        module: Any = sys.modules[TORCH].nn.modules.module
        with self.lock:
            if not self.users or self.hook is not None:
                return
            if any(self.users) or not hasattr(module, PARAMETERS):
                self.put_in_place()
                return
            self.parameters = getattr(module, PARAMETERS)(self.see_parameter)
            if hasattr(sys.modules[TORCH].library, "get_kernel"):
                # PyTorch warns a program that compiles a module of hooks that it did not register.
                warnings.filterwarnings("ignore", GLOBAL_HOOKS, UserWarning)
                self.calls = getattr(module, CALLS)(self.see_call)

    def see_parameter(self, module: object, name: str, parameter: object) -> None:
        """Put the hook in place if products with a module's new parameter may take a scheme."""
        if self.hook is None and may_gain(parameter, TRAINED_BYTES):
            self.cover()

    def see_call(self, module: Any, operands: tuple[object, ...]) -> None:
        """Put the hook in place if products of a called module may take a scheme.

        A module that was loaded whole has registered no parameter, so calls are watched as well.
        """
        torch = sys.modules[TORCH]
        if torch.compiler.is_compiling():
            return  # it would be traced, which this cannot be
        beyond = TRAINED_BYTES if torch.is_grad_enabled() else 0
        if any(may_gain(it, beyond) for it in (*operands, *module._parameters.values())):
            self.cover()
        self.unseen -= 1
        # The graphs of a compiled module would hold this, and be made anew when the watch ends.
        if not self.unseen or "_orig_mod" in module._modules:
            self.watch_no_calls()

    def cover(self) -> None:
        """Put the hook in place, if it is not and `users` want it, and end the watch of calls."""
        with self.lock:
            if self.users and self.hook is None:
                self.put_in_place()
            if self.hook is not None:
                self.hook.is_needed = True
            self.watch_no_calls()

    def leave_unneeded(self) -> bool:
        with self.lock:
            if self.hook is None or self.hook.is_needed:
                return False
            if threading.active_count() == 1 and self.trials:
                self.trials -= 1
                self.users.remove(False)
                self.remove()
            return True

    def watch_no_calls(self) -> None:
        with self.lock:
            if self.calls is not None:
                self.calls.remove()
                self.calls = None

    def watch_no_more(self) -> None:
        self.watch_no_calls()
        # While the hook waits, this one stays: PyTorch goes through these themselves, and through
        # a copy of the others.
        if self.parameters is not None:
            self.parameters.remove()
            self.parameters = None


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


def leave_unneeded() -> bool:
    """After a first call that `stay_covered` was called for: whether its products are native from
    now on, all of them. Then PyTorch has its own kernels back.
    """
    return _state.leave_unneeded()


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
