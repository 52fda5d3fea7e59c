"""Abstract values: the objects of variables, and the sites whose results objects may hold."""

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from mixpert_py.passes.scope import Scope

K = TypeVar("K")
V = TypeVar("V")


class Object(int):
    """All arrays, containers, instances or functions that one place of the program creates.

    Only Heap.object_at makes it, once for each place. The number counts the objects of a heap. As
    their hash it makes the order of sets the same in every run, and the hash of an int is quick.
    context: the call that entered the function around it, so that `relu(x)` and `relu(y)` differ.
    """

    node: ast.AST
    role: str
    context: ast.AST | None


Objects = frozenset[Object]
Sites = frozenset[str]
# Site → the objects that hold its results, object n as bit n.
Held = dict[str, int]
Variable = tuple[Scope, str]
# An element's place in its container, a constant index or key, or an attribute's name; or ANY.
Key = str | int | bytes
ANY = "*"
COMMON = object()  # among the changes of a heap: that every function finds more

# Work is counted, some million to the second, so that the outcome does not depend on the machine.
MAX_WORK = 1_000_000
WORK_PER_SITE = 50_000

NOTHING: Objects = frozenset()
NO_SITES: Sites = frozenset()


class TooComplexError(Exception):
    """The analysis would take too long at this precision."""


def work_for(sites: int) -> int:
    """The work that the dependencies of so many sites are worth: little for few sites."""
    return min(MAX_WORK, WORK_PER_SITE * (sites + 2))


def gain(table: dict[K, frozenset[V]], key: K, more: frozenset[V]) -> bool:
    """Add to the set of a key; return whether that adds anything."""
    before = table.get(key, frozenset())
    if more <= before:
        return False
    table[key] = before | more
    return True


@dataclass(eq=False)
class State:
    """A point of a program: the objects of each variable, and the sites whose results they hold.

    An assignment overwrites a variable. An object, which may be many arrays, only gains sites.
    """

    variables: dict[Variable, Objects] = field(default_factory=dict)
    held: Held = field(default_factory=dict)

    def copy(self) -> "State":
        return State(dict(self.variables), dict(self.held))

    def join(self, other: "State | None") -> bool:
        """Add what may be true at another point; return whether that adds anything."""
        if other is None:
            return False
        grown = False
        for variable, objects in other.variables.items():
            grown |= gain(self.variables, variable, objects)
        return self.gain(other.held) or grown

    def gain(self, held: Held) -> bool:
        """Let objects hold more sites; return whether that adds anything."""
        mine, grown = self.held, False
        for site, objects in held.items():
            before = mine.get(site, 0)
            after = before | objects
            if after != before:
                mine[site] = after
                grown = True
        return grown


def joined(one: State | None, other: State | None) -> State | None:
    """A new state with everything in either state; None is a point that is not reached."""
    if one is None or other is None:
        only = one or other
        return only.copy() if only else None
    both = one.copy()
    both.join(other)
    return both


@dataclass
class Loop:
    """The states at the `break` statements of a loop, and at the starts of its iterations."""

    broken: State | None = None
    continued: State | None = None


@dataclass
class Summary:
    """The parameters, the result and the states of a function, for one call of it."""

    parameters: dict[str, Objects] = field(default_factory=dict)
    entry: State = field(default_factory=State)
    returned: Objects = NOTHING
    exit: State = field(default_factory=State)

    @property
    def given(self) -> Objects:
        """The objects of all parameters."""
        return NOTHING.union(*self.parameters.values())


# A function and the call that enters it; None: a call from outside the module.
Activation = tuple[ast.AST, ast.AST | None]


