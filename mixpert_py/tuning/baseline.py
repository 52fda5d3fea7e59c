"""The program before anything is lowered: its values and times, its operators, predicted times."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from mixpert_py.errors import BudgetError, ProgramError, ShapeError
from mixpert_py.execution import outputs
from mixpert_py.execution.executor import ProgramRun, Values
from mixpert_py.execution.products import MeasuredProduct
from mixpert_py.execution.worker import SiteResult
from mixpert_py.passes.call_site import CallSite
from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import is_wide, real_products
from mixpert_py.runtime.scheme import AS_ACCURATE
from mixpert_py.runtime.schemes import get
from mixpert_py.tuner.ratio import SMALLEST_GAIN
from mixpert_py.tuner.records import Measurement, Operator, Reason, median_of, time_noise
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.options import DIFFERING, FLOAT64, NATIVE
from mixpert_py.tuning.paired import PairedTimes
from mixpert_py.tuning.unsuited import why_native

if TYPE_CHECKING:
    from mixpert_py.runtime.model.kernel_times import KernelTimes

NATIVE_RUNS = 3
PAIRED_RUNS = 2  # where gains are not told from the times of runs

Cost = Callable[[str, SiteResult, str], float]
"""(site id, its native trace, scheme) → the cost of its calls under the scheme, in any unit."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The native runs, judged; the values that errors are measured against; the profile by site.

    reference: the values with every product in float64, or those of the first native run. alone:
    the products that the profile made by themselves. elsewhere: sites that only other processes of
    the program called. spread: the largest number by which a native run differs from the first (see
    `Limits`).
    """

    natives: tuple[ProgramRun, ...]
    reference: Values
    profile: dict[str, SiteResult]
    alone: tuple[MeasuredProduct, ...] = ()
    elsewhere: tuple[str, ...] = ()
    spread: float = 0.0


def establish(
    experiment: Experiment,
    levels: Callable[[ProgramRun], Sequence[str]],
    reference: str = FLOAT64,
    *,
    timed: bool = False,
    after_first: Callable[[ProgramRun], bool] = lambda run: True,
) -> Baseline | None:
    """Run the program natively, then once more to profile each level, if any.

    levels: returns those of the ladder; called after the native runs, with the first of them.
    reference: FLOAT64 or NATIVE. timed: whether times are measured: then the profile times products
    of the host by themselves. after_first: called with the first run, where it has products;
    returns whether to go on. None if the program calls no product, or that is the end. Raises
    ProgramError if it fails, has nothing to compare, or leaves all products to other processes,
    BudgetError if its own spread is more than half of a budget.
    """
    name = experiment.program.argv[0]
    first = experiment.native()
    if not first.result.sites:
        if first.result.elsewhere:
            raise ProgramError(
                f"{name}: only processes that it starts make its products, which cannot be tuned; "
                "let the program make some of them itself, with one worker or none"
            )
        return None
    if not after_first(first):
        return None
    _require_numbers(name, first)
    alone = timed and not experiment.on_gpu
    others = [experiment.native() for _ in range((PAIRED_RUNS if alone else NATIVE_RUNS) - 1)]
    first, *others = experiment.settled([first, *others])
    spread = max(_require_steady(experiment, first, run) for run in others)
    values = reference_of(experiment, first, reference)
    natives = tuple(experiment.judged(run, values) for run in (first, *others))
    profile = experiment.profile(names, timed=alone) if (names := levels(first)) else first
    elsewhere = set().union(*(run.result.elsewhere for run in natives))
    elsewhere -= profile.result.sites.keys()
    return Baseline(
        natives,
        values,
        profile.result.sites,
        profile.result.alone,
        tuple(sorted(elsewhere)),
        spread,
    )


def _require_numbers(name: str, run: ProgramRun) -> None:
    """Raise ProgramError where there is nothing that an error could be measured by."""
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
    """The number by which two native runs differ (see `Limits`).

    Raises BudgetError, naming the value, where that is too much, ProgramError where that cannot be
    decided: a criterion of the user's gives no number.
    """
    name, limits = experiment.program.argv[0], experiment.comparison.judge.limits
    # The line of what is printed that differs is quoted: most often it shows a time.
    printed = (first.printed, other.printed) if experiment.comparison.stdout else ("", "")
    where = outputs.largest_difference(*printed)
    at = f" ({where})" if where else ""
    try:
        spread = experiment.judged(other, first.values)
    except ShapeError as error:
        raise BudgetError(f"{name}: native runs differ: {error}{at}") from None
    if not spread.error <= limits.budget / 2:
        value = spread.worst
        metric = limits.of(value).metric
        if ":" in metric and isnan(spread.errors[value]):
            raise ProgramError(
                f"criterion {metric} returned NaN for {value!r} of two native runs; an error is ≥ 0"
            )
        at = at if value == outputs.STDOUT else ""
        raise BudgetError(
            f"{name}: {value!r} differs by {spread.errors[value]:.2g} between native runs{at}, "
            f"more than half the budget of {limits.of(value).budget:g}; seed its random numbers, "
            f"{_allowed_share(value, metric)}or compare another value with --compare"
        )
    return spread.error


def _allowed_share(value: str, metric: str) -> str:
    """The way to allow a part of a decision to differ, as a part of a sentence."""
    return f"allow a share of it (--error {value}=SHARE), " if metric == DIFFERING else ""


def reference_of(experiment: Experiment, native: ProgramRun, reference: str) -> Values:
    """The values that errors are measured against: the native run's own if reference is NATIVE.

    Else those with every product in float64, for which another run is made if some are narrower.
    Decisions are those of the native run in any case: a plan must not change what it decides. So is
    what the program prints and writes, since lines of other runs need not be the same.
    """
    dtypes = {dtype for site in native.result.sites.values() for dtype in site.dtypes}
    if reference == NATIVE or dtypes.isdisjoint({"float32", "float16", "complex64"}):
        return native.values
    comparison = experiment.comparison
    kept = {name: native.values[name] for name in comparison.sources}
    kept |= comparison.judge.limits.decisions(native.values)
    if kept.keys() == native.values.keys():
        return native.values
    return {**experiment.everywhere("float64").values, **kept}


class Clock:
    """Puts the times that a search goes by into measurements: measured or predicted ones.

    On a machine without tensor cores the time of an emulated product means nothing. It is replaced
    by the number of slice products that a tensor core would make, or by the time on a device. And
    where products were timed in pairs, their times are known better than from single runs.

    natives: the native runs. sites: their traces. cost: gives a site's time; None: times are as
    measured. native: the native runs as one. noise: site → the smallest gain that counts.
    """

    def __init__(
        self,
        natives: Sequence[Measurement],
        sites: Mapping[str, SiteResult],
        cost: Cost | None,
    ) -> None:
        self._sites = sites
        self.cost = cost
        self._pairs = cost if isinstance(cost, PairedTimes) else None
        measured = median_of(natives)
        # The program's time beside its products; of another machine that is not known.
        inside = sum(measured.site_seconds.values())
        self._outside = 0.0 if self.predicts else max(measured.seconds - inside, 0.0)
        self.native = self(measured, {})
        self.noise = time_noise(natives) if cost is None else dict.fromkeys(sites, 0.0)
        if self._pairs is not None:
            times = self.native.site_seconds.items()
            self.noise = {site: SMALLEST_GAIN * seconds for site, seconds in times}

    def __call__(self, measured: Measurement, plan: Mapping[str, str]) -> Measurement:
        """A measurement of a plan with the times to go by; a failed one is unchanged."""
        if self.cost is None or measured.problem is not None:
            return measured
        costs = {
            site: self.cost(site, trace, plan.get(site, "native"))
            for site, trace in self._sites.items()
        }
        seconds = self._outside + sum(costs.values())
        return replace(measured, seconds=seconds, site_seconds=costs)

    @property
    def predicts(self) -> bool:
        """Whether times are predicted, and not measured here."""
        return self.cost is not None and self._pairs is None

    @property
    def device(self) -> str:
        """The GPU that times are predicted for, where it is a certain one."""
        return self.cost.device if isinstance(self.cost, DeviceCost) else ""

    def predicted(self, site: str, schemes: Iterable[str]) -> dict[str, float]:
        """Scheme → the site's time under it; empty where times are measured."""
        if self.cost is None:
            return {}
        return {scheme: self.cost(site, self._sites[site], scheme) for scheme in schemes}

    def excluded(self, site: str) -> dict[str, Reason]:
        """Scheme → why it is not tried at a site, as far as pairs of times say so."""
        return {} if self._pairs is None else self._pairs.excluded(site)


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
    """The operator of a call site with its profile. levels: schemes whose times are predicted.
    path: of its file, where several have products.
    """
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
        sampled=trace.sampled,
        spread=trace.spread,
        int8_loss=trace.int8_loss,
        cancellation=trace.cancellation,
        transfer=trace.transfer,
        fed_by=trace.fed_by,
        callers=trace.callers,
        path=path,
        unsuited=why_native(trace) if isinstance(clock.cost, PairedTimes) else "",
    )


