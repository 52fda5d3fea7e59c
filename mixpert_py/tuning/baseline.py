"""The program before anything is lowered: its values, its operators, and why some stay native."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, prod

import numpy as np

from mixpert_py.errors import BudgetError, ProgramError, ShapeError, counted
from mixpert_py.execution import outputs
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.outputs import Values
from mixpert_py.execution.products import MeasuredProduct
from mixpert_py.execution.worker import SiteResult
from mixpert_py.passes.finder import CallSite
from mixpert_py.runtime.arrays import are_whole, is_wide
from mixpert_py.runtime.reasons import MEANING, Reason
from mixpert_py.runtime.scheme import AS_ACCURATE
from mixpert_py.runtime.schemes import get
from mixpert_py.tuner.records import Operator
from mixpert_py.tuning.clock import Clock, PairedTimes
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.options import DIFFERING, FLOAT64, NATIVE, listed

NATIVE_RUNS = 3
PAIRED_RUNS = 2  # where gains are not told from the times of runs
SINGLE = "single"  # stands for products that are of float32's precision already


@dataclass(frozen=True, slots=True)
class Baseline:
    """The native runs, judged; the values that errors are measured against; the profile by site.

    alone: the products that the profile made by themselves. elsewhere: sites that only other
    processes of the program called. spread: the largest number by which a native run differs from
    the first (see `Limits`).
    """

    natives: tuple[ProgramRun, ...]
    reference: Values
    profile: dict[str, SiteResult]
    alone: tuple[MeasuredProduct, ...] = ()
    elsewhere: tuple[str, ...] = ()
    spread: float = 0.0


def first_run(experiment: Experiment) -> ProgramRun | None:
    """The first native run; None without products. ProgramError if only its children make any."""
    first = experiment.native()
    if first.result.sites:
        return first
    if first.result.elsewhere:
        raise ProgramError(
            f"{experiment.program.argv[0]}: only processes that it starts make its products, which "
            "cannot be tuned; let the program make some of them itself, with one worker or none"
        )
    return None


def establish(
    experiment: Experiment,
    first: ProgramRun,
    levels: Sequence[str] = (),
    reference: str = FLOAT64,
    *,
    timed: bool = False,
) -> Baseline:
    """Run the program natively again, then once more to profile each level, if any.

    timed: whether the profile times products of the host by themselves. Raises ProgramError if the
    program has nothing to compare, BudgetError if its own spread is more than half of a budget.
    """
    _require_numbers(experiment.program.argv[0], first)
    alone = timed and not experiment.on_gpu
    others = [experiment.native() for _ in range((PAIRED_RUNS if alone else NATIVE_RUNS) - 1)]
    spread = max(_require_steady(experiment, first, run) for run in others)
    values = reference_of(experiment, first, reference)
    natives = tuple(experiment.judged(run, values) for run in (first, *others))
    profile = (experiment.profile(levels, timed=alone) if levels else first).result
    elsewhere = set().union(*(run.result.elsewhere for run in natives)) - profile.sites.keys()
    return Baseline(natives, values, profile.sites, profile.alone, tuple(sorted(elsewhere)), spread)


def _require_numbers(name: str, run: ProgramRun) -> None:
    if not run.values:
        raise ProgramError(
            f"{name}: nothing to compare: no variable that holds numbers from a product when the "
            "program ends; name one with --compare, or mark it with mixpert_py.observe()"
        )
    for value, array in run.values.items():
        if array.size and not np.isfinite(array).any():
            raise ProgramError(
                f"{name}: {value!r} has no finite number when the program ends; compare another "
                "value with --compare"
            )


def _require_steady(experiment: Experiment, first: ProgramRun, other: ProgramRun) -> float:
    """How much two native runs differ. Raises BudgetError if too much, ProgramError for NaN."""
    name, limits = experiment.program.argv[0], experiment.comparison.limits
    try:
        spread = experiment.judged(other, first.values)
    except ShapeError as error:
        raise BudgetError(f"{name}: native runs differ: {error}") from None
    if not spread.error <= limits.budget / 2:
        value = spread.worst
        metric = limits.of(value).metric
        if ":" in metric and isnan(spread.errors[value]):
            raise ProgramError(
                f"criterion {metric} returned NaN for {value!r} of two native runs; an error is ≥ 0"
            )
        share = f"allow a share of it (--error {value}=SHARE), " if metric == DIFFERING else ""
        share = "print no times, " if value == outputs.STDOUT else share
        raise BudgetError(
            f"{name}: {value!r} differs by {spread.errors[value]:.2g} between native runs, "
            f"more than half the budget of {limits.of(value).budget:g}; seed its random numbers, "
            f"{share}or compare another value with --compare"
        )
    return spread.error


def reference_of(experiment: Experiment, native: ProgramRun, reference: str) -> Values:
    """The values that errors are measured against: the native run's own if reference is NATIVE.

    Else those with every product in float64, for which another run is made if some are narrower.
    The native run always gives the decisions, because a plan must not change them.
    """
    dtypes = {dtype for site in native.result.sites.values() for dtype in site.dtypes}
    if reference == NATIVE or dtypes.isdisjoint({"float32", "float16", "complex64"}):
        return native.values
    decisions = experiment.comparison.limits.decisions(native.values)
    if decisions.keys() == native.values.keys():
        return native.values
    return {**experiment.everywhere("float64").values, **decisions}


def profiled_operator(
    site: CallSite,
    trace: SiteResult,
    clock: Clock,
    levels: Iterable[str],
    *,
    locked: bool,
    sensitivity: float = 1.0,
    path: str = "",
) -> Operator:
    """The operator of a call site with its profile. levels: whose times are predicted."""
    return Operator(
        id=site.id,
        expression=site.expression,
        line=site.line,
        calls=trace.calls,
        shapes=tuple((m, k, n) for m, k, n, _ in trace.shapes),
        seconds=clock.native.site_seconds.get(site.id, 0.0),
        local_errors={scheme: 0.0 for scheme in levels if get(scheme).kind in AS_ACCURATE}
        | {scheme: nan if error is None else error for scheme, error in trace.errors.items()},
        predicted=clock.predicted(site.id, levels),
        excluded=clock.excluded(site.id),
        locked=locked,
        sensitivity=sensitivity,
        profile=trace,
        path=path,
        unsuited=why_native(trace) if isinstance(clock.cost, PairedTimes) else "",
    )


def why_native(trace: SiteResult) -> str:
    """Why no call of a native run's site can take `float32` or `exact`; "" where one can."""
    reason = _reason(trace)
    if not reason and all(0 in shape[:3] for shape in trace.shapes):
        return f"no product of arrays that a scheme takes ({', '.join(trace.dtypes)})"
    return _meaning(reason, [trace])