class Heap:
    """Facts that are true at every point of the program, and only grow.

    changes: what has grown, in order: the elements of an object; a variable; an attribute of
    classes, by its name; the entry or the exit of a summary. read: those of them that the running
    function has read.
    """

    def __init__(self, module: ast.AST, budget: int) -> None:
        self.changes: list[Hashable] = []
        self.read: set[Hashable] = set()
        self.elements: dict[Object, dict[Key, Objects]] = defaultdict(dict)
        self.attributes: dict[Object, dict[Key, Objects]] = defaultdict(dict)  # of an instance
        self.variables: dict[Variable, Objects] = {}
        self.class_attributes: dict[str, Objects] = {}
        self.summaries: dict[Activation, Summary] = defaultdict(Summary)
        self.defaults: dict[ast.AST, dict[str, Objects]] = {}  # of every function met so far
        self.containers: set[Object] = set()
        self.instances: set[Object] = set()
        self.class_of: dict[Object, ast.ClassDef] = {}  # of instances made in the module
        self.edges: set[tuple[str, str]] = set()
        self._objects: dict[tuple[ast.AST, str, ast.AST | None], Object] = {}
        # What every function may find, whatever its arguments: in variables of the module and of
        # functions around others, in classes, in attributes of what is not known.
        self.common: Objects = frozenset({self.object_at(module)})
        self.work = 0
        self.budget = budget
        self.has_turns = False  # whether the turns of a loop were followed one by one
        self._stored: dict[Object, Objects] = {}  # in all places of a container or an instance
        self._reached: dict[Objects, Objects] = {}
        self._bits: dict[Objects, int] = {}

    def object_at(self, node: ast.AST, role: str = "", context: ast.AST | None = None) -> Object:
        """The object that a place creates."""
        place = (node, role, context)
        if place not in self._objects:
            made = Object(len(self._objects))
            made.node, made.role, made.context = place
            self._objects[place] = made
        return self._objects[place]

    def summary(self, activation: Activation) -> Summary:
        """The summary of a function for one call, made at the first request."""
        if activation not in self.summaries:
            self.changes.append(activation)
        return self.summaries[activation]

    def store(self, owners: Iterable[Object], key: Key, objects: Objects) -> None:
        """Put objects into containers."""
        self._put(self.elements, owners, key, objects)

    def set_attribute(self, owners: Iterable[Object], name: str, objects: Objects) -> None:
        """Put objects into an attribute of instances, or into any attribute."""
        self._put(self.attributes, owners, name, objects)

    def _put(
        self,
        table: dict[Object, dict[Key, Objects]],
        owners: Iterable[Object],
        key: Key,
        objects: Objects,
    ) -> None:
        for owner in owners:
            if gain(table[owner], key, objects):
                self.changes.append(owner)
                if gain(self._stored, owner, objects):
                    self._reached.clear()

    def move(self, containers: Objects) -> None:
        """Treat an element at a known index as an element at any index."""
        for container in containers & self.elements.keys():
            for place, objects in list(self.elements[container].items()):
                if isinstance(place, int):
                    self.store([container], ANY, objects)

    def load(self, owners: Objects, key: Key = ANY) -> Objects:
        """The results of indexing, unpacking or iterating. An array gives views of itself."""
        self.read |= owners
        self.spend(len(owners))
        found = set(owners - self.containers)
        for owner in owners & self.elements.keys():
            for place, objects in self.elements[owner].items():
                if key in (ANY, place) or place == ANY:
                    found |= objects
                    self.spend(1 + len(objects) // 4)
        return frozenset(found)

    def remember(self, variable: Variable, objects: Objects) -> None:
        """Add the objects of a variable, which other functions see at any time."""
        if gain(self.variables, variable, objects):
            self.changes.append(variable)
            self.share(objects)

    def store_class_attribute(self, name: str, objects: Objects) -> None:
        """Store an attribute that instances of any class may have from their class."""
        if gain(self.class_attributes, name, objects):
            self.changes.append(name)
            self.share(objects)

    def share(self, objects: Objects) -> None:
        """Let every function find these objects."""
        if not objects <= self.common:
            self.common |= objects
            self.changes.append(COMMON)

    def reach(self, objects: Objects) -> Objects:
        """The objects, and everything stored in them."""
        if self._stored.keys().isdisjoint(objects):
            self.read |= objects
            return objects
        known = self._reached.get(objects)
        if known is not None:
            self.read |= known
            return known
        reached = set(objects)
        pending: Iterable[Object] = objects
        while pending:
            stored = [self._stored[obj] for obj in pending if obj in self._stored]
            pending = NOTHING.union(*stored) - reached
            reached |= pending
        self.spend(1 + len(reached) // 4)
        self.read |= reached
        self._reached[objects] = frozenset(reached)
        return self._reached[objects]

    def bits(self, objects: Objects) -> int:
        """Return a number in which the bit of each object is set."""
        known = self._bits.get(objects)
        if known is None:
            known = self._bits[objects] = sum(1 << obj for obj in objects)
        return known

    def visible(self, held: Held, objects: Objects) -> Held:
        """The part of `held` that concerns objects which a function can find.

        objects: its arguments. It finds what they reach, and what every function finds.
        """
        self.read.add(COMMON)
        found = self.bits(self.reach(self.common)) | self.bits(self.reach(objects))
        self.spend(len(held))
        return {site: those for site, holders in held.items() if (those := holders & found)}

    def sites(self, objects: Objects, state: State) -> Sites:
        """The sites whose results a value may hold."""
        if not objects or not state.held:
            return NO_SITES
        found = self.bits(self.reach(objects))
        self.spend(len(state.held))
        return frozenset([site for site, holders in state.held.items() if holders & found])

    def put(self, objects: Objects, sites: Sites, state: State) -> None:
        """Change objects in place by a value computed from the results of these sites."""
        if sites and objects:
            state.gain(dict.fromkeys(sites, self.bits(objects)))

    def spend(self, amount: int) -> None:
        """Count work done; raise TooComplexError beyond the budget."""
        self.work += amount
        if self.work > self.budget:
            raise TooComplexError
