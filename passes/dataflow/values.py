"""Abstract values: the objects of variables, and the sites whose results objects may hold."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from mixpert_py.passes.scope import Scope

K = TypeVar("K")
V = TypeVar("V")


class Object(int):
    """All arrays, containers, instances or functions that one place of the program creates.

    Made by Heap.object_at only, one for each place. The number counts the objects of a heap; as
    their hash it makes the order of sets the same in every run, and an int has a quick one.
    context: the call that entered the function around it, so that `relu(x)` and `relu(y)` differ.
    """

    node: ast.AST
    role: str
    context: ast.AST | None


Objects = frozenset[Object]
Sites = frozenset[str]
Variable = tuple[Scope, str]
# An element's place in its container: a constant index or key, or ANY; ".name" for attributes.
Key = str | int | bytes
ANY: Key = "*"
ANY_ATTRIBUTE: Key = ".*"

# Work is counted in objects visited, so that the outcome does not depend on the machine's speed.
MAX_WORK = 2_000_000

NOTHING: Objects = frozenset()
NO_SITES: Sites = frozenset()


class TooComplexError(Exception):
    """The analysis would take too long at this precision."""


def gain(table: dict[K, frozenset[V]], key: K, more: frozenset[V]) -> bool:
    """Add to the set of a key; True if that adds anything."""
    before = table.get(key, frozenset())
    if more <= before:
        return False
    table[key] = before | more
    return True


@dataclass
class State:
    """One point of a program: the objects of each variable, and the sites whose results they hold.

    A variable is overwritten by an assignment; an object, which may be many arrays, only gains.
    """

    variables: dict[Variable, Objects] = field(default_factory=dict)
    held: dict[Object, Sites] = field(default_factory=dict)

    def copy(self) -> "State":
        return State(dict(self.variables), dict(self.held))

    def join(self, other: "State | None") -> bool:
        """Add what may be true at another point; True if that adds anything."""
        if other is None:
            return False
        grown = False
        for variable, objects in other.variables.items():
            grown |= gain(self.variables, variable, objects)
        return self.gain(other.held) or grown

    def gain(self, held: dict[Object, Sites]) -> bool:
        """Let objects hold more; True if that adds anything."""
        mine, grown = self.held, False
        for obj, sites in held.items():
            before = mine.get(obj, NO_SITES)
            # Written out: points of a program have mostly the same sets, and are joined often.
            if before is not sites and not sites <= before:
                mine[obj] = before | sites
                grown = True
        return grown

    def put(self, objects: Iterable[Object], sites: Sites) -> None:
        """Change objects in place by a value computed from these sites' results."""
        if sites:
            self.gain(dict.fromkeys(objects, sites))


def joined(one: State | None, other: State | None) -> State | None:
    """A new state with everything in either; None stands for a point that is not reached."""
    if one is None or other is None:
        only = one or other
        return only.copy() if only else None
    both = one.copy()
    both.join(other)
    return both


@dataclass
class Loop:
    """The states of a loop where it is left by `break`, and where its next iteration begins."""

    broken: State | None = None
    continued: State | None = None


@dataclass
class Summary:
    """The parameters, the result and the states of a function, for one call of it."""

    parameters: dict[str, Objects] = field(default_factory=dict)
    entry: State = field(default_factory=State)
    returned: Objects = NOTHING
    exit: State = field(default_factory=State)


# A function and the call that enters it; None: a call from outside the module.
Activation = tuple[ast.AST, ast.AST | None]


class Heap:
    """Facts that are true at every point of the program; `grown` says whether some were added."""

    def __init__(self) -> None:
        self.grown = False
        self.elements: dict[Object, dict[Key, Objects]] = defaultdict(dict)
        self.variables: dict[Variable, Objects] = {}
        self.class_attributes: dict[str, Objects] = {}
        self.summaries: dict[Activation, Summary] = defaultdict(Summary)
        self.defaults: dict[ast.AST, dict[str, Objects]] = {}  # of every function met so far
        self.containers: set[Object] = set()
        self.instances: set[Object] = set()
        self.class_of: dict[Object, ast.ClassDef] = {}  # of instances made in the module
        self.edges: set[tuple[str, str]] = set()
        # What others than the function that made it may find: stored in something, or shared.
        self.escaped: set[Object] = set()
        self.work = 0
        self._objects: dict[tuple[ast.AST, str, ast.AST | None], Object] = {}
        self._reached: dict[Objects, Objects] = {}

    def object_at(self, node: ast.AST, role: str = "", context: ast.AST | None = None) -> Object:
        """The object of a place."""
        place = (node, role, context)
        if place not in self._objects:
            made = Object(len(self._objects))
            made.node, made.role, made.context = place
            self._objects[place] = made
        return self._objects[place]

    def store(self, owners: Iterable[Object], key: Key, objects: Objects) -> None:
        """Put objects into containers, or into attributes of instances."""
        for owner in owners:
            if gain(self.elements[owner], key, objects):
                self.grown = True
                self.escaped |= objects
                self._reached.clear()

    def load(self, owners: Iterable[Object], key: Key = ANY) -> Objects:
        """The results of indexing, unpacking or iterating. An array gives views of itself."""
        found: set[Object] = set()
        for owner in owners:
            elements = self.elements.get(owner, {})
            if owner not in self.containers:
                found.add(owner)
            for place, objects in elements.items():
                attribute = isinstance(place, str) and place.startswith(".")
                if not attribute and (key in (ANY, place) or place == ANY):
                    found |= objects
                    self.spend(len(objects))
        return frozenset(found)

    def remember(self, variable: Variable, objects: Objects, *, is_own: bool) -> None:
        """Add the objects of a variable, which other functions see at any time. is_own: whether it
        is of a function that has no other inside, so that none sees it.
        """
        if not is_own:
            self.escaped |= objects
        self.grown |= gain(self.variables, variable, objects)

    def store_class_attribute(self, name: str, objects: Objects) -> None:
        """An attribute that instances have from their class, whichever class that is."""
        self.escaped |= objects
        self.grown |= gain(self.class_attributes, name, objects)

    def reach(self, objects: Objects) -> Objects:
        """Objects and everything stored in them."""
        known = self._reached.get(objects)
        if known is not None:
            return known
        reached: set[Object] = set()
        pending = list(objects)
        visited = 0
        while pending:
            obj = pending.pop()
            visited += 1
            if obj not in reached:
                reached.add(obj)
                for stored in self.elements.get(obj, {}).values():
                    pending += stored
        self.spend(visited)
        self._reached[objects] = frozenset(reached)
        return self._reached[objects]

    def sites(self, objects: Objects, state: State) -> Sites:
        """The sites whose results a value may hold."""
        held = [state.held[obj] for obj in self.reach(objects) if obj in state.held]
        self.spend(len(held))
        return NO_SITES.union(*held)

    def spend(self, amount: int) -> None:
        """Count work done; raise TooComplexError beyond MAX_WORK."""
        self.work += amount
        if self.work > MAX_WORK:
            raise TooComplexError
