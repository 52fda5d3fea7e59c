"""A notebook's cell as the program of a tuning, whose runs are made in this process.

A run works on copies of the variables, and what it prints, displays or plots is not shown. So it
changes nothing but files, modules, and objects that cannot be copied, such as an open file.
"""

import ast
import copy
import logging
import os
import random
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from numbers import Number
from pathlib import Path
from time import perf_counter
from types import CodeType, ModuleType
from typing import Any

import msgspec
import numpy as np
from IPython.utils.capture import capture_output

from mixpert_py import config
from mixpert_py.errors import ProgramError, one_line
from mixpert_py.execution import outputs, worker
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.outputs import WrittenFile
from mixpert_py.launch.profile import Places
from mixpert_py.launch.program import Program
from mixpert_py.passes.dataflow.graph import Dependencies, dependencies
from mixpert_py.plan import Plan
from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.context import Context
from mixpert_py.runtime.tracing.captures import Captures
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.tuning.experiment import Experiment, RunRequest, RunSettings
from mixpert_py.tuning.judge import FLOATS
from mixpert_py.tuning.options import TuningOptions
from mixpert_py.tuning.prepare import prepare
from mixpert_py.tuning.project_sites import LIBRARY, ProjectSites, without_library
from mixpert_py.tuning.search import TuningResult, tune_program

VALUE = "_"  # the name by which the value of a cell's last expression is compared
PLOTS = "matplotlib.pyplot"
EARLIER = "earlier_cells"  # stands for the module that variables of other cells come from


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A cell that is to be tuned.

    name: as its prompt shows it. module: the first part of its site ids. text: as Python, with the
    value of its last expression assigned to VALUE. code: rewritten; last: that of the expression at
    its end. words: names of variables that its runs may reach are among them. imported: path and
    module of those that were rewritten when they were imported.
    """

    name: str
    module: str
    text: str
    code: CodeType
    last: CodeType | None
    namespace: dict[str, Any]
    words: Collection[str]
    imported: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> Program:
        return Program(self.text.encode(), self.name, (self.name,), self.module, os.getcwd())

    def project(self, places: Places) -> ProjectSites:
        """Its products, and those of other cells. places: of all, in cells as prompts show them."""
        found = {id: (name, site) for id, (name, site) in places.items() if site.reason is None}
        return ProjectSites(
            self.name,
            {id: site for id, (_, site) in found.items()},
            {id: name for id, (name, _) in found.items()},
            (self.module,),
            self._flow(frozenset(id for id, (name, _) in found.items() if name != self.name)),
            (),
        )

    def _flow(self, others: frozenset[str]) -> Dependencies:
        """The flow between the cell's own products. What it calls of other cells, or of modules
        that are rewritten, may reach all products there. No variable is a step to another one:
        later cells may go on with any.

        others: the products of other cells.
        """
        tops = {module.partition(".")[0] for _, module in self.imported}
        called = [
            name
            for name, value in self.namespace.items()
            if name in self.words
            and not isinstance(value, (np.ndarray, Number, str))
            and (not isinstance(value, ModuleType) or value.__name__.partition(".")[0] in tops)
        ]
        head = f"from {EARLIER} import {', '.join(called)}\n" if called else ""
        reached = others | ({LIBRARY} if tops else set())
        flow = dependencies((head + self.text).encode(), self.module, {EARLIER: reached})
        shown = flow.uses.shown | ({VALUE} if self.last else set())  # as a notebook shows it
        uses = replace(flow.uses, feeds={}, later={}, shown=shown)
        return without_library(replace(flow, uses=uses, ids=tuple({*flow.ids, *others})))

    def run(self) -> object:
        """Return the value of its last expression. Raises ProgramError if it raises anything."""
        try:
            exec(self.code, self.namespace)
            return self.last and eval(self.last, self.namespace)
        except (Exception, SystemExit) as error:
            what = one_line(f"{type(error).__name__}: {error}".rstrip(": "))
            raise ProgramError(f"{self.name}: {what}") from None


def as_program(text: str) -> str:
    """A cell's text with the value of its last expression assigned to VALUE."""
    tree = ast.parse(text)
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name(VALUE, ast.Store())], last.value)
    return ast.unparse(ast.fix_missing_locations(tree))


def tune_cell(
    cell: Cell,
    places: Places,
    options: TuningOptions,
    existing: Plan | None,
    output: str | None,
    say: Callable[[str], None],
) -> TuningResult:
    """The result of tuning a cell, whose plan has the entries of earlier ones as well.

    places: the products of all cells, as prompts show them. existing: the plan in force, unless
    there is one in the file `output`. say: called with a line on what the tuning does not do.
    Raises MixPertError, or KeyboardInterrupt where the user has ended it.
    """
    if output:
        config.require_plan_place(Path(output))
    if output and os.path.exists(output):
        existing = config.load_plan(output)
    existing = existing or config.find_plan(cell.module)

    prepared = prepare(
        cell.program,
        options,
        existing,
        RunSettings(report=say),
        given=cell.project(places),
        make=partial(CellExperiment, cell, say),
    )
    if isinstance(prepared, str):
        raise ProgramError(f"{cell.name}: {prepared}")
    result = tune_program(prepared)
    if result.outcome.interrupted:
        raise KeyboardInterrupt
    return replace(result, plan=_with_entries(result.plan, existing))


