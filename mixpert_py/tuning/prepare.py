"""From a program to a search: native runs, profile, ladder, and where its runs are made."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mixpert_py import config
from mixpert_py.errors import BudgetError, DeviceError, MixPertError
from mixpert_py.execution import gpus
from mixpert_py.execution.dask import DaskCluster
from mixpert_py.execution.executor import Executor, ProgramRun
from mixpert_py.execution.outputs import FILE_ENDINGS
from mixpert_py.launch.launcher import Program
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import processor
from mixpert_py.runtime.arrays import is_wide
from mixpert_py.runtime.context import emulates
from mixpert_py.runtime.kernels import has_kernels
from mixpert_py.runtime.schemes import emulation_of, ladder
from mixpert_py.sources.packages import described, unused_line
from mixpert_py.tuner.records import (
    Ladder,
    Measurement,
    Operator,
    PlanKey,
    Problem,
    Rung,
    median_of,
    plan_key,
)
from mixpert_py.tuner.report.unit import clock_unit
from mixpert_py.tuning.baseline import (
    Baseline,
    Clock,
    Cost,
    DeviceCost,
    establish,
    int8_products,
    profiled_edges,
    profiled_operator,
)
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.hold_out import HoldOuts
from mixpert_py.tuning.options import AUTO, TuningOptions
from mixpert_py.tuning.paired import PairedTimes
from mixpert_py.tuning.project_sites import (
    ProjectSites,
    handed_input,
    read_sites,
    untuned,
    with_libraries,
    with_torch,
)
from mixpert_py.tuning.record import provenance
from mixpert_py.tuning.trials import Trials
from mixpert_py.tuning.unsuited import why_all_native

FEW_RUNS, MOST_RUNS = 4, 12  # between which most tunings need some
NOTHING = "makes no matrix product that could be tuned"
LONG = 12.0  # seconds of a tuning, of which people are told before
HOST_LADDERS = (AUTO, "cpu")  # that need no GPU
UNSOUND = (
    "runs at the same time would disturb each other's times; give each a GPU of its own, or let "
    "times be predicted (--backend reference), or leave --workers out"
)


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
    problem: Problem
    hold_outs: HoldOuts | None
    other_entries: tuple[Site, ...]
    resources: "Resources"
    measured: dict[PlanKey, Measurement] = field(default_factory=dict)

    def within(self, budget: float) -> "Prepared":
        """The same with another budget of all values, by which the experiment judges from now on.

        Raises BudgetError where native runs differ by more than half of it.
        """
        spread, comparison = self.baseline.spread, self.experiment.comparison
        if not spread <= budget / 2:
            raise BudgetError(
                f"{self.experiment.program.argv[0]}: native runs differ by {spread:.2g}, more than "
                f"half the budget of {budget:g}; there is no plan for this budget"
            )
        self.experiment.comparison = replace(comparison, judge=comparison.judge.within(budget))
        options = replace(self.options, limits=self.options.limits.within(budget))
        return replace(self, options=options, problem=replace(self.problem, budget=budget))

    def measure(self, plan: Mapping[str, str]) -> Measurement:
        """One trial, with the times that the search goes by."""
        if set(plan.values()) == {"native"}:
            return self.clock.native
        key = plan_key(plan)
        if key not in self.measured:
            measured = self.experiment.measure(plan, self.baseline.reference)
            self.measured[key] = self.clock(measured, plan)
        return self.measured[key]


def prepare(
    program: Program,
    options: TuningOptions,
    existing: Plan | None = None,
    on_run: Callable[[str], None] = lambda purpose: None,
    cost: Cost | None = None,
    trials: Trials | None = None,
    report: Callable[[list[str]], None] = lambda lines: None,
    announce: Callable[[str], None] = lambda line: None,
    given: ProjectSites | None = None,
    make: Callable[..., Experiment] = Experiment,
) -> Prepared | str:
    """Run a program natively and for its profile; returns why, in words, if it has nothing to tune.

    existing: an earlier plan, whose locked sites keep their schemes, and whose packages are
    rewritten as well. on_run: called with the
    purpose of each run before it starts. cost: predicts times; None: the cost on the options'
    device, else INT8 products where their backend emulates, else times are measured. trials: stores
    the runs, and returns those of a resumed tuning; the caller ends them once the plan is written.
    report: called after the first run with lines on the products that cannot be tuned. announce:
    called then with a line that says how long the tuning takes. given: the
    call sites; None: those that the program's source shows. make: makes the experiment, given what
    `Experiment` is.
    Raises ProgramError if the program fails natively, BudgetError if it is too noisy for the
    budget, MixPertError for an unknown criterion or a trials file that is not ours to write.
    """
    known = [package.name for package in existing.package] if existing else []
    options = replace(options, packages=tuple(dict.fromkeys([*options.packages, *known])))
    project = given or read_sites(program, options.packages)
    stdin = None if given else handed_input(program, project)
    sites, flow = project.sites, project.flow
    if not (sites or options.packages or project.uses_torch):
        return NOTHING
    earlier = _earlier(existing, sites)
    locked = {site: entry for site, entry in earlier.items() if entry.locked}
    cost = cost or _cost(options)
    require_gpu_for_ladder(options)
    resources = Resources.of(options, program, predicted=cost is not None)
    trials = trials or Trials()
    trials.begin(
        _subject(program, project, options, locked, resources.threads, cost is not None, stdin)
    )
    experiment = make(
        program,
        options,
        flow,
        blocks={site: entry.block for site, entry in locked.items()},
        on_run=on_run,
        trials=trials,
        executor=resources.executor(),
        stdin=stdin,
    )

    def levels(first: ProgramRun) -> list[str]:
        """The lower schemes of the ladder, known once the native runs have shown where they ran,
        and on what types.
        """
        resources.require_sound(on_gpu=experiment.on_gpu, predicted=cost is not None)
        return _lower_schemes(rungs_for(options, experiment.on_gpu, wide=_is_wide(first)))

    is_timed = cost is None and options.ladder in HOST_LADDERS
    nothing = NOTHING

    def with_first(first: ProgramRun) -> bool:
        """Add the sites of libraries that the program calls, and tell what cannot be tuned; returns
        whether anything can.
        """
        nonlocal project, earlier, locked, nothing
        called = {*first.result.sites, *first.result.elsewhere}
        project = with_libraries(project, first.result.rewritten, called)
        project = with_torch(project, first.result.torch, called)
        earlier = _earlier(existing, project.sites)
        locked = {site: entry for site, entry in earlier.items() if entry.locked}
        experiment.blocks.update({site: entry.block for site, entry in locked.items()})
        lines = [*untuned(project, first), *map(unused_line, first.result.unused)]
        is_by_processor = is_timed and not (experiment.on_gpu or locked)
        report(lines)
        if is_by_processor and (why := why_all_native(first.result.sites)):
            nothing = why
            return False
        alone = experiment.seconds_alone(first.seconds) if is_timed else 0.0
        seconds = alone + (FEW_RUNS + MOST_RUNS) / 2 * first.seconds
        if seconds >= LONG:
            announce(_duration(first.seconds, seconds))
        return True

    baseline = establish(
        experiment,
        levels,
        options.reference,
        timed=cost is None,
        after_first=with_first,
    )
    if baseline is None:
        return nothing
    hold_outs = _hold_outs(experiment, options, flow, on_run, trials, stdin)
    options = replace(options, limits=experiment.comparison.judge.limits)
    rungs = rungs_for(options, experiment.on_gpu, wide=_is_wide(baseline.natives[0]))
    natives = [run.measurement for run in baseline.natives]
    if cost is None and not experiment.on_gpu:
        native = median_of(natives).site_seconds
        cost = PairedTimes.of(native, baseline.profile, baseline.alone, _lower_schemes(rungs))
    clock = Clock(natives, baseline.profile, cost)
    problem = _problem(options, baseline, clock, rungs, project, locked)
    if problem is None:
        return NOTHING
    return Prepared(
        options,
        experiment,
        baseline,
        clock,
        problem,
        hold_outs,
        _other_entries(existing, earlier, project),
        resources,
    )


def _problem(
    options: TuningOptions,
    baseline: Baseline,
    clock: Clock,
    rungs: tuple[Rung, ...],
    project: ProjectSites,
    locked: Mapping[str, Site],
) -> Problem | None:
    """The problem that a search solves; None where no call site of the program was called."""
    sites = project.sites
    operators = tuple(
        profiled_operator(
            sites[site],
            trace,
            clock,
            _lower_schemes(rungs),
            locked=site in locked,
            sensitivity=options.limits.scale,
            path=project.file_shown(site),
        )
        for site, trace in baseline.profile.items()
        if site in sites
    )
    if not operators:
        return None
    operators += tuple(
        Operator(
            site,
            sites[site].expression,
            sites[site].line,
            elsewhere=True,
            path=project.file_shown(site),
        )
        for site in baseline.elsewhere
        if site in sites
    )
    return Problem(
        operators,
        project.flow.edges | profiled_edges(baseline.profile),
        Ladder(rungs),
        options.limits.budget,
        clock.noise,
        {x.id: locked[x.id].scheme if x.id in locked else "native" for x in operators},
        options.until,
    )


def _duration(run: float, whole: float) -> str:
    """A line that says how long a tuning takes, by the seconds of one run, and of all of it."""
    each, all_runs = (clock_unit((seconds,)).quantity(seconds) for seconds in (run, whole))
    return (
        f"a tuning takes about {all_runs}: most often {FEW_RUNS} to {MOST_RUNS} runs of the "
        f"program, of {each} each"
    )


def _lower_schemes(rungs: tuple[Rung, ...]) -> list[str]:
    """The schemes of a ladder below the native product."""
    return [name for rung in rungs for name in rung if name != "native"]


def _earlier(existing: Plan | None, sites: Iterable[str]) -> dict[str, Site]:
    """The entries of an earlier plan for these call sites, by the sites' ids of today."""
    found = {site: existing.find(site) for site in sites} if existing else {}
    return {site: entry for site, entry in found.items() if entry is not None}


