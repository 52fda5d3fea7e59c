"""The context of a call: the scheme, plan, backend and trace that are in force.

A context variable overrides a default of the process. The default exists because a new thread
starts with an empty context, and must still see the plan that the program runs under.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from mixpert_py.plan import Plan
from mixpert_py.runtime.backends import is_on_gpu
from mixpert_py.runtime.program_frames import warn
from mixpert_py.runtime.reasons import MEANING, Reason
from mixpert_py.runtime.tracing.counted import NONE, CountedCalls

if TYPE_CHECKING:
    from mixpert_py.runtime.plan_guard import PlanGuard
    from mixpert_py.runtime.signatures import Known
    from mixpert_py.runtime.tracing.trace import Trace


class Choice(NamedTuple):
    """The scheme that was chosen for a call site; None: nobody chose one.

    guard: the check of the products of a site whose scheme a plan chose.
    """

    scheme: str | None = None
    guard: "PlanGuard | None" = None


UNCHOSEN = Choice()


class Modules(NamedTuple):
    """Products that PyTorch makes itself take schemes, see `products.below_autograd`.

    plan, scheme: arguments of a decorator, which override those that are in force. The plan
    overrides the scheme.
    """

    plan: Plan | None = None
    scheme: str | None = None

    def given(self, site: str | None) -> str | None:
        """The scheme that these arguments have for a site; None for none."""
        entry = None if self.plan is None or site is None else self.plan.find(site)
        return self.scheme if entry is None else entry.scheme


@dataclass(slots=True, eq=False)
class SchemeUse:
    """Counts whether any product took the scheme that a block, a function or a cell names.

    outer: the use that this one is nested in. has_products: whether the runtime made any product,
    under any scheme. reasons: why products did not take the scheme.
    """

    scheme: str
    outer: Optional["SchemeUse"] = None
    is_taken: bool = False
    has_products: bool = False
    reasons: set[Reason] = field(default_factory=set)

    def note(self, choice: Choice, outcome: object) -> None:
        """Count a product. outcome: its Reason if it did not take the scheme that was chosen."""
        self.has_products = True
        if choice.scheme == self.scheme:
            reason = getattr(outcome, "reason", outcome)  # of a native product
            if isinstance(reason, Reason):
                self.reasons.add(reason)
            elif outcome is not None:  # integers are exact under any scheme
                is_other = getattr(outcome, "scheme", self.scheme) == "exact" != self.scheme
                self.is_taken = self.is_taken or not is_other
        if self.outer is not None:
            self.outer.note(choice, outcome)

    def why_not(self) -> str | None:
        """One line that says why every product of the scheme ran natively; None if one took the
        scheme, there was no product, or `warn_without_gpu` has said it.
        """
        is_told = Reason.NO_TENSOR_CORE in self.reasons
        if self.is_taken or is_told or self.scheme == "native" or not self.reasons:
            return None
        return f"every product ran natively. {' '.join(MEANING[it] for it in sorted(self.reasons))}"


@dataclass(frozen=True, slots=True)
class Context:
    """All that decides how products are made. Derive another with `dataclasses.replace`.

    scheme: for all sites; it overrides `plan`. backend: "reference" or "reference:DEVICE", "cuda",
    or None for automatic. find_plan: module (the first part of a site id) → its plan; called once
    per site, if neither `scheme` nor `plan` decides about the module. finds_plans: returns whether
    `find_plan` may find a plan for any module; a program may set MIXPERT_PLAN itself.
    overrides_sites: `scheme` also overrides schemes that are written at call sites. modules: how
    products that PyTorch makes itself take schemes; None: they do not. by_id: whether the plan
    decides only about the ids in it, so that a site is neither matched by its expression nor
    reported as missing from a stale plan. uses: counts the products that take the scheme of a
    block, a function or a cell. passing: sites at which small operands are multiplied natively
    without a decision, because no scheme, or "native", was chosen.
    """

    scheme: str | None = None
    plan: Plan | None = None
    backend: str | None = None
    trace: "Trace | None" = None
    find_plan: Callable[[str], Plan | None] = lambda module: None
    overrides_sites: bool = False
    modules: Modules | None = None
    finds_plans: Callable[[], bool] = bool
    by_id: bool = False
    uses: SchemeUse | None = None
    # Caches: `replace` makes empty ones, so that no choice outlives its plan.
    passing: set[str | None] = field(init=False, default_factory=set, compare=False, repr=False)
    # Calls of small products that a trace does not see.
    counted: CountedCalls = field(
        init=False, default_factory=CountedCalls, compare=False, repr=False
    )
    # The next products of NumPy's integers at a site that are native without a look at them.
    resting: "dict[str | None, repeat[Any]]" = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    # What is known of calls by their signature, see `signatures`.
    known: dict[Any, "Known"] = field(init=False, default_factory=dict, compare=False, repr=False)
    # Of PyTorch's own products by default, whatever their call site: launches or NATIVE, by
    # operator, shapes, types and devices.
    everywhere: dict[Any, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    _told: set[Reason] = field(init=False, default_factory=set, compare=False, repr=False)
    _own: set[Any] = field(init=False, default_factory=set, compare=False, repr=False)
    _choices: dict[str | None, Choice] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def choice(self, site: str | None, *, forward: str | None = None) -> Choice:
        """The choice for a call site, cached after the first look-up.

        forward: given for products that PyTorch makes itself, which a plan need not name: the site
        of the forward product, whose choice a backward product without an entry takes.

        Warns once for each site that a plan lacks although it has others of the same module: the
        plan is stale. Raises PlanError for an unknown scheme.
        """
        found = self._choices.get(site)
        if found is None:
            if forward is None or self._is_known(site):
                found = self._look_up(site)
            else:
                found = UNCHOSEN if forward == site else self.choice(forward, forward=forward)
            self._choices[site] = found
            is_native = found.scheme in (None, "native")
            if is_native and self.trace is None and not is_on_gpu(self.backend):
                self.passing.add(site)
        return found

    def plan_of(self, module: str) -> Plan | None:
        """The plan that decides about the sites of a module; None if there is none."""
        if self.plan is None or not knows(self.plan, module):
            return self.find_plan(module) or self.plan
        return self.plan

    def has_choices(self) -> bool:
        """Return whether there is a scheme, a plan, a backend or a trace for any call site.

        If not, all products run by the default of their type.
        """
        modules = self.modules or Modules()
        given = self.scheme, self.plan, self.backend, self.trace, modules.plan, modules.scheme
        return any(it is not None for it in given) or bool(self._own) or self.finds_plans()

    def note_own(self, own: tuple[object, ...]) -> None:
        """Note the scheme and backend of one call: then `everywhere` holds no longer."""
        if own not in self._own and any(it is not None for it in own):
            self._own.add(own)
            self.everywhere.clear()

    def warn_without_gpu(self, scheme: str | None) -> None:
        """Warn at the first product of a scheme that needs a GPU where there is none."""
        if Reason.NO_TENSOR_CORE not in self._told:
            self._told.add(Reason.NO_TENSOR_CORE)
            try:
                warn(f"{scheme}: products run natively. {MEANING[Reason.NO_TENSOR_CORE]}")
            except UserWarning as warning:  # a program that makes errors of warnings goes on, too
                print(f"mixpert: {warning}", file=sys.stderr)

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
            guard = None
            if entry.error > 0 and plan.guard == "on" and entry.scheme != "native":
                from mixpert_py.runtime.plan_guard import PlanGuard, floor_of

                guard = PlanGuard(site, entry.error, floor_of(entry.scheme))
            choice = checked(Choice(entry.scheme, guard))
            if entry.id == site:
                return choice
            warn(f"call site {site} is not in the plan; it runs as {entry.id}, the same expression")
            return choice
        if plan is not None and knows(plan, module) and not self.by_id:
            warn(f"call site {site} is not in the plan (stale?); it runs as if there were none")
        return UNCHOSEN


def knows(plan: Plan, module: str) -> bool:
    """Whether a plan has sites of a module. A plan does not decide about other modules."""
    return any(entry.id.startswith(f"{module}:") for entry in plan.site)


def checked(choice: Choice) -> Choice:
    """The choice itself. Raises PlanError if its scheme is unknown."""
    from mixpert_py.runtime.schemes import get

    get(choice.scheme or "native")
    return choice


@dataclass(slots=True, eq=False)
class Override:
    """One active `use`: its context, and the override that encloses it."""

    context: Context
    outer: Optional["Override"]
    ended: bool = False


INITIAL = Context()
_process = Override(INITIAL, None)  # what every thread sees that has no override of its own
innermost: ContextVar[Override] = ContextVar("mixpert_innermost_override", default=_process)


def current() -> Context:
    """The context of the calling code."""
    return innermost.get().context


def passes(site: str | None) -> bool:
    """Whether small products of this site are multiplied natively without a decision.

    This is called before every product, so it only reads caches; it is False at a site's first
    call. If it is True the call has been counted, and the caller makes the native call alone.
    """
    context = innermost.get().context
    return site in context.passing or next(context.counted.get(site, NONE), False)


def default() -> Context:
    """Return the process default, which holds wherever nothing overrides it."""
    return _process.context


def set_default(context: Context) -> None:
    """Replace the process default, which holds in every thread without an override."""
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
    """Remove the override of a generator's `use` that ended before a `use` that was begun inside
    it, or in another thread or task.

    If the override encloses `seen`, it is taken out of that chain at once; else it is marked, and
    the thread or task whose chain has it skips it.
    """
    while seen is not None and seen.outer is not override:
        seen = seen.outer
    if seen is None:
        override.ended = True
    else:
        seen.outer = override.outer
