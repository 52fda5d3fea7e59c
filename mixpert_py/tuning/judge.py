"""The values of a program that are compared, and the errors they have.

Where nobody names any values, the variables are compared that the program prints or writes, and
those that it computes nothing else from. Left out are steps to others that are compared, and
residuals: differences that are tiny beside their operands, so that an error which is harmless
elsewhere is large in them, and that are neither printed nor written. No product goes unjudged: one
whose result reaches no variable that is compared, is compared itself. The flow through libraries is
not read, so their products are judged by variables that come of calls into them.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np
import numpy.typing as npt

from mixpert_py.errors import ProgramError, counted, one_line
from mixpert_py.execution import outputs
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.outputs import Values
from mixpert_py.execution.worker import SINKS
from mixpert_py.launch.program import Program
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.tuner import criterion
from mixpert_py.tuner.criterion import ErrorMeasure
from mixpert_py.tuning.options import Limits, TuningOptions, listed
from mixpert_py.tuning.project_sites import LIBRARY

UNSEEN = (
    " No compared value comes from a call into a library, so errors of its products are not "
    "checked: compare an attribute (--compare model.coef_) or stdout."
)
RESIDUAL = 1e-3  # of the size of its operands: a difference that is smaller is a residual
# Names of values that a program throws away, as pylint takes them (`dummy-variables-rgx`).
UNUSED = re.compile(r"_+$|_\w*[^\W_]$|dummy$|ignored_|unused_")
FLOATS, INTEGERS = "fc", "iu"  # kinds of dtype

Links = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class ComparedValues:
    """The values that are compared by default, and the variables that are not.

    compared: variables. products: call sites whose last results are compared, too. steps,
    residuals: variables that are left out. unseen: whether the program calls products of libraries,
    and nothing that is compared shows these.
    """

    compared: tuple[str, ...]
    products: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    residuals: tuple[str, ...] = ()
    unseen: bool = False

    @property
    def left_out(self) -> tuple[str, ...]:
        """The variables that are not compared, where any is."""
        return (*self.steps, *self.residuals) if self.compared else ()

    @property
    def sentence(self) -> str:
        """A line that says what was chosen, and how to choose otherwise unless that is all."""
        results = counted(len(self.products), "product")
        if not self.compared:
            return (
                f"Compared: the last result{'s' * (len(self.products) != 1)} of {results}, since "
                "no variable has a number from one. To compare others: --compare NAME (a file, "
                "stdout or sinks)."
            )
        if not (*self.left_out, *self.products, *[UNSEEN] * self.unseen):
            return f"Compared: {listed(self.compared)}."
        products = f" and {results} that they do not show" if self.products else ""
        without = ""
        for why, names in (
            ("compared values are computed from them", self.steps),
            ("a plan may change such tiny differences", self.residuals),
        ):
            without += f" Not compared, since {why}: {listed(names)}." if names else ""
        return (
            f"Compared: {listed(self.compared)}{products}.{without} To compare others: "
            f"--compare NAME, for each.{UNSEEN if self.unseen else ''}"
        )


def choose(
    kinds: Mapping[str, str],
    flow: Dependencies,
    ratios: Mapping[str, float],
    named: Collection[str] = (),
    *,
    libraries: bool = False,
) -> ComparedValues:
    """The choice among the variables of a run.

    kinds: variable → kind of its dtype. ratios: difference → its size beside its operands. named:
    values with limits of their own. libraries: whether the program calls products of libraries.
    """
    asked = {*named, *flow.uses.shown}
    variables = [
        name for name in flow.names if name in kinds and (name in asked or not UNUSED.match(name))
    ]
    floats = {name for name in variables if kinds[name] in FLOATS}
    tiny = {name for name in floats if ratios.get(name, 1.0) <= RESIDUAL}
    residuals = tiny - set(named) - flow.uses.shown
    if residuals == floats:  # there is nothing else
        tiny = residuals = set()
    leads = _steps(flow)
    results = floats - tiny or floats  # what leads to a residual alone is no step
    # Labels and indices are what a program decides, even where it goes on with them. Truth values
    # are mostly masks, which are steps like any other.
    decisions = {name for name in variables if kinds[name] in INTEGERS}
    steps = {
        name
        for name in variables
        if name not in residuals | decisions | flow.uses.shown | set(named)
        and any(
            leads(name, other) for other in (results if name in floats else results | decisions)
        )
    }
    compared = [name for name in variables if name not in steps | residuals]
    return ComparedValues(
        tuple(compared),
        _products(flow, compared, named),
        tuple(name for name in variables if name in steps),
        tuple(name for name in variables if name in residuals),
        libraries and not any(LIBRARY in flow.uses.sites.get(name, ()) for name in compared),
    )


def _steps(flow: Dependencies) -> Callable[[str, str], bool]:
    """Tells whether a variable is computed from another, and not that one from it.

    In a loop each may be computed from the other. There the later one counts: what the last
    iteration computes from the other's last value. So it does for sums, such as weights that are
    learned, where only another iteration would go on with them.
    """
    feeds = {name: _reached([name], flow.uses.feeds) for name in flow.names}
    later = {name: _reached([name], flow.uses.later) for name in flow.names}

    def leads(name: str, other: str) -> bool:
        in_turn = name in feeds[other] or name in flow.uses.sums
        return other in later[name] or (other in feeds[name] and not in_turn)

    return leads


def _products(
    flow: Dependencies, compared: Iterable[str], named: Collection[str]
) -> tuple[str, ...]:
    """The last products whose errors no compared value shows."""
    before: dict[str, list[str]] = {}
    for one, other in flow.edges:
        before.setdefault(other, []).append(one)
    shown = {site for name in compared for site in flow.uses.sites.get(name, ())}
    shown |= _reached(shown, before)
    return tuple(site for site in flow.sinks if site not in shown or site in named)


def _reached(names: Iterable[str], links: Links) -> set[str]:
    found: set[str] = set()
    pending = [other for name in names for other in links.get(name, ())]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += links.get(name, ())
    return found


NO_FLOW = Dependencies(frozenset(), (), ())


def errors_of(limits: Limits, folder: str, reference: Values, values: Values) -> dict[str, float]:
    """Value → its error by its limit's criterion. folder: searched first for the user's own."""
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
    choice: ComparedValues | None = None

    @classmethod
    def of(cls, program: Program, options: TuningOptions, flow: Dependencies) -> "Comparison":
        """The named values, else those that products reach. MixPertError for unknown criteria."""
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
            names=() if compare else flow.names,
            sinks=flow.sinks if SINKS in compare or not compare else (),
            with_sinks=SINKS in compare,
            flow=flow,
        )

    def after(self, first: ProgramRun) -> "Comparison":
        """The comparison of all later runs, after the first one."""
        found = self._chosen(first) if first.result.kinds and self.choice is None else self
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


def resolve(name: str, folder: str) -> ErrorMeasure:
    """The criterion of a name. folder: searched first for the user's own. Raises MixPertError."""
    return UserCriterion(name, folder) if ":" in name else criterion.resolve(name)


@dataclass(frozen=True, slots=True)
class UserCriterion:
    """A user's function(reference, value) → error, `module:function`. path: searched first."""

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