def _other_entries(
    existing: Plan | None, earlier: Mapping[str, Site], project: ProjectSites
) -> tuple[Site, ...]:
    """Entries of an earlier plan that are not this program's to replace: those of other modules,
    and locked ones whose site is gone. earlier: the entries for these sites."""
    known = {entry.id for entry in earlier.values()} | set(project.sites)
    return tuple(
        entry
        for entry in (existing.site if existing else ())
        if entry.id not in known
        and (entry.locked or entry.id.partition(":")[0] not in project.modules)
    )


def _cost(options: TuningOptions) -> Cost | None:
    """Predicts times; None: they are measured. Raises DeviceError for an unknown device."""
    if options.device is not None:
        return DeviceCost.of(options.device)
    return int8_products if emulates(options.backend) else None


def _hold_outs(
    experiment: Experiment,
    options: TuningOptions,
    flow: Dependencies,
    on_run: Callable[[str], None],
    trials: Trials,
    stdin: bytes | None,
) -> HoldOuts | None:
    """The program with the hold-outs' arguments; None where the options have none."""
    if not options.hold_outs:
        return None
    program = experiment.program
    others = [
        Experiment(
            replace(program, argv=(program.argv[0], *arguments)),
            options,
            flow,
            blocks=experiment.blocks,
            on_run=on_run,
            trials=trials,
            executor=experiment.executor,
            stdin=stdin,
        )
        for arguments in options.hold_outs
    ]
    for other in others:
        other.compare_as(experiment.comparison)
    return HoldOuts(others, options.reference)


