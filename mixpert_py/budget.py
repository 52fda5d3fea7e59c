"""Budgets in a user's own tests: compare a function's native results with those under a plan."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mixpert_py import config
from mixpert_py.decorator import rewritten_modules
from mixpert_py.errors import BudgetError, MixPertError, PlanError, ProgramError
from mixpert_py.execution.outputs import observed, observing_anew
from mixpert_py.plan import Plan
from mixpert_py.runtime.backends import of_this_machine
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu.foreign import on_host
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.tuner.report import error_text
from mixpert_py.tuning.judge import errors_of, resolve
from mixpert_py.tuning.options import DIFFERING, NATIVE, Limit, Limits, limits_from

NARROW = {"float32", "float16", "complex64"}

PlanOrPath = str | os.PathLike[str] | Plan
Values = dict[str, npt.NDArray[Any]]
Given = TypeVar("Given", float, str)


def assert_within_budget(
    plan: PlanOrPath,
    function: Callable[..., Any],
    /,
    *args: Any,
    budget: float | Mapping[str, float] | None = None,
    criterion: str | Mapping[str, str] | None = None,
    strict: bool = False,
    **kwargs: Any,
) -> float:
    """Raise AssertionError if function(*args, **kwargs) exceeds a plan's budget; return its error.

    plan: a plan file or a Plan. The modules that it names are rewritten in memory during the check,
    even if `accelerate` or `install` has rewritten them before. The function is called natively
    (twice), with every product in float64 if some are narrower and the plan was not made with
    `--reference native`, and under the plan: on the GPU if there is one, else emulated in NumPy.
    The returned values (an array, a number, or tuples, lists and dicts of them) and the observed
    values are compared. The error that takes the largest share of its budget counts; NaN exceeds
    any budget. Seed the function's random numbers, and let it not change its arguments. Products in
    threads that it starts stay native.

    budget, criterion: one for all compared values, or a mapping from values to their own; other
    values are then not judged. The default is what the plan says, by name where its values have
    limits of their own. strict: also fail if a product is less accurate than when the plan was
    made, and therefore runs natively.

    Raises BudgetError if the function's results vary too much, PlanError for a plan that cannot be
    read or has no budget of its own, ProgramError if there is nothing to compare or nothing ran
    under the plan.
    """
    __tracebackhide__ = True
    found = check(plan, partial(function, *args, **kwargs), budget, criterion, strict=strict)
    if not found.holds:
        raise AssertionError(found.sentence)
    return found.error


@dataclass(frozen=True, slots=True)
class Check:
    """The worst value's error and limit. outside: products less accurate than when planned."""

    plan: str
    error: float
    worst: str
    budget: float
    criterion: str
    outside: int = 0

    @property
    def holds(self) -> bool:
        return self.error <= self.budget and not self.outside

    @property
    def sentence(self) -> str:
        """A sentence that says what does not hold, by how much, and what to do."""
        if self.error <= self.budget:
            return (
                f"{self.plan}: {self.outside} products were less accurate than when the plan was "
                "made; tune again, on such data"
            )
        return (
            f"{self.worst}: {self.criterion} error {error_text(self.error)} under {self.plan}, "
            f"over the budget of {self.budget:g}; tune again, or allow more"
        )


def check(
    plan: PlanOrPath,
    function: Callable[[], Any],
    budget: float | Mapping[str, float] | None = None,
    criterion: str | Mapping[str, str] | None = None,
    *,
    strict: bool = False,
) -> Check:
    """The check behind `assert_within_budget`; it raises the same errors except AssertionError."""
    __tracebackhide__ = True
    name = "the plan" if isinstance(plan, Plan) else os.fspath(plan)
    loaded = plan if isinstance(plan, Plan) else config.load_plan(Path(plan))
    try:
        limits = limits_of(loaded, _by_name(budget), _by_name(criterion))
    except PlanError as error:
        raise PlanError(f"{name}: {error}") from None
    folder = os.getcwd()
    for metric in limits.metrics:
        resolve(metric, folder)
    with rewritten_modules({site.id.partition(":")[0] for site in loaded.site}):
        trace = Trace()
        native = limits.judged(_values(function, Context(scheme="native", trace=trace)))
        _require_numbers(native)
        limits = limits.with_decisions(native)
        _require_steady(native, _values(function, Context(scheme="native")), limits, folder)
        reference = native
        by_native = any(row.reference == NATIVE for row in loaded.criterion)
        if not by_native and any(
            not NARROW.isdisjoint(site.dtypes) for site in trace.sites.values()
        ):
            reference = _values(function, Context(scheme="float64"))
            # A plan must not change what the function decides as it is.
            reference |= limits.decisions(native)
        planned, outside = _under(loaded, name, function)
    errors = errors_of(limits, folder, {name: reference[name] for name in native}, planned)
    worst = limits.worst(errors)[1]
    limit = limits.of(worst)
    outside = outside if strict else 0
    return Check(name, errors[worst], worst, limit.budget, limit.metric, outside)


