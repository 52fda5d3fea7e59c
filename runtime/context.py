"""What is in force here and now: a scheme, a plan, a backend, a trace.

A context variable overrides a process default. The default is there because a new thread starts
with an empty context: it must still see the plan that the program runs under.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Optional

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.program_frames import warn
from mixpert_py.runtime.reasons import MEANING, Reason
from mixpert_py.runtime.tracing.counted import NONE, CountedCalls

if TYPE_CHECKING:
    from mixpert_py.runtime.model.device_model import Accumulations
    from mixpert_py.runtime.plan_guard import PlanGuard
    from mixpert_py.runtime.signatures import Known
    from mixpert_py.runtime.tracing.trace import Trace


@dataclass(frozen=True, slots=True)
class Choice:
    """What a call site is to run; `scheme` None: nobody chose, so what the program did before.

    guard: a check of its products, where a plan chose.
    """

    scheme: str | None = None
    block: int | None = None
    guard: "PlanGuard | None" = None


UNCHOSEN = Choice()


@dataclass(frozen=True, slots=True)
class Modules:
    """That products which PyTorch makes itself are covered, see `products.below_autograd`.

    plan, scheme: what a decorator was given for them, which comes before what is in force; the plan
    before the scheme.
    """

    plan: Plan | None = None
    scheme: str | None = None

    def given(self, site: str | None) -> tuple[str | None, int | None]:
        """The scheme and block that are given for a site; None: what is in force decides."""
        entry = None if self.plan is None or site is None else self.plan.find(site)
        return (self.scheme, None) if entry is None else (entry.scheme, entry.block)


@dataclass(slots=True, eq=False)
class SchemeUse:
    """Whether any product took a scheme that a block, a function or a cell names, and why not.

    outer: the use that this one is nested in. has_products: whether any product was made by the
    runtime, under whatever scheme.
    """

    scheme: str
    outer: Optional["SchemeUse"] = None
    is_taken: bool = False
    has_products: bool = False
    reasons: set[Reason] = field(default_factory=set)

    def note(self, choice: Choice, outcome: object) -> None:
        """Count a product; outcome: its Reason where it did not take the scheme that was chosen."""
        self.has_products = True
        if choice.scheme == self.scheme:
            if isinstance(outcome, Reason):
                self.reasons.add(outcome)
            else:
                self.is_taken = self.is_taken or outcome is not None
        if self.outer is not None:
            self.outer.note(choice, outcome)

    def why_not(self) -> str | None:
        """One line on why every product that was to take the scheme is native; None: one did, or
        there was no such product.
        """
        if self.is_taken or self.scheme == "native" or not self.reasons:
            return None
        return f"every product ran natively. {' '.join(MEANING[it] for it in sorted(self.reasons))}"


def no_plan(module: str) -> Plan | None:
    """The plan lookup of a process in which nobody looks plans up."""
    return None


def no_plans() -> bool:
    """Return that `no_plan` finds no plan."""
    return False


@dataclass(frozen=True, slots=True)
class Context:
    """One state of affairs. Derive another with `dataclasses.replace`.

    find_plan: module (the first part of a site id) → its plan; asked once per site, when neither
    `scheme` nor `plan` says anything about the module. backend: "reference", which may go on with
    ":" and a device's name, "cuda" or None for automatic.
    passing: the sites for which nobody chose a scheme, or "native" was chosen: small operands pass
    there without a decision.
    overrides_sites: `scheme` comes before the one that is written at a call site, too.
    modules: which products that PyTorch makes itself are covered; None: none of them. finds_plans:
    returns whether `find_plan` may find a plan for any module; it is called when a product needs to
    know, since a program may set MIXPERT_PLAN itself. by_id: whether the plan is about the sites
    that it names alone: no other is taken for one of them, and none that it lacks makes it stale.
    uses: notes whether products take the scheme that a block, a function or a cell names.
    """

    scheme: str | None = None
    plan: Plan | None = None
    backend: str | None = None
    trace: "Trace | None" = None
    find_plan: Callable[[str], Plan | None] = no_plan
    overrides_sites: bool = False
    modules: Modules | None = None
    finds_plans: Callable[[], bool] = no_plans
    by_id: bool = False
    uses: SchemeUse | None = None
    # Memory of this record alone: `replace` starts afresh, so no choice outlives its plan.
    passing: set[str | None] = field(init=False, default_factory=set, compare=False, repr=False)
    # Calls of small products that a trace does not see.
    counted: CountedCalls = field(
        init=False, default_factory=CountedCalls, compare=False, repr=False
    )
    # What is known of calls by their signature, see `signatures`.
    known: dict[Any, "Known"] = field(init=False, default_factory=dict, compare=False, repr=False)
    _choices: dict[str | None, Choice] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def choice(self, site: str | None, *, forward: str | None = None) -> Choice:
        """The choice for a call site, remembered after the first look-up.

        forward: the call site is one of PyTorch's own products, which no plan need know. Where none
        does, it runs as this one does: itself, or that whose backward pass it is of.

        Warns, once a site, where a plan knows the module and not the site: it is stale. Raises
        PlanError for a scheme that is none.
        """
        found = self._choices.get(site)
        if found is None:
            if forward is None or self._is_known(site):
                found = self._look_up(site)
            else:
                found = UNCHOSEN if forward == site else self.choice(forward, forward=forward)
            self._choices[site] = found
            if found.scheme in (None, "native") and self.trace is None and self.backend != "cuda":
                self.passing.add(site)
        return found

    def plan_of(self, module: str) -> Plan | None:
        """The plan that decides about the sites of a module; None where there is none."""
        if self.plan is None or not knows(self.plan, module):
            return self.find_plan(module) or self.plan
        return self.plan

    def has_choices(self) -> bool:
        """Return whether any call site may have a scheme, plan or backend of its own, or a trace.

        Where not, all products run by the default of their type.
        """
        modules = self.modules or Modules()
        given = self.scheme, self.plan, self.backend, self.trace, modules.plan, modules.scheme
        return any(it is not None for it in given) or self.finds_plans()

    def _is_known(self, site: str | None) -> bool:
        """Return whether a scheme is in force for all call sites, or a plan has this one."""
        if self.scheme is not None or site is None:
            return True
        plan = self.plan_of(site.partition(":")[0])
        return plan is not None and plan.find(site) is not None

    def _look_up(self, site: str | None) -> Choice:
        if self.scheme is not None:
            return checked(Choice(self.scheme))
        if site is None:
            return UNCHOSEN
        module = site.partition(":")[0]
        plan = self.plan_of(module)
        entry = None if plan is None else plan.find(site)
        if self.by_id and entry is not None and entry.id != site:
            entry = None
        if entry is not None and plan is not None:
            is_guarded = entry.error > 0 and plan.guard == "on" and entry.scheme != "native"
            guard = _guard(site, entry) if is_guarded else None
            choice = checked(Choice(entry.scheme, entry.block, guard))
            if entry.id == site:
                return choice
            warn(f"call site {site} is not in the plan; it runs as {entry.id}, the same expression")
            return choice
        if plan is not None and knows(plan, module) and not self.by_id:
            warn(f"call site {site} is not in the plan (stale?); it runs as if there were none")
        return UNCHOSEN


def knows(plan: Plan, module: str) -> bool:
    """Whether a plan has sites of a module: of others it was never meant to say anything."""
    return any(entry.id.startswith(f"{module}:") for entry in plan.site)


def _guard(site: str, entry: Site) -> "PlanGuard":
    from mixpert_py.runtime.plan_guard import PlanGuard, floor_of

    return PlanGuard(site, entry.error, floor_of(entry.scheme))


def checked(choice: Choice) -> Choice:
    """The choice. Raises PlanError where its scheme is unknown."""
    from mixpert_py.runtime.schemes import get

    get(choice.scheme or "native")
    return choice


@dataclass(slots=True, eq=False)
class Override:
    """One `use` that has begun: what it put in force, and what it was begun in."""

    context: Context
    outer: Optional["Override"]
    ended: bool = False


INITIAL = Context()
_process = Override(INITIAL, None)  # what every thread sees that has no override of its own
innermost: ContextVar[Override] = ContextVar("mixpert_innermost_override", default=_process)


def current() -> Context:
    """What is in force for the calling code."""
    return innermost.get().context


def passes(site: str | None) -> bool:
    """Whether a call of this site is known to be the native call and nothing else.

    Stands before every product, so it asks nobody: the first call of a site is not known yet. Where
    it is true the call is counted: the caller makes the native call, and asks nothing after it.
    """
    context = innermost.get().context
    return site in context.passing or next(context.counted.get(site, NONE), False)


def is_initial() -> bool:
    """Whether nobody has put anything in force in this process."""
    return current() is INITIAL


def default() -> Context:
    """Return the context that is in force where nothing overrides it."""
    return _process.context


def set_default(context: Context) -> None:
    """Replace the process default, which every thread sees that has no override of its own."""
    _process.context = context


@contextmanager
def use(context: Context) -> Iterator[Context]:
    """Put `context` in force for the code inside, in this thread or task only.

    In a generator it stays in force while the generator is suspended, as numpy.errstate does.
    """
    override = Override(context, innermost.get())
    innermost.set(override)
    try:
        yield context
    finally:
        left: Override | None = innermost.get()
        if left is override:
            left = override.outer
        else:
            _end_out_of_turn(override, left)
        while left is not None and left.ended:
            left = left.outer
        innermost.set(left or _process)


def _end_out_of_turn(override: Override, seen: Override | None) -> None:
    """A generator's `use` has ended before one that was begun in it, or in another thread or task.

    Where it is, it is left out; where it is not seen, whoever ends there will do so.
    """
    while seen is not None and seen.outer is not override:
        seen = seen.outer
    if seen is None:
        override.ended = True
    else:
        seen.outer = override.outer


def require_backend(name: str | None) -> None:
    """Raise PlanError for a backend that is none, DeviceError for one that is not here."""
    if name == "cuda":
        found = device.find()
        if isinstance(found, device.Absent):
            raise DeviceError(f"backend 'cuda': {found.sentence}; use 'reference'")
    elif emulates(name):
        accumulations(name)
    elif name is not None:
        raise PlanError(f"unknown backend {name!r}; known: reference, cuda, reference:DEVICE")


def emulates(backend: str | None) -> bool:
    """Whether a backend is NumPy's emulation: "reference", or "reference:" and a device's name."""
    return backend is not None and backend.partition(":")[0] == "reference"


@cache
def accumulations(backend: str | None) -> "Accumulations | None":
    """How the chip that an emulating backend names adds up products; None: it names none.

    Raises DeviceError where no model of that device is known, or it does not say.
    """
    device_name = (backend or "").partition(":")[2]
    if not device_name:
        return None
    from mixpert_py.runtime.model.device_model import Accumulations
    from mixpert_py.runtime.model.known_devices import find

    found = find(device_name).accumulation
    if found == Accumulations():
        raise DeviceError(f"backend {backend!r}: its device model says nothing of accumulation")
    return found
