"""From a program to a search: native runs, profile, ladder, and where its runs are made."""

import hashlib
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mixpert_py import __version__, config
from mixpert_py.errors import BudgetError, DeviceError
from mixpert_py.execution import executor
from mixpert_py.execution.executor import ProgramRun, is_timeout
from mixpert_py.launch.program import Program
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.plan import Plan, Provenance, Site
from mixpert_py.runtime import processor
from mixpert_py.runtime.arrays import is_wide
from mixpert_py.runtime.backends import emulates
from mixpert_py.runtime.kernels import LEAST_CAPABILITY
from mixpert_py.runtime.schemes import ladder
from mixpert_py.sources.modules import described, unused_line
from mixpert_py.tuner import records
from mixpert_py.tuner.report import clock_unit
from mixpert_py.tuning.baseline import (
    Baseline,
    establish,
    first_run,
    profiled_operator,
    why_all_native,
)
from mixpert_py.tuning.clock import Clock, Cost, DeviceCost, PairedTimes, int8_products
from mixpert_py.tuning.experiment import LEAST, RUNS, SECONDS, Experiment, RunSettings
from mixpert_py.tuning.hold_out import HoldOuts
from mixpert_py.tuning.options import AUTO, TuningOptions
from mixpert_py.tuning.project_sites import ProjectSites, read_sites, with_called

FEW_RUNS, MOST_RUNS = 4, 12  # between which most tunings need some
NOTHING = "makes no matrix product that could be tuned"
LONG = 12.0  # seconds of a tuning, of which people are told before
HOST_LADDERS = (AUTO, "cpu")  # that need no GPU