def _by_name(given: Given | Mapping[str, Given] | None) -> dict[str | None, Given]:
    """Return budgets or criteria by name, as `options.limits_from` takes them; None: of all."""
    if given is None:
        return {}
    return dict(given.items()) if isinstance(given, Mapping) else {None: given}


def limits_of(
    plan: Plan,
    budgets: Mapping[str | None, float],
    metrics: Mapping[str | None, str],
    named: bool = False,
) -> Limits:
    """Budgets and criteria: those that are given (see `options.limits_from`), else the plan's own.

    The plan's own are for all that is compared, where its values have the same, unless `named`.
    Raises PlanError if no budget is given and the plan has none by this criterion.
    """
    if budgets or metrics.keys() - {None}:
        own: dict[str | None, str] = {}
        if None not in metrics:
            own = {row.name: row.metric for row in plan.criterion if row.name in budgets}
            different = {row.metric for row in plan.criterion} - {DIFFERING}
            if len(different) == 1:
                own[None] = different.pop()
        return limits_from(budgets, {**own, **metrics})
    criterion = metrics.get(None)
    if not any(criterion in (None, row.metric) for row in plan.criterion):
        raise PlanError(f"it has no budget{f' by {criterion}' if criterion else ''}; give one")
    rows = {
        row.name: Limit(row.budget, row.metric)
        for row in plan.criterion
        if criterion in (None, row.metric) or row.metric == DIFFERING
    }
    # Decisions that may not change are judged as such beside any other limit.
    common = Limits(None, rows).only
    return Limits(common) if common and not named else Limits(None, rows)


def _under(plan: Plan, name: str, function: Callable[[], Any]) -> tuple[Values, int]:
    """The values under a plan, and how many products are less accurate than when it was made."""
    __tracebackhide__ = True
    # Small products, too, take their schemes there: a plan that no call takes is within any budget.
    backend = of_this_machine().name
    trace = Trace()
    try:
        values = _values(function, Context(plan=plan, backend=backend, trace=trace))
    except Exception as error:
        error.add_note(f"It came under {name}; the same call passes natively.")
        raise
    _require_planned(name, plan, trace)
    return values, sum(it.reasons.get(Reason.OUTSIDE_PLAN, 0) for it in trace.sites.values())


def _values(function: Callable[[], Any], context: Context) -> Values:
    """The values that a call returns and observes, copied: the next call may overwrite them."""
    __tracebackhide__ = True
    with observing_anew():
        with use(context):
            values = dict(_numbers("result", function()))
        for name, value in observed().items():
            values.update(_numbers(name, value))
        return values


def _numbers(name: str, value: object) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The numbers in a value, under the names that Python would reach them by."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(f"{name}[{key!r}]", part)
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            yield from _numbers(f"{name}[{index}]", part)
    elif value is not None:
        try:
            array = np.array(on_host(value))
        except Exception:  # whatever a user's own __array__ raises: it is no number
            return
        if array.dtype.kind in "biufc":
            yield name, array


def _require_numbers(native: Values) -> None:
    if not native:
        raise ProgramError(
            "nothing to compare: return an array or a number, or mark one with mixpert_py.observe()"
        )
    for name, array in native.items():
        if array.size and not np.isfinite(array).any():
            raise ProgramError(f"{name}: no finite number in the native call")


def _require_steady(native: Values, again: Values, limits: Limits, folder: str) -> None:
    """Raise BudgetError if two native calls of the function differ too much."""
    try:
        errors = errors_of(limits, folder, native, again)
    except MixPertError as error:
        raise BudgetError(f"two native calls differ: {error}") from None
    spread, name = limits.worst(errors)
    if not spread <= limits.budget / 2:
        raise BudgetError(
            f"{name}: two native calls differ by {error_text(errors[name])}, more than half the "
            f"budget of {limits.of(name).budget:g}; seed its random numbers, and leave its "
            "arguments as they are"
        )


def _require_planned(name: str, plan: Plan, trace: Trace) -> None:
    """Raise ProgramError if the plan applied to no product: such a test could not fail."""
    entries = {site: entry for site in trace.sites if (entry := plan.find(site)) is not None}
    if not entries:
        raise ProgramError(
            f"{name}: none of its call sites ran, so nothing was checked; is its module imported "
            "before the call, and its source as it was?"
        )
    lowered = [site for site, entry in entries.items() if entry.scheme != "native"]
    taken = [site for site in lowered if entries[site].scheme in trace.sites[site].schemes]
    reasons = {str(reason) for site in lowered for reason in trace.sites[site].reasons}
    if lowered and not taken and Reason.OUTSIDE_PLAN not in reasons:
        raise ProgramError(
            f"{name}: no product took its planned scheme ({', '.join(sorted(reasons))}), so "
            "nothing was checked"
        )
