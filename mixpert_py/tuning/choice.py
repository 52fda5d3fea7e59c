"""The choice of the values that a tuning compares where nobody names any.

Compared are the variables that the program prints or writes, and those that it computes nothing
else from. Left out are steps to others that are compared, and residuals: differences that are tiny
beside their operands, so that an error which is harmless elsewhere is large in them, and that are
neither printed nor written. No product goes unjudged: one whose result reaches no variable that is
compared, is compared itself. The flow through libraries is not read, so their products are judged
by variables, and printed attributes of their objects, that come of calls into them.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from mixpert_py.errors import counted
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.tuning.options import listed
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
class Choice:
    """The values that are compared by default, and the variables that are not.

    compared: variables, and attributes such as `model.coef_`. products: call sites whose last
    results are compared, too. steps, residuals: variables that are left out. unseen: whether the
    program calls products of libraries, and nothing that is compared shows these.
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
        left_out = {
            "compared values are computed from them": self.steps,
            "a plan may change such tiny differences": self.residuals,
        }
        products = f" and {results} that they do not show" if self.products else ""
        without = (
            f" Not compared, since {why}: {listed(names)}."
            for why, names in left_out.items()
            if names
        )
        return (
            f"Compared: {listed(self.compared)}{products}.{''.join(without)} To compare others: "
            f"--compare NAME, for each.{UNSEEN if self.unseen else ''}"
        )


def choose(
    kinds: Mapping[str, str],
    flow: Dependencies,
    ratios: Mapping[str, float],
    named: Collection[str] = (),
    *,
    libraries: bool = False,
) -> Choice:
    """The choice among the variables of a run.

    kinds: variable, or attribute of an object → kind of its dtype. ratios: difference → its size
    beside its operands. named: values that have limits of their own, which are always compared.
    libraries: whether the program calls products of libraries.
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
    # Which of an object's products an attribute shows is not known: it stands for none of ours.
    products = _products(flow, compared, named)
    compared += [name for name in sorted(flow.uses.attributes) if name in kinds]
    owners = {name.partition(".")[0] for name in compared}
    return Choice(
        tuple(compared),
        products,
        tuple(name for name in variables if name in steps),
        tuple(name for name in variables if name in residuals),
        libraries and not any(LIBRARY in flow.uses.sites.get(name, ()) for name in owners),
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
    """Everything that one step or more lead to."""
    found: set[str] = set()
    pending = [other for name in names for other in links.get(name, ())]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += links.get(name, ())
    return found
