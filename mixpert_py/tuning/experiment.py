"""Runs a program under plans, each run in a process of its own: the tuner's `measure`."""

import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.execution import gpus, outputs, work_folder
from mixpert_py.execution.executor import Executor, Run, RunFolder, Values
from mixpert_py.execution.outputs import WrittenFile
from mixpert_py.execution.work_folder import WorkFolder
from mixpert_py.execution.worker import Job, Product, Result
from mixpert_py.files import temporary_folder
from mixpert_py.launch import launcher
from mixpert_py.launch.launcher import Program
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.in_force import emulates
from mixpert_py.tuner.records import Measurement
from mixpert_py.tuning.comparison import Comparison
from mixpert_py.tuning.trials import TRIAL, Trials

FIRST_LIMIT = 600.0  # seconds for a first run, of which nothing is known yet
LEAST_LIMIT = 60.0
LIMIT_FACTOR = 5.0  # a later run may take this times the slowest native one


class Experiment:
    """One program, run as often as the tuner wants.

    The first run shows two things. If the program changes the folder that it runs in, each later
    run gets a copy of that folder for its own, and the user's stays as the first run left it. And
    what it imports, trials and the profile find imported: they get warm processes, forked ones
    where no GPU takes its products; all other runs are new processes.

    blocks: site → block length, where one is fixed. time_limit: seconds a run may take; None: 600
    for the first, then five times the slowest native run, and never less than 60. on_run: told
    what each run is for before it starts. trials: where runs are kept, and taken from if they were
    made before. workers: who makes them; `measure` may be asked in several threads at a time.
    """

    def __init__(
        self,
        program: Program,
        comparison: Comparison,
        *,
        backend: str | None = None,
        blocks: Mapping[str, int | None] | None = None,
        time_limit: float | None = None,
        on_run: Callable[[str], None] = lambda purpose: None,
        trials: Trials | None = None,
        workers: Executor | None = None,
    ) -> None:
        self.program = program
        self.comparison = comparison
        self.backend = backend
        self.blocks = blocks or {}
        self.time_limit = time_limit
        self.slowest = 0.0
        self.on_run = on_run
        self.trials = trials or Trials()
        self._code = marshal.dumps(launcher.compiled(program))
        self._workers = workers or Executor()
        self._work_folder = WorkFolder(program.argv[0])
        self._first: Result | None = None  # of a program that uses a GPU

    @property
    def on_gpu(self) -> bool:
        """Whether the first run had products that a GPU here would take."""
        return self._first is not None

    @property
    def runs_apart(self) -> bool:
        """Whether runs may be made at the same time: none writes where another works."""
        return self._work_folder.is_apart

    def native(self, purpose: str = "native run", reference: Values | None = None) -> Run:
        """A run of the program as it was, judged if there is a reference."""
        run = self._run(purpose, reference=reference)
        if not self.slowest:
            self._learn(run.result)
        self.slowest = max(self.slowest, run.seconds)
        return run

    def _learn(self, first: Result) -> None:
        """Go by what the first run shows."""
        self._workers.modules = first.modules
        if first.wrote:
            self._work_folder.is_written_to()
        gpu = gpus.usable(self.backend)
        if gpu is not None and gpus.would_run(first, gpu, self.backend):
            self._first = first
            self._workers.use_gpu()

    def profile(self, levels: Sequence[str]) -> Run:
        """A native run that also measures the local error of each level at every call site."""
        return self._run("profile", levels=tuple(levels), warm=True)

    def everywhere(self, scheme: str) -> Run:
        """A run with every product under one scheme."""
        return self._run(f"every product in {scheme}", scheme=scheme)

    def planned(self, plan: Mapping[str, str], reference: Values, purpose: str = TRIAL) -> Run:
        """A run under a plan, judged. Raises ProgramError or ShapeError if it fails."""
        return self._run(purpose, plan=plan, reference=reference, warm=purpose == TRIAL)

    def judged(self, run: Run, reference: Values) -> Run:
        """The run with its errors instead of its values."""
        judge = self.comparison.judge
        errors = judge.errors(reference, run.values)
        return Run(run.result, {}, *judge.limits.worst(errors), errors)

    def measure(self, plan: Mapping[str, str], reference: Values) -> Measurement:
        """One trial. A program that fails under a plan is a measurement, not an exception."""
        try:
            run = self.planned(plan, reference)
        except (ProgramError, ShapeError) as failure:
            return Measurement(0.0, float("nan"), {}, str(failure))
        traces = run.result.sites
        not_taken = frozenset(
            site
            for site, scheme in plan.items()
            if site in traces and scheme not in traces[site].schemes
        )
        return replace(run.measurement, not_taken=not_taken)

    def _run(
        self,
        purpose: str,
        *,
        plan: Mapping[str, str] | None = None,
        reference: Values | None = None,
        scheme: str | None = None,
        levels: tuple[str, ...] = (),
        warm: bool = False,
    ) -> Run:
        """A run that was kept, or one that is made and kept. A judged one loses its values."""
        chosen = plan or {}
        if (kept := self.trials.take(purpose, chosen)) is not None:
            return kept
        self.on_run(purpose)
        try:
            run = self._made(plan, scheme, levels, warm)
            if reference is not None:
                run = self.judged(run, reference)
        except (ProgramError, ShapeError) as failure:
            self.trials.keep_failure(purpose, chosen, str(failure))
            raise
        self.trials.keep(purpose, chosen, run)
        return run

    def _made(
        self,
        plan: Mapping[str, str] | None,
        scheme: str | None,
        levels: tuple[str, ...],
        warm: bool,
    ) -> Run:
        comparison, program = self.comparison, self.program
        with temporary_folder() as folder:
            directory = self._work_folder.for_run(folder)
            job = Job(
                folder,
                program.filename,
                program.argv,
                program.module,
                program.path,
                None if plan is None else self._plan(plan),
                # Without a wish float32 products on a GPU would run `faithful`.
                scheme or ("native" if plan is None else None),
                self.backend,
                levels,
                names=comparison.names,
                required=comparison.variables,
                sinks=comparison.sinks,
                with_sinks=comparison.with_sinks,
                directory=directory,
                stdout=comparison.stdout,
                products=self._products(plan, scheme),
                moved=self._first is not None and not self._first.on_gpu,
            )
            run_folder = RunFolder(Path(folder))
            job_file = run_folder.write(self._code, job)
            files = [WrittenFile(name, directory) for name in comparison.files]
            before = None if self.slowest else work_folder.state(directory)
            limit = self._limit(shadowed=bool(levels))
            ended = self._workers.run(str(job_file), limit, warm=warm)
            result = run_folder.result(program.argv[0], ended, limit)
            if self.slowest:  # what the first run showed is not kept with each
                result = msgspec.structs.replace(result, modules=())
            elif before is not None and work_folder.state(directory) != before:
                result = msgspec.structs.replace(result, wrote=True)
            if levels:  # a profile is asked for errors of products, not of the program
                return Run(result)
            values = run_folder.values(result)
            for file in files:
                values |= file.arrays()
            said = outputs.printed_text(Path(folder)) if comparison.stdout else ""
            if comparison.stdout:
                values[outputs.STDOUT] = outputs.printed_numbers(said)
        return Run(result, comparison.judge.limits.judged(values), printed=said)

    def _products(self, plan: Mapping[str, str] | None, scheme: str | None) -> tuple[Product, ...]:
        """What a run on a GPU makes before its clock runs: a product of each kind that it has."""
        sites = self._first.sites if self._first is not None else {}
        return tuple(
            (chosen, *product)
            for site, seen in sites.items()
            for chosen in {"native", (plan or {}).get(site, scheme or "native")}
            for product in gpus.warm_up_products(seen)
        )

    def _plan(self, schemes: Mapping[str, str]) -> Plan:
        return Plan(
            site=[
                Site(id=site, scheme=scheme, block=self.blocks.get(site))
                for site, scheme in schemes.items()
            ]
        )

    def _limit(self, *, shadowed: bool) -> float:
        if self.time_limit is not None:
            return self.time_limit
        if not self.slowest:
            return FIRST_LIMIT
        limit = max(LEAST_LIMIT, LIMIT_FACTOR * self.slowest)
        # A profile or an emulated run multiplies in NumPy what the program multiplied natively.
        return max(limit, FIRST_LIMIT) if shadowed or emulates(self.backend) else limit