def rungs_for(options: TuningOptions, on_gpu: bool, *, wide: bool = False) -> tuple[Rung, ...]:
    """The rungs that a program is tuned on. on_gpu: whether a GPU takes its products. wide: whether
    any is of float64: then residues are tried, where the GPU has kernels for them, or the device
    that `--device` names.

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
        gpu = gpus.usable(options.backend)
        capability = 0 if gpu is None else gpu.capability
    else:
        capability = DeviceCost.of(options.device).times.model.capability
    return has_kernels(emulation_of("crt14"), capability)


def _is_wide(run: ProgramRun) -> bool:
    """Tell whether a run made any product of float64's precision."""
    return any(is_wide(*site.dtypes) for site in run.result.sites.values())


def require_gpu_for_ladder(options: TuningOptions) -> None:
    """Raise DeviceError where nothing could run under the ladder's schemes."""
    needs_gpu = options.ladder not in HOST_LADDERS and options.backend is None
    if needs_gpu and gpus.usable(options.backend) is None:
        raise DeviceError(
            f"--ladder {options.ladder}: there is no GPU that could run it; --backend reference "
            "emulates one"
        )


@dataclass(frozen=True, slots=True)
class Resources:
    """The processes, BLAS threads and GPUs, or the cluster, for the runs of a tuning.

    runs: at a time. threads: of BLAS in every run. gpus: one for each run; none: all see all.
    cluster: runs the trials instead.
    """

    runs: int
    threads: int
    gpus: tuple[str, ...] = ()
    cluster: DaskCluster | None = None

    @classmethod
    def of(cls, options: TuningOptions, program: Program, *, predicted: bool) -> "Resources":
        """The resources that the options ask for. predicted: whether times are predicted.

        Raises DeviceError if there are no GPUs for it, MixPertError where times would not be sound,
        or a cluster is of no use.
        """
        if options.dask is not None:
            if not predicted:
                raise MixPertError(
                    "--dask: times that are measured there say nothing here; let them be predicted "
                    "(--backend reference)"
                )
            if any(name.endswith(FILE_ENDINGS) for name in options.compare):
                raise MixPertError(
                    "--dask: files that a program writes stay there; compare variables"
                )
            cluster = DaskCluster(options.dask, program.path)
            return cls(cluster.runs, cluster.threads, cluster=cluster)
        names = gpus.names(options.backend)
        if options.workers is None and not names:
            raise DeviceError("--workers gpus: there is no GPU that runs could use")
        runs = options.workers or len(names)
        each = names[:runs] if 1 < runs <= len(names) else ()
        found = cls(runs, config.blas_threads(runs), each)
        found.require_sound(on_gpu=True, predicted=predicted)  # whether it is used is not known yet
        return found

    def executor(self) -> Executor:
        return Executor(self.runs, self.threads, self.gpus, self.cluster)

    def require_sound(self, *, on_gpu: bool, predicted: bool) -> None:
        """Raise MixPertError where runs that share the cores would be timed."""
        if self.runs > 1 and not predicted and not (on_gpu and self.gpus):
            raise MixPertError(f"--workers {self.runs}: {UNSOUND}")