def profiled_edges(profile: Mapping[str, SiteResult]) -> set[tuple[str, str]]:
    """The edges that the profile saw, among them those that the source does not show."""
    return {(before, site) for site, trace in profile.items() for before in trace.fed_by}


def int8_products(site: str, trace: SiteResult, scheme: str) -> float:
    """A `Cost`: multiply-adds on INT8 tensor cores that take as long as the site's calls."""
    if scheme == "native":
        scheme = "float64" if is_wide(*trace.dtypes) else "float32"
    products = max((real_products(dtype, dtype) for dtype in trace.dtypes), default=1)
    volume = sum(m * k * n * calls for m, k, n, calls in trace.shapes)
    return get(scheme).cost * products * volume


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCost:
    """A `Cost` in seconds on a GPU that need not be here, by its model.

    device: its name as CUDA gives it.
    """

    device: str
    times: "KernelTimes"

    @classmethod
    def of(cls, name: str) -> "DeviceCost":
        """The cost on a device, found by its name or words of it.

        Raises DeviceError where the device has no model, or no kernels.
        """
        from mixpert_py.runtime.model import known_devices, prediction
        from mixpert_py.runtime.model.kernel_times import KernelTimes

        times = KernelTimes(known_devices.find(name))
        prediction.require(times)
        return cls(times.model.device, times)

    def __call__(self, site: str, trace: SiteResult, scheme: str) -> float:
        """Seconds of a site's calls, whose operands lie on the device.

        Where a scheme would be no faster, its products are native, as `runtime.select` chooses.
        """
        wide = is_wide(*trace.dtypes)
        # Both operands of a complex result are assumed to be complex.
        products = max((real_products(dtype, dtype) for dtype in trace.dtypes), default=1)
        return sum(
            calls * self._product((m, k, n), scheme, wide, products)
            for m, k, n, calls in trace.shapes
        )

    def _product(
        self, shape: tuple[int, int, int], scheme: str, wide: bool, products: int
    ) -> float:
        """Seconds of one call. A stack of matrices counts in m; products: real ones it takes."""
        from mixpert_py.runtime.model import prediction

        m, k, n = shape
        if 0 in shape:
            return 0.0
        native = prediction.native(self.times, m, k, n, products, wide=wide and scheme != "float32")
        if scheme in ("native", "float32", "float64"):
            return native
        if not worth.figures(self.device).faster(scheme, (m, k), (k, n), wide, 0, products):
            return native
        emulation = worth.emulation_on_gpu(scheme, products * m * k * n)
        emulated = prediction.product(self.times, emulation, shape, products, wide=wide).seconds
        if products == 1:
            return emulated
        return emulated + prediction.joining(self.times, m, n, products, products, wide=wide)
