"""Which line of the program a product of PyTorch's belongs to, in forward and backward passes.

A product's call site is the innermost call of PyTorch in code that is not PyTorch's own: the line
in which a module or a function such as `F.linear` is called. Its id has the form that ids in the
source have, and stays the same from run to run. `passes.torch_graphs` gives the same ids to the
products of compiled graphs.

A backward pass runs in threads without Python frames. Autograd numbers what it records: the number
that it has given last, when a product is made forward, is that of the node which makes the
products of the backward pass. So those are looked up by the number of the node that is running.
"""

import linecache
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NamedTuple

import mixpert_py.runtime
from mixpert_py.plan import torch_site
from mixpert_py.runtime.api import carry_out, chosen_by_call
from mixpert_py.runtime.arrays import Tensor
from mixpert_py.runtime.context import Choice, Context, current, default
from mixpert_py.runtime.request import Settings

# Nodes of autograd that are remembered at least, for a backward pass soon follows; and positions
# in code.
MOST: Final = 1 << 16

# Whose code a file is.
USER, TORCH, OURS = 0, 1, 2
RUN_BACKWARD: Final = "_engine_run_backward"
PASSED: Final = ("trimmed_call", "called_module")  # functions of ours that call PyTorch's modules


class Place(NamedTuple):
    """Where a call site stands: its file, line and expression."""

    path: str
    line: int
    expression: str


@dataclass(slots=True, eq=False)
class Caller:
    """What a product is made for: under which context and settings.

    is_rewritten: whether a call of the runtime, in rewritten code, makes it: that has decided
    unless the product was to be PyTorch's because of a gradient. `torch_call` leaves that to us.
    native: the operands' shapes and types whose products are always native for this caller.
    backward: the caller of the products that the backward pass makes for this one, once known.
    """

    context: Context
    settings: Settings
    is_rewritten: bool = False
    native: set[Any] = field(default_factory=set)
    backward: "Caller | None" = None

    def is_chosen(self) -> bool:
        """Whether anybody may have chosen for it, or looks on."""
        own = self.settings.scheme, self.settings.backend
        return own != (None, None) or self.context.has_choices()

    def choice(self, settings: Settings) -> Choice:
        """The scheme that the call has, or that is in force for its site."""
        if settings.scheme is not None:
            return chosen_by_call(settings.scheme)
        return self.context.choice(settings.site)


@dataclass(slots=True)
class _Position:
    """One call in the code of a program. The code is kept because the key has its address only: to
    hash a code object takes as long as a small product.

    caller: that of the last product, whose context was most likely the next one's.
    """

    code: CodeType
    site: str
    caller: Caller


# Call site → where it stands; of those that were met in this process.
places: dict[str, Place] = {}


