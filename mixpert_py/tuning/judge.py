"""The values of a program that are compared, and the errors they have."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np
import numpy.typing as npt

from mixpert_py.errors import ProgramError, one_line
from mixpert_py.execution import outputs
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.outputs import Values
from mixpert_py.execution.worker import SINKS
from mixpert_py.launch.launcher import Program
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.tuner import criterion
from mixpert_py.tuner.criterion import Criterion
from mixpert_py.tuning.choice import FLOATS, Choice, choose
from mixpert_py.tuning.options import Limits, TuningOptions

NO_FLOW = Dependencies(frozenset(), (), ())


def errors_of(limits: Limits, folder: str, reference: Values, values: Values) -> dict[str, float]:
    """Value → its error by the criterion of its limit; raises as `tuner.criterion.errors` does.

    folder: searched first for modules of the user's criteria.
    """
    criteria = {name: resolve(limits.of(name).metric, folder) for name in reference}
    return criterion.errors(reference, values, criteria)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The values of a run that are compared, and their limits.

    variables: of the main module, named by the user; files: of numbers, written by the program;
    stdout: whether the numbers it prints are compared. Values that it observes are compared beside
    these. Without any of them the choice is made by the first run, among the variables `names` and
    the results of the call sites `sinks`; with_sinks: whether those are compared in any case. flow:
    of the program. choice: the one that was made. Where no variable could be chosen, what the
    program prints and writes is compared: sources: "stdout" and files of the first run; steady:
    what all native runs have in common, once they are made; with_products: whether the results of
    products are compared beside it in any case, as where there are several budgets.
    """

    limits: Limits
    folder: str = ""
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    stdout: bool = False
    names: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    with_sinks: bool = False
    flow: Dependencies = NO_FLOW
    choice: Choice | None = None
    with_products: bool = False
    sources: tuple[str, ...] = ()
    steady: outputs.Steady | None = None

    @classmethod
    def of(cls, program: Program, options: TuningOptions, flow: Dependencies) -> "Comparison":
        """The values that the user named, else those that the program's products reach.

        Raises MixPertError for an unknown criterion.
        """
        for name in options.limits.metrics:
            resolve(name, program.path)
        compare = options.compare
        files = tuple(name for name in compare if name.endswith(outputs.FILE_ENDINGS))
        no_variables = {*files, outputs.STDOUT, SINKS}
        return cls(
            limits=options.limits,
            folder=program.path,
            variables=tuple(name for name in compare if name not in no_variables),
            files=files,
            stdout=outputs.STDOUT in compare,
            names=() if compare else (*flow.names, *sorted(flow.uses.attributes)),
            sinks=flow.sinks if SINKS in compare or not compare else (),
            with_sinks=SINKS in compare,
            flow=flow,
            with_products=bool(options.stricter),
        )

    @property
    def by_output(self) -> bool:
        """Whether runs are compared by what they print and write, or may be."""
        is_open = self.choice is not None and not self.choice.compared and self.steady is None
        return bool(self.sources) or (is_open and self.limits.common is not None)

    def after(self, first: ProgramRun) -> "Comparison":
        """The comparison of all later runs, after the first one."""
        found = self
        if first.result.kinds and self.choice is None:
            found = self._chosen(first)
        if found.by_output:
            sources = tuple(name for name in first.values if name not in first.result.kinds)
            return replace(found, sources=sources)
        return replace(found, limits=self.limits.with_decisions(found.among(first.values)))

    def settled(self, natives: Sequence[Values]) -> "Comparison":
        """The comparison after all native runs, which show what of the output is compared.

        The results of products are compared beside it unless the output shows errors of the size
        of the budget.
        """
        if not self.by_output:
            return self
        assert self.choice is not None
        steady = outputs.Steady.of(natives, self.sources)
        limit = self.limits.common
        assert limit is not None
        is_shown = steady.shows(limit.budget, is_absolute=limit.metric == "max")
        is_enough = is_shown and not self.with_products
        sinks = () if is_enough else self.sinks
        values, _ = steady.pair(natives[0], natives[0])
        return replace(
            self,
            limits=self.limits.with_decisions(values),
            sinks=sinks,
            choice=replace(
                self.choice, products=sinks, output=steady.compared, unsteady=steady.left_out
            ),
            sources=tuple(steady.sources),
            steady=steady,
        )

    def errors(self, reference: Values, values: Values) -> dict[str, float]:
        """Value → its error; raises as `tuner.criterion.errors` does."""
        if self.sources and self.steady is not None:
            reference, values = self.steady.pair(reference, values)
        return errors_of(self.limits, self.folder, reference, values)

    def among(self, values: Values) -> Values:
        """The values of the first run that are compared."""
        if self.choice is None:
            return values
        return {
            name: x
            for name, x in values.items()
            if name in {*self.names, *self.sinks, *self.sources}
        }

    def _chosen(self, first: ProgramRun) -> "Comparison":
        limits, kinds = self.limits, first.result.kinds
        judged = kinds if limits.common else {name: kinds[name] for name in limits.named}
        libraries = not first.result.sites.keys() <= {*self.flow.ids}
        choice = choose(judged, self.flow, first.result.ratios, limits.named, libraries=libraries)
        # Decisions alone do not show how far a plan is from changing them.
        has_floats = any(kinds[name] in FLOATS for name in choice.compared)
        sinks = choice.products if has_floats else self.sinks
        return replace(self, names=choice.compared, sinks=sinks, choice=choice)


def resolve(name: str, folder: str) -> Criterion:
    """The criterion of that name; the module of `module:function` is searched in `folder` first.

    Raises MixPertError for an unknown name. A module is imported when it is first used.
    """
    return UserCriterion(name, folder) if ":" in name else criterion.resolve(name)


@dataclass(frozen=True, slots=True)
class UserCriterion:
    """A user's function(reference, value) → error.

    name: `module:function`. path: searched first for the module, and for what it imports.
    """

    name: str
    path: str

    def __call__(self, reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
        """Raises ProgramError if the function is not there, fails, or returns no number ≥ 0."""
        module, _, function = self.name.partition(":")
        sys.path.insert(0, self.path)
        try:
            with redirect_stdout(sys.stderr):
                found = getattr(import_module(module), function)
                error = float(found(np.array(reference), np.array(value)))
        except (Exception, SystemExit) as failure:
            what = one_line(f"{type(failure).__name__}: {failure}")
            raise ProgramError(f"criterion {self.name}: {what}") from failure
        finally:
            sys.path.remove(self.path)
        if error < 0:
            raise ProgramError(f"criterion {self.name} returned {error:g}; an error is ≥ 0")
        return error
