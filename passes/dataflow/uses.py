"""How the variables of a module are used: which are steps to others, shown, or differences.

A tuning compares by default what a program ends with. These facts tell its results from the steps
to them, and from residuals, whose size says little: they tend to zero. They are about the module's
own statements, in their order; where that leaves a doubt, a variable counts as a result.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.dataflow.differences import sizes_of_operands
from mixpert_py.passes.dataflow.steps import Step, adds_to, made_by, owner_of, read_steps
from mixpert_py.passes.scope import FUNCTIONS


@dataclass(frozen=True, slots=True)
class Uses:
    """How variables of a module that hold results of products are used.

    feeds: variable → those that a statement computes from its last value. later: the same, without
    what only the next iteration of a loop computes. shown: variables that are printed, written, or
    handed to a call that is made for its effect, as far as the source says. differences: variable
    that is a difference, or the norm of one → expressions for the size of its operands: `norm(b)`
    for `norm(b - a @ x)`. sums: variables that loops only add to, or take from. sites: variable →
    products whose results it may hold.
    """

    feeds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    later: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()
    differences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sums: frozenset[str] = frozenset()
    sites: Mapping[str, frozenset[str]] = field(default_factory=dict)


NOT_KNOWN = Uses()


def uses(tree: ast.Module, scopes: Scopes, sites: Mapping[str, frozenset[str]]) -> Uses:
    """The uses of the variables that hold these sites' results when the module ends."""
    steps, shown = read_steps(tree, scopes, frozenset(sites))
    feeds: dict[str, set[str]] = defaultdict(set)
    later: dict[str, set[str]] = defaultdict(set)
    place = {step: number for number, step in enumerate(steps)}
    last = {name: step for step in steps for name in step.writes}
    for name in last:
        for step in made_by(name, steps):
            for read in step.reads & last.keys() - {name}:
                made = last[read]
                if not step.branches <= made.branches:
                    continue  # it may not have been executed
                if place[made] < place[step]:
                    later[read].add(name)
                if place[made] < place[step] or made.loops & step.loops:
                    feeds[read].add(name)
    return Uses(
        {name: frozenset(to) for name, to in feeds.items()},
        {name: frozenset(to) for name, to in later.items()},
        shown | _shared(tree, scopes, sites),
        sizes_of_operands(scopes, last, steps),
        frozenset(name for name in last if _is_sum(name, steps)),
        sites,
    )


def _is_sum(name: str, steps: Sequence[Step]) -> bool:
    """Whether loops change a variable, and do no more than to add to it."""
    repeated = [step for step in made_by(name, steps) if step.loops]
    return bool(repeated) and all(adds_to(step.value, name) for step in repeated)


def _shared(tree: ast.Module, scopes: Scopes, names: Collection[str]) -> frozenset[str]:
    """Variables of the module that its functions and classes read or assign, at any time."""
    return frozenset(
        part.id
        for node in ast.walk(tree)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef))
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and part.id in names
        and owner_of(scopes, part) is scopes.module
    )