def _with_entries(plan: Plan, earlier: Plan | None) -> Plan:
    """A plan with those entries of an earlier one that it has none for."""
    if earlier is None:
        return plan
    sites, values = plan.schemes(), {value.name for value in plan.criterion}
    return msgspec.structs.replace(
        plan,
        guard=earlier.guard,
        site=[*plan.site, *(entry for entry in earlier.site if entry.id not in sites)],
        criterion=[*plan.criterion, *(x for x in earlier.criterion if x.name not in values)],
    )


class CellExperiment(Experiment):
    """Runs a cell as often as the tuner wants, in this thread.

    cell: what it runs. say: called with a line on variables that all runs share. The rest is as
    `Experiment` takes it.
    """

    def __init__(self, cell: Cell, say: Callable[[str], None], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._cell = cell
        self._say: Callable[[str], object] = say

    def _execute(self, request: RunRequest) -> ProgramRun:
        cell = self._cell
        job = self._job(request, "", os.getcwd())
        captures = None if job.alone is None else Captures()
        trace = Trace(job.levels or None, job.sinks, captures)
        context = Context(job.scheme, job.plan, job.backend, trace)
        files = [WrittenFile(file, job.directory) for file in self.comparison.files]
        worker.warm_up_host()
        if job.products:
            worker.warm_up_gpu(job.products, moved=job.moved)
        with on_copies(cell.namespace, cell.words, self._say), in_all_threads(context):
            self._say = str  # it has been said
            start = perf_counter()
            with capture_output() as captured:
                value = cell.run()
            seconds = perf_counter() - start
            if job.alone is not None and captures is not None:
                took, imported = captures.seconds, cell.imported
                made = worker.alone_result(job.alone, trace, captures, imported, seconds, took)
                return ProgramRun(made)
            namespace = {**cell.namespace, VALUE: value}
            found, result = worker.ended(job, namespace, trace, seconds)
            kinds = dict(result.kinds)
            variables = kinds.keys() & {*self.comparison.names} - {VALUE}
            has_floats = any(kinds[name] in FLOATS for name in variables)
            if has_floats and VALUE not in self.comparison.limits.named:
                kinds.pop(VALUE, None)  # most often a look at one of them
                found.pop(VALUE, None)
            # The next run may write to what a function keeps, and returns each time.
            values = {name: array.copy() for name, array in found.items()}
        if result.missing:
            names = ", ".join(result.missing)
            raise ProgramError(f"{cell.name}: has no numeric value for {names}")
        result = msgspec.structs.replace(result, kinds=kinds, rewritten=cell.imported)
        if self.comparison.choice is None:
            # Of the products of other cells only those are of interest that it calls.
            flow = self.comparison.flow
            flow = replace(flow, sinks=tuple(site for site in flow.sinks if site in result.sites))
            self.comparison = replace(self.comparison, flow=flow)
        if request.levels:
            return ProgramRun(result)
        for file in files:
            values |= file.arrays()
        if self.comparison.stdout:
            values[outputs.STDOUT] = outputs.numbers_in(captured.stdout)
        return self._judgeable(result, values)


@contextmanager
def in_all_threads(context: Context) -> Iterator[None]:
    """Put a context in force, in threads that the code inside begins as well."""
    before = contexts.default()
    contexts.set_default(context)
    try:
        with contexts.use(context):
            yield
    finally:
        contexts.set_default(before)


@contextmanager
def on_copies(
    namespace: dict[str, Any], words: Collection[str], say: Callable[[str], object]
) -> Iterator[None]:
    """Let the code inside work on copies of the variables that are among the words, and on the
    random numbers that come next; then all is as it was, and its figures are closed. Nothing is
    logged: handlers hold the streams of the notebook.

    say: called with a line on variables that cannot be copied. Raises ProgramError where there is
    no memory for the copies.
    """
    before, numbers = dict(namespace), _random_states()
    figures, logged_above = _figures(), logging.root.manager.disable
    # Objects refer to modules and to all variables, of which there are no copies.
    known: dict[int, Any] = {id(module): module for module in list(sys.modules.values())}
    known[id(namespace)] = namespace
    shared = []
    try:
        for name in before.keys() & words:
            try:
                namespace[name] = copy.deepcopy(before[name], known)
            except MemoryError:
                raise ProgramError(f"no memory for a copy of {name}, which each run gets") from None
            except Exception:  # whatever its class raises: such as an open file
                shared.append(name)
        if shared:
            say(f"{', '.join(sorted(shared))}: not copied: all runs of the cell work on the same")
        logging.disable()
        with outputs.observing_anew():
            yield
    finally:
        logging.disable(logged_above)
        for name in namespace.keys() - before.keys():
            del namespace[name]
        namespace.update(before)
        for number in _figures() - figures:
            sys.modules[PLOTS].close(number)
        for restore, state in numbers:
            restore(state)


def _figures() -> set[int]:
    plots: Any = sys.modules.get(PLOTS)
    return set(plots.get_fignums()) if hasattr(plots, "get_fignums") else set()


def _random_states() -> list[tuple[Callable[[Any], object], Any]]:
    """The states of the generators that modules have, each with the function that restores it.

    That of CuPy cannot be copied, so that another one takes its place until then.
    """
    states: list[tuple[Callable[[Any], object], Any]] = [
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state()),
    ]
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "get_rng_state"):
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_available():
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    cupy: Any = sys.modules.get("cupy")
    if hasattr(cupy, "is_available") and cupy.is_available():
        states.append((cupy.random.set_random_state, cupy.random.get_random_state()))
        cupy.random.set_random_state(cupy.random.RandomState(0))
    return states