def _subject(
    program: Program,
    project: ProjectSites,
    options: TuningOptions,
    locked: Mapping[str, Site],
    threads: int,
    predicted: bool,
    stdin: bytes | None,
) -> dict[str, Any]:
    """Everything that the runs of a tuning and their order depend on.

    Packages and the files that the program reads are not among it: a verification shows whether
    they have changed.
    """
    origin = provenance(program, options.backend, options.command, threads)
    gpu = gpus.usable(options.backend)
    packages = [[package.name, package.version] for package in described(options.packages)]
    return {
        **({"packages": packages} if packages else {}),
        "source": origin.sha256,
        "imports": project.sources[1:],
        "stdin": stdin and hashlib.sha256(stdin).hexdigest(),
        "module": program.module,
        "arguments": program.argv[1:],
        "limits": options.limits.record(),
        "reference": options.reference,
        "compare": options.compare,
        "backend": origin.backend,
        "search": [options.search, options.until, options.stricter, options.margin],
        "hold_out": options.hold_outs,
        "ladder": options.ladder,
        "gpu": None if gpu is None else gpu.name,
        "locked": {site: [entry.scheme, entry.block] for site, entry in locked.items()},
        "predicted": predicted,
        "device": options.device,
        "versions": origin.versions,
        "cpu": processor.name(),
        "blas_threads": origin.blas_threads,
    }
