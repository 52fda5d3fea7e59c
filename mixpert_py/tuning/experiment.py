"""Runs a program under plans, each run in a process of its own: the tuner's `measure`."""

import marshal
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.execution import executor, outputs
from mixpert_py.execution.executor import ProgramRun, RunFolder, WorkFolder
from mixpert_py.execution.outputs import Values, WrittenFile
from mixpert_py.execution.worker import FIRST_WARM_UPS, Alone, Result, WarmUp, WorkerJob
from mixpert_py.files import temporary_folder
from mixpert_py.launch.program import Program, compiled, project_folder
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.backends import emulates
from mixpert_py.tuner.records import Measurement
from mixpert_py.tuning.judge import NO_FLOW, Comparison
from mixpert_py.tuning.options import TuningOptions
from mixpert_py.tuning.trials import TRIAL, Say, Trials

FIRST_LIMIT = 600.0  # seconds for a first run, of which nothing is known yet
LEAST_LIMIT = 60.0
LIMIT_FACTOR = 5.0  # a later run may take this times the slowest native one
SECONDS = 20.0  # for the products of a profile by themselves
PATIENCE = 6.0  # for one of them under one level, where the machine is busy
WARMED_PRODUCTS = 4  # of a call site, before the clock of a run on a GPU starts
RUNS, LEAST = 4.0, 10.0  # of the program's time, and seconds: what they may take at most


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run: its schemes, by a plan or one for all products, and what else it reports."""

    purpose: str
    plan: Mapping[str, str] = field(default_factory=dict)
    scheme: str | None = None
    levels: tuple[str, ...] = ()
    alone: Alone | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RunSettings:
    """What all runs of a tuning have in common.

    on_run: called with the purpose of each run before it starts. report: called after the first
    run with each line on what cannot be tuned; announce: with a line on how long the tuning takes.
    trials: keeps runs, and gives back those that were made before.
    """

    on_run: Say = lambda purpose: None
    report: Say = lambda line: None
    announce: Say = lambda line: None
    trials: Trials = field(default_factory=Trials)


class Experiment:
    """One program, run as often as the tuner wants.

    The first run, in a copy of the current folder, shows whether the program changes the folder
    that it runs in. Then each later run gets a copy too, and the user's folder stays unchanged.

    flow: the program's dependency graph, which says what is compared where options do not. guarded:
    site → the error that its plan has, which its products are checked against in planned runs.
    """

    def __init__(
        self,
        program: Program,
        options: TuningOptions,
        flow: Dependencies = NO_FLOW,
        settings: RunSettings | None = None,
        *,
        guarded: Mapping[str, float] | None = None,
    ) -> None:
        self.program = program
        self.comparison = Comparison.of(program, options, flow)
        self.backend = options.backend
        self.time_limit = options.time_limit
        self.guarded = guarded or {}
        self.settings = settings or RunSettings()
        self.runs = 0  # that were made, or stored
        self._slowest = 0.0  # seconds of a native run
        self._code = marshal.dumps(compiled(program))
        self._work_folder = WorkFolder(program.argv[0])
        self._first: Result | None = None  # of a program that uses a GPU
        self._project = project_folder(program) or ""
        self._packages = options.packages

    @property
    def on_gpu(self) -> bool:
        """Whether the first run had products that a GPU here would take."""
        return self._first is not None

    def native(self, purpose: str = "native run", reference: Values | None = None) -> ProgramRun:
        """A run of the program as it was, judged if there is a reference."""
        # Without a plan or a scheme products on a GPU would run the default of their type.
        run = self._run(RunRequest(purpose, scheme="native"), reference)
        if not self._slowest:
            self._learn(run)
        self._slowest = max(self._slowest, run.seconds)
        return run

    def profile(self, levels: Sequence[str], *, timed: bool = False) -> ProgramRun:
        """A native run that also measures the local error of each level at every call site.

        timed: whether each product is made by itself then, under each level in turn with the native
        product, on operands that were captured.
        """
        limit = self.run_limit(is_profile=True)
        alone = Alone(tuple(levels), (), SECONDS, PATIENCE, limit, RUNS, LEAST) if timed else None
        return self._run(RunRequest("profile", scheme="native", levels=tuple(levels), alone=alone))

    def products_alone(self, alone: Alone) -> ProgramRun:
        """A native run, after which each product is made by itself, on its captured operands."""
        return self._run(RunRequest("the program and its products", scheme="native", alone=alone))

    def everywhere(self, scheme: str) -> ProgramRun:
        return self._run(RunRequest(f"every product in {scheme}", scheme=scheme))

    def planned(self, plan: Mapping[str, str], reference: Values, purpose: str) -> ProgramRun:
        """A run under a plan, judged. Raises ProgramError or ShapeError if it fails."""
        return self._run(RunRequest(purpose, plan), reference)

    def judged(self, run: ProgramRun, reference: Values) -> ProgramRun:
        """The run with its errors instead of its values."""
        errors = self.comparison.errors(reference, run.values)
        return ProgramRun(run.result, {}, *self.comparison.limits.worst(errors), errors)

    def measure(self, plan: Mapping[str, str], reference: Values) -> Measurement:
        """One trial. A program that fails under a plan is a measurement, not an exception."""
        try:
            run = self._run(RunRequest(TRIAL, plan), reference)
        except (ProgramError, ShapeError) as failure:
            return Measurement(0.0, float("nan"), {}, str(failure))
        traces = run.result.sites
        not_taken = {
            site: ", ".join(traces[site].reasons)
            for site, scheme in plan.items()
            if site in traces and scheme not in traces[site].schemes
        }
        return replace(run.measurement, not_taken=not_taken)

    def _learn(self, run: ProgramRun) -> None:
        """Prepare later runs by what the first one shows."""
        first = run.result
        self.comparison = self.comparison.after(run)
        self._work_folder.wrote = first.wrote
        gpu = executor.usable_gpu(self.backend)
        if gpu is not None and executor.would_run(first, gpu, self.backend):
            self._first = first

    def _run(self, request: RunRequest, reference: Values | None = None) -> ProgramRun:
        """A run that was stored, or one that is made and stored. A judged one loses its values."""
        purpose, plan, trials = request.purpose, request.plan, self.settings.trials
        self.runs += 1
        if (stored := trials.take(purpose, plan)) is not None:
            return stored
        self.settings.on_run(purpose)
        try:
            run = self._execute(request)
            if reference is not None:
                run = self.judged(run, reference)
        except (ProgramError, ShapeError) as failure:
            trials.store_failure(purpose, plan, str(failure))
            raise
        trials.store(purpose, plan, run)
        return run

    def _execute(self, request: RunRequest) -> ProgramRun:
        """Make a run: its folder and job, its process, and the values that it left."""
        name = self.program.argv[0]
        with temporary_folder() as temporary:
            folder = RunFolder(Path(temporary))
            # An estimate's one run leaves what it would have left without us.
            is_only = request.alone is not None and not self._slowest
            directory = os.getcwd() if is_only else self._work_folder.for_run(temporary)
            job_file = folder.write(self._code, self._job(request, temporary, directory))
            files = [WrittenFile(file, directory) for file in self.comparison.files]
            before = None if self._slowest else executor.folder_state(directory)
            limit = self.run_limit(is_profile=bool(request.levels))
            result = folder.result(name, executor.execute(job_file, limit), limit)
            if before is not None and executor.folder_state(directory) != before:
                result = msgspec.structs.replace(result, wrote=True)
            # A profile shows errors and times of products, not the program's results.
            if request.levels or request.alone:
                return ProgramRun(result)
            values = folder.values(result)
            for file in files:
                values |= file.arrays()
            if self.comparison.stdout:
                values[outputs.STDOUT] = outputs.numbers_in(outputs.printed_text(folder.path))
            return self._judgeable(result, values)

    def _judgeable(self, result: Result, values: Values) -> ProgramRun:
        """A run with those of its values that are compared."""
        run = ProgramRun(result, self.comparison.limits.judged(values))
        if self._slowest:
            return run
        return replace(run, values=self.comparison.after(run).among(run.values))

    def _job(self, request: RunRequest, folder: str, directory: str) -> WorkerJob:
        program, comparison = self.program, self.comparison
        sites = [
            Site(id=site, scheme=scheme, error=self.guarded.get(site, 0.0))
            for site, scheme in request.plan.items()
        ]
        return WorkerJob(
            folder,
            program.filename,
            program.argv,
            program.module,
            program.path,
            plan=Plan(site=sites) if request.scheme is None else None,
            scheme=request.scheme,
            backend=self.backend,
            levels=request.levels,
            names=comparison.names,
            differences={} if comparison.choice else comparison.flow.uses.differences,
            required=comparison.variables,
            sinks=comparison.sinks,
            with_sinks=comparison.with_sinks,
            directory=directory,
            stdout=comparison.stdout,
            products=self._warm_up_products(request),
            moved=self._first is not None and not self._first.on_gpu,
            alone=request.alone,
            as_module=program.spec is not None,
            project=self._project,
            packages=self._packages,
        )

    def _warm_up_products(self, request: RunRequest) -> tuple[WarmUp, ...]:
        """The products that a run on a GPU makes before its clock runs: one of each kind."""
        if request.alone is not None and not self._slowest:  # no run has shown the kinds
            return FIRST_WARM_UPS if executor.usable_gpu(self.backend) is not None else ()
        sites = self._first.sites if self._first is not None else {}
        return tuple(
            (scheme, *product)
            for site, trace in sites.items()
            for scheme in {"native", request.plan.get(site, request.scheme or "native")}
            for product in executor.products_of(trace)[:WARMED_PRODUCTS]
        )

    def run_limit(self, *, is_profile: bool = False) -> float:
        if self.time_limit is not None:
            return self.time_limit
        if not self._slowest:
            return FIRST_LIMIT
        limit = max(LEAST_LIMIT, LIMIT_FACTOR * self._slowest)
        # A profile or an emulated run multiplies in NumPy what the program multiplied natively.
        return max(limit, FIRST_LIMIT) if is_profile or emulates(self.backend) else limit
