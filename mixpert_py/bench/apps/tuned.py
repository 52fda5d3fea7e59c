"""The tuner on a program that stays in this process: its inputs are drawn once, its work rerun."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from mixpert_py.bench.apps import modes
from mixpert_py.bench.apps.runs import Runs
from mixpert_py.errors import MixPertError
from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime.context import Context, emulates
from mixpert_py.runtime.schemes import ladder
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.tuner.records import Ladder, Measurement, Outcome, Problem
from mixpert_py.tuner.tune import tune
from mixpert_py.tuning.baseline import Clock, int8_products, profiled_edges, profiled_operator

LADDER = "int8"
MOST_ACCURATE = "int8x10"
NATIVE_RUNS = 3
MOST_SECONDS = 45.0  # of trials, and as long as the native run again
SHARE = 0.01  # of the time in products: what takes less stays native


@dataclass(slots=True, eq=False)
class PlanMeasurer:
    """Measures plans of one program. warm: the site and scheme pairs that ran before. end: of the
    time for them; a plan that comes later is not run.
    """

    runs: Runs
    backend: str | None
    warm: set[tuple[str, str]]
    end: float = math.inf
    count: int = 0

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        """Measure one plan, after a run that loads its kernels; a failure is a measurement, too."""
        if perf_counter() > self.end:
            return Measurement(0.0, math.nan, {}, "the time for tuning was over")
        self.count += 1
        try:
            if not self.warm.issuperset(plan.items()):
                self.runs.once(modes.under(plan, self.backend))
                self.warm.update(plan.items())
            return self._measured(plan)
        except (ArithmeticError, MemoryError, MixPertError, RuntimeError, ValueError) as error:
            return Measurement(0.0, math.nan, {}, f"{type(error).__name__}: {error}")

    def _measured(self, plan: Mapping[str, str]) -> Measurement:
        values, times, sites = self.runs.traced(modes.under(plan, self.backend, Trace()))
        not_taken = {
            site
            for site, scheme in plan.items()
            if site in sites and scheme not in sites[site].schemes
        }
        return Measurement(
            times.wall,
            self.runs.error(values),
            {site: found.seconds for site, found in sites.items()},
            not_taken=frozenset(not_taken),
            outliers={site: found.outliers for site, found in sites.items()},
        )


def levels() -> tuple[str, ...]:
    """The levels that a search may lower a product to, the most accurate first."""
    return tuple(name for rung in ladder(LADDER)[1:] for name in rung)


def profile(
    runs: Runs, backend: str | None, levels: tuple[str, ...], under: str = "native"
) -> dict[str, SiteResult]:
    """Profile every product: the error of each level on its operands."""
    return runs.traced(Context(scheme=under, backend=backend, trace=Trace(levels)))[2]


def search(
    runs: Runs, budget: float, backend: str | None, native: Measurement | None = None
) -> tuple[Outcome, int]:
    """The plan within a budget, and how many plans were tried.

    native: the native run of a program that is slow natively, and not run so again: its operands
    are then looked at in a run of the most accurate slices. None: native runs are made.
    """
    sample = runs.problem.sample
    unplanned = dict.fromkeys(sample.sites, "native")
    trials = PlanMeasurer(runs, backend, set(unplanned.items()))
    if native is None:
        unlowered = [trials(unplanned) for _ in range(NATIVE_RUNS)]
        found = profile(runs, backend, levels())
    else:
        unlowered = [native]
        found = profile(runs, backend, levels(), MOST_ACCURATE)
    before = trials.count
    clock = Clock(unlowered, found, int8_products if emulates(backend) else None)
    # Not before: profiles are long where kernels compile.
    trials.end = perf_counter() + MOST_SECONDS + unlowered[0].seconds
    seconds = clock.native.site_seconds
    least = SHARE * sum(seconds.values())
    operators = [
        profiled_operator(
            sample.sites[site], trace, clock, levels(), locked=seconds.get(site, 0.0) < least
        )
        for site, trace in found.items()
        if site in sample.sites
    ]

    def measure(plan: Mapping[str, str], /) -> Measurement:
        if set(plan.values()) == {"native"}:
            return clock.native
        return clock(trials(plan), plan)

    edges = frozenset(sample.edges | profiled_edges(found))
    problem = Problem(tuple(operators), edges, Ladder(ladder(LADDER)), budget, clock.noise)
    outcome = tune(measure, problem)
    return outcome, trials.count - before
