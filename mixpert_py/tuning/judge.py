"""The values of a program that are compared, and the errors they have."""

import sys
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
    of the program. choice: the one that was made.
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
        )

    def after(self, first: ProgramRun) -> "Comparison":
        """The comparison of all later runs, after the first one."""
        found = self
        if first.result.kinds and self.choice is None:
            found = self._chosen(first)
        return replace(found, limits=self.limits.with_decisions(found.among(first.values)))

    def errors(self, reference: Values, values: Values) -> dict[str, float]:
        """Value → its error; raises as `tuner.criterion.errors` does."""
        return errors_of(self.limits, self.folder, reference, values)

    def among(self, values: Values) -> Values:
        """The values of the first run that are compared."""
        if self.choice is None:
            return values
        return {name: x for name, x in values.items() if name in {*self.names, *self.sinks}}

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