class Sites:
    """Finds the callers of products, and remembers those of forward passes."""

    def __init__(self, torch: ModuleType) -> None:
        self._folders = {
            os.path.dirname(torch.__file__ or "") + os.sep: TORCH,
            os.path.dirname(mixpert_py.runtime.__file__) + os.sep: OURS,
            os.path.dirname(threading.__file__) + os.sep + "threading.py": TORCH,
        }
        self._kinds: dict[str, int] = {}
        self._positions: dict[tuple[Any, ...], _Position] = {}
        self._rewritten: dict[tuple[Any, ...], Caller] = {}
        # By number and multiplications in one integer: tuples would set off Python's collector.
        self._forward: dict[int, Caller] = {}
        self._earlier: dict[int, Caller] = {}
        self._anywhere: Caller | None = None  # of no call site
        # Whether a backward pass may come for which somebody has chosen, wherever it comes.
        self.has_chosen = False
        self._node = torch._C._current_autograd_node
        self._next_number = torch._C._autograd._get_sequence_nr
        self._records = torch.is_grad_enabled

    def caller(self, name: str, context: Context, a: Tensor, b: Tensor) -> Caller | None:
        """Who makes a product by an operator of this name; None where nobody wants it covered.

        context: of the calling thread, which is none's in a backward pass.
        """
        user, ours, settings = self._frames(sys._getframe(2).f_back)
        if user is None and (node := self._node()) is not None:
            caller = self._of_forward(_key(node._sequence_nr(), a, b))
            if caller is None and context.modules is not None:
                return self._caller(context, None, None)
            return caller
        if ours is not None and ours.f_code.co_name == "torch_call":
            caller = self._of_torch_call(context, ours.f_locals)
        elif context.modules is None:
            return None
        elif ours is None:
            caller = self._of_module(name, context, user)
        else:
            settings = settings or Settings(site=ours.f_locals.get("site"))
            caller = self._of_rewritten(context, settings)
        if self._records() and (a.requires_grad or b.requires_grad):
            self._remember(a, b, caller)
            self.has_chosen = self.has_chosen or caller.is_chosen()
        return caller

    def is_backward(self) -> bool:
        """Return whether this thread runs a backward pass."""
        return self._node() is not None

    def remember(self, a: Tensor, b: Tensor) -> None:
        """Let the backward pass of a product, of operands that need a gradient, have the context in
        force. For products that nobody chose a scheme for, of which no trace is kept: their call
        site does not matter. The default context holds in the threads of backward passes anyway.
        """
        context = current()
        if context is default() or not self._records():
            return
        caller = self._anywhere  # which other threads may replace
        if caller is None or caller.context is not context:
            caller = self._anywhere = Caller(context, Settings())
        self._remember(a, b, caller)

    def _remember(self, a: Tensor, b: Tensor, caller: Caller) -> None:
        if len(self._forward) >= MOST:
            self._earlier, self._forward = self._forward, {}
        self._forward[_key(self._next_number() - 1, a, b)] = caller

    def _frames(
        self, frame: FrameType | None
    ) -> tuple[FrameType | None, FrameType | None, Settings | None]:
        """The frame of the program, the outermost of the runtime's that it calls, and the settings
        of its call; no frame where a backward pass makes the product.
        """
        ours = settings = None
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code.co_filename)
            if kind is None:
                kind = self._kind(code.co_filename)
            if kind == USER:
                return frame, ours, settings
            if kind == OURS and code.co_name not in PASSED:
                ours = frame
                if code is carry_out.__code__:
                    settings = frame.f_locals.get("settings")
            elif code.co_name == RUN_BACKWARD:
                break
            frame = frame.f_back
        return None, None, None

    def _kind(self, file: str) -> int:
        kinds = (kind for start, kind in self._folders.items() if file.startswith(start))
        kind = self._kinds[file] = next(kinds, USER)
        return kind

    def _of_module(self, name: str, context: Context, user: FrameType | None) -> Caller:
        """The caller for a product that PyTorch makes itself, at a position in the program."""
        if user is None:  # there is no Python code of one
            return self._caller(context, None, None)
        code = user.f_code
        key = name, id(code), user.f_lasti
        found = self._positions.get(key)
        if found is None:
            site = _new_site(name, code, user.f_lasti)
            caller = self._caller(context, site, site)
            if len(self._positions) >= MOST:
                self._positions.clear()
            self._positions[key] = _Position(code, site, caller)
            return caller
        caller = found.caller  # which other threads may replace
        if caller.context is not context:
            caller = found.caller = self._caller(context, found.site, found.site)
        return caller

    def _of_rewritten(self, context: Context, settings: Settings) -> Caller:
        """The caller for a call of the runtime that left its product to PyTorch."""
        caller = self._rewritten.get(settings)
        if caller is None or caller.context is not context:
            caller = Caller(context, settings, is_rewritten=True)
            self._keep(settings, caller)
        return caller

    def _of_torch_call(self, context: Context, given: Mapping[str, Any]) -> Caller:
        """The caller for a `torch_call` with these local variables."""
        key = given["site"], given["scheme"], given["backend"]
        caller = self._rewritten.get(key)
        if caller is None or caller.context is not context:
            site, scheme, backend = key
            if scheme is None and context.modules is not None:
                scheme = context.modules.given(site)
            caller = Caller(context, Settings(scheme, backend, site))
            self._keep(key, caller)
        return caller

    def _keep(self, key: tuple[Any, ...], caller: Caller) -> None:
        """Let later products of a rewritten call find its caller."""
        if len(self._rewritten) >= MOST:
            self._rewritten.clear()
        self._rewritten[key] = caller

    def _of_forward(self, key: int) -> Caller | None:
        """The caller for a node of the backward pass: that of the forward product, whose site and
        context it has; None where that is not known.
        """
        found = self._forward.get(key) or self._earlier.get(key)
        if found is None or found.settings.site is None:
            return found
        site = found.settings.site
        if found.backward is None:
            back = backward_of(site)
            if site in places:
                places.setdefault(back, places[site])
            found.backward = self._caller(found.context, back, site, found.settings)
        return found.backward

    def _caller(
        self,
        context: Context,
        site: str | None,
        forward: str | None,
        settings: Settings | None = None,
    ) -> Caller:
        """The caller for a site. settings: those of its forward product."""
        scheme = None if context.modules is None else context.modules.given(site)
        if scheme is None and settings is not None:
            scheme = settings.scheme
        if scheme is None:
            context.choice(site, forward=forward)
        backend = None if settings is None else settings.backend
        return Caller(context, Settings(scheme, backend, site))


def _key(number: int, a: Tensor, b: Tensor) -> int:
    """A node's number, and how many multiplications a product takes: as many as each of those of
    its backward pass.
    """
    return number << 64 | a.numel() * b.shape[-1]


def backward_of(site: str) -> str:
    """The id of the products that the backward pass of a site makes."""
    start, _, number = site.rpartition("#")
    return f"{start}.backward#{number}" if start else f"{site}.backward"


def _new_site(operator: str, code: CodeType, offset: int) -> str:
    """The id of the products that a call makes by an operator; `places` then has where that stands.

    PyTorch's compiler tells where an expression begins, and not where it ends: so the rest of its
    line is what the id is made of.
    """
    path, positions = code.co_filename, [*code.co_positions()]
    line, last, start, end = positions[offset // 2]
    text = _text(path, line, start)
    alike = {
        (it[0], it[2])
        for it in positions
        if it[0] is not None and it[2] is not None and _text(path, it[0], it[2]) == text
    }
    number = sum(it < (line or 0, start or 0) for it in alike)
    site = torch_site(path, code.co_qualname.replace(".<locals>", ""), operator, text, number)
    shown = _text(path, line, start, end if last == line else None)
    places[site] = Place(path, line or code.co_firstlineno, shown)
    return site


def _text(file: str, line: int | None, start: int | None, end: int | None = None) -> str:
    """A part of a line of the source; empty where it is not to be had."""
    if line is None or start is None:
        return ""
    part = linecache.getline(file, line).encode()[start:end]
    return " ".join(part.decode(errors="replace").split())