def is_native_anywhere(trace: SiteResult) -> bool:
    """Whether no call of a site can take a scheme, on a GPU neither: of integers, say."""
    return _reason(trace) not in ("", SINGLE, Reason.TOO_SMALL)


def why_all_native(sites: Mapping[str, SiteResult]) -> str:
    """Why no product of a program can take `float32`, in one line; "" where one can."""
    by_reason: dict[str, list[SiteResult]] = defaultdict(list)
    for trace in sites.values():
        by_reason[_reason(trace)].append(trace)
    if "" in by_reason:
        return ""
    return "; ".join(
        f"{counted(sum(trace.calls for trace in traces), 'product')}: {_meaning(reason, traces)}"
        for reason, traces in by_reason.items()
    )


def _reason(trace: SiteResult) -> str:
    """The reason of most calls, where each call has one; "" where some call has none."""
    has_shapes = all(any(shape) for *shape, _ in trace.shapes)
    if has_shapes and Reason.LOOP in trace.unsuited:
        return ""
    if sum(trace.unsuited.values()) >= trace.calls and trace.unsuited:
        return max(trace.unsuited, key=trace.unsuited.__getitem__)
    is_single = has_shapes and not is_wide(*trace.dtypes) and not are_whole(*trace.dtypes)
    return SINGLE if is_single else ""


def _meaning(reason: str, traces: Sequence[SiteResult]) -> str:
    """The meaning of a reason, with the largest shape, or the types, of its products."""
    if reason == Reason.TOO_SMALL:
        m, k, n = max((shape[:3] for trace in traces for shape in trace.shapes), key=prod)
        return f"{m} × {k} × {n} is too small or too narrow for a level to be faster"
    if reason == SINGLE:
        types = dict.fromkeys(name for trace in traces for name in trace.dtypes)
        return f"a processor has no faster level for {listed(types, 2)}"
    return MEANING[reason].rstrip(".") if reason else ""