@dataclass(slots=True)
class Hangs:
    """The products that made a program run into its time limit, maybe minutes, when nothing else
    was new in the plan. They are lowered no further: iterations that wait for a small residual hang
    at each level that is not accurate enough, and a search would try them all.

    start: the plan that a search begins with. A run clears the schemes that it ended under.
    """

    start: Mapping[str, str]
    _cleared: set[tuple[str, str]] = field(default_factory=set)
    _guilty: dict[str, str] = field(default_factory=dict)  # site → scheme that it hung under

    def refusal(self, plan: Mapping[str, str]) -> str:
        for site, _ in sorted(self._new(plan)):
            if site in self._guilty:
                return (
                    f"not run: the program ran into its time limit under {self._guilty[site]} here"
                )
        return ""

    def learn(self, plan: Mapping[str, str], problem: str | None) -> None:
        """Learn from a run under a plan. problem: why it failed."""
        new = self._new(plan)
        if problem is None:
            self._cleared |= new
        elif is_timeout(problem) and len(new) == 1:
            self._guilty |= new

    def _new(self, plan: Mapping[str, str]) -> set[tuple[str, str]]:
        """The sites that a plan lowers, and to which schemes, that no run has cleared."""
        return set(plan.items()) - set(self.start.items()) - self._cleared


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A program that is ready for the search, and the facts that its plan file is made with.

    other_entries: the entries of an earlier plan that stay in the plan file as they are. measured:
    plan → its trial; no plan is run twice, whichever budget it is tried for.
    """

    options: TuningOptions
    experiment: Experiment
    baseline: Baseline
    clock: Clock
    problem: records.TuningProblem
    hold_outs: HoldOuts | None
    other_entries: tuple[Site, ...]
    hangs: Hangs
    measured: dict[records.PlanKey, records.Measurement] = field(default_factory=dict)

    def within(self, budget: float) -> "Prepared":
        """The same for another budget. Raises BudgetError if native runs differ by half of it."""
        spread, comparison = self.baseline.spread, self.experiment.comparison
        if not spread <= budget / 2:
            raise BudgetError(
                f"{self.experiment.program.argv[0]}: native runs differ by {spread:.2g}, more than "
                f"half the budget of {budget:g}; there is no plan for this budget"
            )
        self.experiment.comparison = replace(comparison, limits=comparison.limits.within(budget))
        options = replace(self.options, limits=self.options.limits.within(budget))
        return replace(self, options=options, problem=replace(self.problem, budget=budget))

    def measure(self, plan: Mapping[str, str]) -> records.Measurement:
        """One trial, with the times that the search goes by. A plan that hangs is not run."""
        if set(plan.values()) == {"native"}:
            return self.clock.native
        key = records.plan_key(plan)
        if key in self.measured:
            return self.measured[key]
        if problem := self.hangs.refusal(plan):
            return records.Measurement(0.0, nan, {}, problem)
        measured = self.experiment.measure(plan, self.baseline.reference)
        self.hangs.learn(plan, measured.problem)
        self.measured[key] = self.clock(measured, plan)
        return self.measured[key]


def prepare(
    program: Program,
    options: TuningOptions,
    existing: Plan | None = None,
    settings: RunSettings | None = None,
    cost: Cost | None = None,
    given: ProjectSites | None = None,
    make: Callable[..., Experiment] = Experiment,
) -> Prepared | str:
    """Run a program natively and for its profile; returns why, in words, if it has nothing to tune.

    existing: an earlier plan, whose locked sites keep their schemes, and whose packages are
    rewritten as well. settings: the caller ends their trials once the plan is written. cost:
    predicts times, by default on the options' device, or by INT8 products where their backend
    emulates. given: the call sites, by default read from the program. make: the constructor of the
    experiment. Raises ProgramError if the program fails natively, BudgetError if it is too noisy
    for the budget, MixPertError for an unknown criterion or a trials file of others.
    """
    known = [package.name for package in existing.package] if existing else []
    options = replace(options, packages=tuple(dict.fromkeys([*options.packages, *known])))
    project = given or read_sites(program, options.packages)
    settings = settings or RunSettings()
    if not (project.sites or options.packages or project.uses_torch):
        return NOTHING
    locked = _locked(existing, project.sites)
    if options.device is not None:
        cost = cost or DeviceCost.of(options.device)
    elif emulates(options.backend):
        cost = cost or int8_products
    require_gpu_for_ladder(options)
    is_timed = cost is None
    settings.trials.begin(_subject(program, project, options, locked, not is_timed))
    experiment = make(program, options, project.flow, settings)
    first = first_run(experiment)
    if first is None:
        return NOTHING
    called = {*first.result.sites, *first.result.elsewhere}
    project = with_called(project, first.result.rewritten, first.result.torch, called)
    locked = _locked(existing, project.sites)
    for package in first.result.unused:
        settings.report(unused_line(package))
    is_by_processor = is_timed and options.ladder in HOST_LADDERS
    may_be_native = is_by_processor and not (experiment.on_gpu or locked)
    if may_be_native and (why := why_all_native(first.result.sites)):
        return why
    _announce(experiment, first, is_by_processor)
    wide = any(is_wide(*site.dtypes) for site in first.result.sites.values())
    rungs = rungs_for(options, experiment.on_gpu, wide=wide)
    lower = [name for rung in rungs for name in rung if name != "native"]
    baseline = establish(experiment, first, lower, options.reference, timed=is_timed)
    hold_outs = _hold_outs(experiment, options, project.flow)
    options = replace(options, limits=experiment.comparison.limits)
    natives = [run.measurement for run in baseline.natives]
    if is_timed and not experiment.on_gpu:
        native = records.median_of(natives).site_seconds
        cost = PairedTimes.of(native, baseline.profile, baseline.alone, lower)
    clock = Clock(natives, baseline.profile, cost)
    operators = _operators(options, baseline, clock, lower, project, locked)
    if all(operator.elsewhere for operator in operators):
        return NOTHING
    # The profile sees edges that the source does not show.
    seen = {(before, site) for site, it in baseline.profile.items() for before in it.fed_by}
    problem = records.TuningProblem(
        operators,
        project.flow.edges | seen,
        records.Ladder(rungs),
        options.limits.budget,
        clock.noise,
        {x.id: locked[x.id].scheme if x.id in locked else "native" for x in operators},
        options.until,
    )
    others = _other_entries(existing, project)
    hangs = Hangs(problem.start)
    return Prepared(options, experiment, baseline, clock, problem, hold_outs, others, hangs)


def _operators(
    options: TuningOptions,
    baseline: Baseline,
    clock: Clock,
    lower: list[str],
    project: ProjectSites,
    locked: Mapping[str, Site],
) -> tuple[records.Operator, ...]:
    """The call sites that were called, those that only other processes called at the end."""
    sites, place = project.sites, project.file_shown
    scale = options.limits.scale
    own = (
        profiled_operator(
            sites[it], trace, clock, lower, locked=it in locked, sensitivity=scale, path=place(it)
        )
        for it, trace in baseline.profile.items()
        if it in sites
    )
    others = (
        records.Operator(it, sites[it].expression, sites[it].line, elsewhere=True, path=place(it))
        for it in baseline.elsewhere
        if it in sites
    )
    return *own, *others


def _announce(experiment: Experiment, first: ProgramRun, is_by_processor: bool) -> None:
    """Tell how long the tuning takes, where that is long, by the first run."""
    alone = min(max(RUNS * first.seconds, LEAST), SECONDS) if is_by_processor else 0.0
    whole = alone + (FEW_RUNS + MOST_RUNS) / 2 * first.seconds
    if whole >= LONG:
        unit = clock_unit((first.seconds,))
        experiment.settings.announce(
            f"a tuning takes about {unit.quantity(whole)}: most often {FEW_RUNS} to {MOST_RUNS} "
            f"runs of the program, of {unit.quantity(first.seconds)} each"
        )


def _locked(existing: Plan | None, sites: Iterable[str]) -> dict[str, Site]:
    """The locked entries of an earlier plan for these call sites, by the sites' ids of today."""
    found = {site: existing.find(site) for site in sites} if existing else {}
    return {site: entry for site, entry in found.items() if entry is not None and entry.locked}


