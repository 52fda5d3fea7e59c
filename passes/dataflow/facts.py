"""The facts that the analysis collects: objects, their contents, and the arguments of functions.

Facts about NumPy, CuPy and the builtins, by the names of their functions, are its tables.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mixpert_py.passes.finder import FoundProduct
from mixpert_py.passes.scopes import FUNCTIONS, Scope, Scopes

# The result depends on the size or the type of an array, not on its elements.
SHAPE_ATTRIBUTES = frozenset(
    {"shape", "ndim", "size", "dtype", "nbytes", "itemsize", "strides", "flags"}
)
SHAPE_FUNCTIONS = frozenset(
    {"zeros_like", "ones_like", "empty_like", "shape", "size", "ndim", "result_type"}
    | {"iscomplexobj"}
)
# The result is a module.
MODULES = frozenset({"import_module", "get_array_module", "array_namespace"})
BUILTINS_WITHOUT_ARRAYS = frozenset(
    {"len", "range", "isinstance", "issubclass", "type", "id", "print", "hasattr", "callable"}
    | {"dir", "open", "input"}
)

# The result may be the argument, or a view of it.
VIEWS = frozenset(
    {"asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "atleast_1d", "atleast_2d"}
    | {"atleast_3d", "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze"}
    | {"expand_dims", "broadcast_to", "broadcast_arrays", "diagonal", "split", "array_split"}
    | {"hsplit", "vsplit", "dsplit", "flip", "fliplr", "flipud", "rot90", "real", "imag", "require"}
    | {"matrix_transpose", "as_strided", "sliding_window_view", "nditer"}
)

# The result is a new object.
FRESH = frozenset(
    {"copy", "sum", "mean", "max", "min", "std", "var", "prod", "argmax", "argmin", "argsort"}
    | {"dot", "tolist", "item", "flatten", "cumsum", "cumprod", "round", "clip", "conj", "repeat"}
    | {"take", "any", "all", "trace", "ptp", "nonzero", "searchsorted", "choose", "compress"}
    # of random generators: what is drawn has nothing in common with what was drawn before
    | {"random", "rand", "randn", "randint", "integers", "uniform", "normal", "standard_normal"}
    | {"permutation", "permuted", "choice", "exponential", "poisson", "binomial", "gamma", "beta"}
)

# Methods that put their arguments into a container.
APPENDING = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "setdefault"})
# Calls into these show or store values; nothing comes back into the program.
OUTPUT_MODULES = (
    *("matplotlib.", "seaborn.", "logging.", "warnings.", "pickle.", "json.", "sys.", "os."),
    *("time.", "pprint.", "numpy.testing.", "numpy.save"),
)

K = TypeVar("K")
V = TypeVar("V")


class Object(int):
    """All arrays, containers, instances or functions that one place of the program creates.

    Only `FlowFacts.object_at` makes objects, and numbers them: the number is a hash that makes the
    order of sets the same in every run.
    """

    node: ast.AST
    role: str

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FUNCTIONS) and not self.role

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef) and not self.role


Objects = frozenset[Object]
SiteIds = frozenset[str]
Variable = tuple[Scope, str]
State = dict[Variable, Objects]  # the definitions of each variable that reach a point
# The place of an element is a constant, or ANY; that of an attribute is its name, in a tuple.
Key = str | int | bytes | tuple[str]
ANY = "*"
NOTHING: Objects = frozenset()
Activation = tuple[ast.AST, ast.AST]  # a function and the call that enters it


class TooComplexError(Exception):
    """The analysis would take too long."""


@dataclass
class FlowFacts:
    """Facts that hold at every point of the program, and only grow while functions run.

    imported: maps a module, as it is spelled here, to the sites that its functions reach. by_call:
    whether each call of a function is an activation of its own. max_work: the work after which
    TooComplexError is raised: counted, and not timed, it is the same on every machine. grown:
    whether a fact was added in this round. held: the sites whose results an object contains.
    stored: its elements and attributes. bases: the base classes of a class. class_of: the class of
    an instance. defaults: the functions met so far, each with the defaults of its parameters.
    """

    scopes: Scopes
    operators: Mapping[ast.AST, FoundProduct]
    imported: Mapping[str, SiteIds]
    by_call: bool
    max_work: int
    grown: bool = False
    held: dict[Object, SiteIds] = field(default_factory=dict)
    stored: dict[Object, dict[Key, Objects]] = field(default_factory=dict)
    containers: set[Object] = field(default_factory=set)
    bases: dict[Object, Objects] = field(default_factory=dict)
    class_of: dict[Object, Object] = field(default_factory=dict)
    variables: State = field(default_factory=dict)
    defaults: dict[ast.AST, dict[str, Objects]] = field(default_factory=dict)
    parameters: dict[Activation, dict[str, Objects]] = field(default_factory=dict)
    returned: dict[Activation, Objects] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._objects: dict[tuple[ast.AST, str, ast.AST | None], Object] = {}
        self._contents: dict[Object, Objects] = {}
        self._reached: dict[Objects, Objects] = {}
        self._sites: dict[Objects, SiteIds] = {}
        # The owner of attributes of values that are not known at all.
        self.unknown = self.object_at(self.scopes.module.node)
        self.methods: dict[str, Objects] = {}  # of all classes, by name
        self.shared: set[Variable] = set()  # variables that a function outside their scope assigns
        for node, scope in self.scopes.opened_by.items():
            if isinstance(getattr(scope.parent, "node", None), ast.ClassDef):
                self.gain(self.methods, getattr(node, "name", ""), {self.object_at(node)})
            self.shared.update(
                (owner, name) for name in scope.declarations if (owner := scope.owner(name))
            )

    def object_at(self, node: ast.AST, role: str = "", context: ast.AST | None = None) -> Object:
        """The object that a place creates. context: the call that entered the function around the
        place, so that the results of `relu(x)` and `relu(y)` are different objects.
        """
        place = (node, role, context)
        if place not in self._objects:
            made = Object(len(self._objects))
            made.node, made.role = node, role
            self._objects[place] = made
        return self._objects[place]

    def gain(self, table: dict[K, frozenset[V]], key: K, more: Iterable[V]) -> None:
        before = table.get(key, frozenset())
        if not before.issuperset(more):
            table[key] = before.union(more)
            self.grown = True
            self._sites.clear()

    def store(self, owners: Iterable[Object], key: Key, objects: Objects) -> None:
        """Store objects as an element or as an attribute of others."""
        for owner in owners:
            self.spend(1)
            stored = self.stored.setdefault(owner, {})
            if not objects <= stored.get(key, NOTHING):
                self._reached.clear()
                self.gain(stored, key, objects)
                self.gain(self._contents, owner, objects)

    def load(self, owners: Objects, key: Key = ANY) -> Objects:
        """The results of indexing, unpacking or iterating. An array gives views of itself."""
        found = set(owners - self.containers)
        for owner in owners & self.stored.keys():
            for place, objects in self.stored[owner].items():
                if place in (key, ANY) or (key == ANY and not isinstance(place, tuple)):
                    found |= objects
        self.spend(1 + len(found) // 4)
        return frozenset(found)

    def reach(self, objects: Objects) -> Objects:
        if objects not in self._reached:
            found, pending = set(objects), list(objects)
            for owner in pending:  # the list grows
                contents = self._contents.get(owner, NOTHING)
                pending += contents - found
                found |= contents
                self.spend(1 + len(contents) // 16)
            self._reached[objects] = frozenset(found)
        return self._reached[objects]

    def sites(self, objects: Objects) -> SiteIds:
        """The call sites whose results a value may hold."""
        if objects not in self._sites:
            reached = self.reach(objects)
            self.spend(1 + len(reached) // 16)
            held = [self.held[one] for one in reached if one in self.held]
            self._sites[objects] = frozenset().union(*held)
        return self._sites[objects]

    def put(self, objects: Iterable[Object], sites: SiteIds) -> None:
        """Change objects in place by a value that was computed from the results of these sites."""
        for changed in objects if sites else ():
            self.spend(1)
            self.gain(self.held, changed, sites)

    def feed(self, sites: SiteIds, consumer: str) -> None:
        self.edges |= {(site, consumer) for site in sites}

    def family(self, definition: Object) -> list[Object]:
        """A class and its base classes, as far as the module defines them."""
        found = [definition]
        for one in found:  # the list grows
            found += [base for base in self.bases.get(one, ()) if base not in found]
        return found

    def attribute(self, owners: Objects, name: str) -> Objects:
        """The objects of an attribute: stored in an instance or its class, or views of an array."""
        found = NOTHING
        for owner in owners or {self.unknown}:
            self.spend(1)
            definition = owner if owner.is_class else self.class_of.get(owner)
            family = [] if definition is None else self.family(definition)
            stored = [self.stored.get(one, {}) for one in (owner, *family)]
            own = NOTHING.union(*(one.get(key, ()) for one in stored for key in ((name,), (ANY,))))
            found |= own
            if definition is None:
                found |= self.methods.get(name, NOTHING)
                found |= {owner} if owners and not own else NOTHING
        return found

    def reached(self, name: str) -> SiteIds:
        """The sites that a call of an imported function or class may reach, by its dotted name."""
        while name.strip(".") and name not in self.imported:
            name = name.rpartition(".")[0]
        return self.imported.get(name, frozenset())

    def spend(self, amount: int) -> None:
        self.max_work -= amount
        if self.max_work < 0:
            raise TooComplexError