def _other_entries(existing: Plan | None, project: ProjectSites) -> tuple[Site, ...]:
    """Entries of an earlier plan that are not this program's to replace: those of other modules,
    and locked ones whose site is gone."""
    if existing is None:
        return ()
    found = map(existing.find, project.sites)
    known = {entry.id for entry in found if entry is not None} | set(project.sites)
    return tuple(
        entry
        for entry in existing.site
        if entry.id not in known
        and (entry.locked or entry.id.partition(":")[0] not in project.modules)
    )


def _hold_outs(
    experiment: Experiment, options: TuningOptions, flow: Dependencies
) -> HoldOuts | None:
    """The program with the hold-outs' arguments; None where the options have none."""
    program, others = experiment.program, []
    for arguments in options.hold_outs:
        it = program._replace(argv=(program.argv[0], *arguments))
        other = Experiment(it, options, flow, experiment.settings)
        other.comparison = replace(experiment.comparison, limits=other.comparison.limits)
        others.append(other)
    return HoldOuts(others, options.reference) if others else None


def rungs_for(
    options: TuningOptions, on_gpu: bool, *, wide: bool = False
) -> tuple[records.Rung, ...]:
    """The rungs that a program is tuned on. wide: whether any product is of float64: then residues
    are tried, where the GPU, or that of `--device`, has kernels for them.

    Native float64 comes before schemes of float32's grade; for float32 products these are as good
    as native ones, and only faster.
    """
    if options.ladder != AUTO:
        return ladder(options.ladder)
    if not on_gpu and not emulates(options.backend):
        return ladder("cpu")
    return ladder("crt" if wide and _has_residues(options) else "int8")


def _has_residues(options: TuningOptions) -> bool:
    """Return whether the device that the tuning is for has kernels for residue schemes."""
    if options.device is None:
        gpu = executor.usable_gpu(options.backend)
        capability = 0 if gpu is None else gpu.capability
    else:
        capability = DeviceCost.of(options.device).times.model.capability
    return capability >= LEAST_CAPABILITY


def require_gpu_for_ladder(options: TuningOptions) -> None:
    """Raise DeviceError where nothing could run under the ladder's schemes."""
    needs_gpu = options.ladder not in HOST_LADDERS and options.backend is None
    if needs_gpu and executor.usable_gpu(options.backend) is None:
        raise DeviceError(
            f"--ladder {options.ladder}: there is no GPU that could run it; --backend reference "
            "emulates one"
        )


def _subject(
    program: Program,
    project: ProjectSites,
    options: TuningOptions,
    locked: Mapping[str, Site],
    predicted: bool,
) -> dict[str, Any]:
    """Everything that the runs of a tuning and their order depend on.

    Packages and the files that the program reads are not among it: a verification shows whether
    they have changed.
    """
    gpu = executor.usable_gpu(options.backend)
    origin = msgspec.structs.replace(provenance(program, options.backend, ""), date="")
    return {
        "options": msgspec.to_builtins(replace(options, command="", time_limit=None)),
        "origin": msgspec.to_builtins(origin),
        "packages": [[package.name, package.version] for package in described(options.packages)],
        "imports": project.sources[1:],
        "module": program.module,
        "arguments": program.argv[1:],
        "gpu": None if gpu is None else gpu.name,
        "locked": {site: entry.scheme for site, entry in locked.items()},
        "predicted": predicted,
        "cpu": processor.name(),
    }


def provenance(program: Program, backend: str | None, command: str, gain: str = "") -> Provenance:
    """The origin of a plan that is made today. gain: see Provenance."""
    return Provenance(
        source=Path(program.filename).name,
        sha256=hashlib.sha256(program.source).hexdigest(),
        device=platform.machine(),
        backend=backend or "native",
        versions={
            "mixpert-py": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        blas_threads=config.blas_threads(),
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        gain=gain,
    )
