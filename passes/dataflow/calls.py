"""Follows calls: code of the module itself is entered; other code has known effects.

A call of a function outside the module may return anything that its arguments and receiver hold.
NumPy's and CuPy's functions change nothing but `out`. Any other call whose result is discarded was
made for its effect, and may have changed every argument by every other.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mixpert_py.passes.dataflow import facts as effects
from mixpert_py.passes.dataflow.facts import ANY, NOTHING, Facts, Key, Object, Objects, Sites, State
from mixpert_py.passes.scopes import ARRAY_MODULES, FUNCTIONS, Scope, written_name

ARRAYS = tuple(f"{module}." for module in ARRAY_MODULES)
# The arguments of a call by position or keyword. Those at ANY are starred, or follow starred ones.
Arguments = Mapping[Key, Objects]


@dataclass(eq=False)
class Caller:
    """A point of a function, or of the module, that creates objects and calls functions.

    home: the scope of the running function. context: the call that entered the function. state: the
    variables of this function at this point; None where no run gets to this point. raised: for each
    `try` around this point, the variables at any point of its body. discarded: the call whose
    result the running statement throws away.
    """

    facts: Facts
    home: Scope
    context: ast.AST | None = None
    state: State | None = field(default_factory=dict)
    raised: list[State] = field(default_factory=list)
    discarded: ast.expr | None = None

    def new(self, node: ast.AST, sites: Sites) -> Objects:
        """The array that a node creates, which holds the results of these sites."""
        created = frozenset({self.facts.object_at(node, "", self.context)})
        self.facts.put(created, sites)
        return created

    def container(
        self, node: ast.AST, elements: Mapping[Key, Objects], role: str = "list"
    ) -> Objects:
        """The list, tuple, dict or generator that a node creates."""
        created = frozenset({self.facts.object_at(node, role, self.context)})
        self.facts.containers |= created
        for key, objects in elements.items():
            self.facts.store(created, key, objects)
        return created

    def own_code(
        self, node: ast.AST, callees: Objects, receiver: Objects, arguments: Arguments
    ) -> Objects | None:
        """Call the callees that this module defines; None if there are none."""
        results = []
        for callee in callees:
            if callee.is_function:
                results.append(self.enter(node, callee.node, arguments, receiver))
            elif callee.is_class:
                results.append(self.construct(node, callee, arguments))
            elif callee in self.facts.class_of:
                results.append(self.call_method(node, {callee}, "__call__", arguments))
        return NOTHING.union(*results) if results else None

    def construct(self, node: ast.AST, definition: Object, arguments: Arguments) -> Objects:
        """Make an instance; without an `__init__`, arguments are the fields of a dataclass."""
        created = frozenset({self.facts.object_at(node, "instance", self.context)})
        self.facts.class_of.update(dict.fromkeys(created, definition))
        if self.facts.attribute(created, "__init__"):
            self.call_method(node, created, "__init__", arguments)
            return created
        for place, objects in arguments.items():
            self.facts.store(created, (place if isinstance(place, str) else ANY,), objects)
        self.call_method(node, created, "__post_init__", {})
        return created

    def enter(
        self, call: ast.AST, function: ast.AST, arguments: Arguments, receiver: Objects
    ) -> Objects:
        """Call a function: its parameters gain the arguments, a method's first one the receiver."""
        assert isinstance(function, FUNCTIONS)
        self.facts.spend(10)
        around = self.facts.scopes.opened_by[function].parent
        if around is not None and isinstance(around.node, ast.ClassDef):
            decorators = [written_name(one) for one in getattr(function, "decorator_list", ())]
            is_of_class = "classmethod" in decorators
            is_on_class = bool(receiver) and all(one.is_class for one in receiver)
            if is_of_class or not (is_on_class or "staticmethod" in decorators):
                itself = frozenset({self.facts.object_at(around.node)}) if is_of_class else receiver
                arguments = {
                    0: itself,
                    **{at + 1 if isinstance(at, int) else at: x for at, x in arguments.items()},
                }
        first = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        names = [*first, *(one.arg for one in function.args.kwonlyargs)]
        given, rest = dict(self.facts.defaults.get(function, {})), NOTHING
        for place, objects in arguments.items():
            name = first[place] if isinstance(place, int) and place < len(first) else place
            if name in names:
                given[str(name)] = given.get(str(name), NOTHING) | objects
            else:
                rest |= objects
        for name in names[sum(isinstance(place, int) for place in arguments) :]:
            given[name] = given.get(name, NOTHING) | arguments.get(ANY, NOTHING)
        for parameter in filter(None, (function.args.vararg, function.args.kwarg)):
            given[parameter.arg] = self.container(parameter, {ANY: rest})
        activation = (function, call if self.facts.by_call else function)
        self.facts.grown |= activation not in self.facts.parameters
        known = self.facts.parameters.setdefault(activation, {})
        for name, objects in given.items():
            self.facts.gain(known, name, objects)
        return self.facts.returned.get(activation, NOTHING)

    def call_method(
        self, node: ast.AST, owners: Iterable[Object], name: str, arguments: Arguments
    ) -> Objects:
        """Call a method of those objects that are instances of a class with this method."""
        returned = NOTHING
        for owner in self.facts.class_of.keys() & owners:
            itself = frozenset({owner})
            for method in self.facts.attribute(itself, name):
                if method.is_function:
                    returned |= self.enter(node, method.node, arguments, itself)
        return returned

    def builtin(self, node: ast.AST, name: str, arguments: Arguments) -> Objects:
        if name in effects.BUILTINS_WITHOUT_ARRAYS:
            return NOTHING
        values = NOTHING.union(*arguments.values())
        if name in ("enumerate", "zip") and ANY not in arguments:
            parts = [self.facts.load(part) for part in arguments.values()]
            item = self.container(node, dict(enumerate(parts, name == "enumerate")), "item")
            return self.container(node, {ANY: item})
        if name == "setattr":
            self.facts.store(arguments.get(0, NOTHING), (ANY,), values)
        if name == "getattr":
            values = self.facts.reach(values)
        elements = self.facts.load(values) | self.callbacks(node, values)
        created = self.container(node, {**arguments, ANY: elements})
        return created | elements | values | self.new(node, self.facts.sites(values))

    def library(self, node: ast.AST, name: str, receiver: Objects, arguments: Arguments) -> Objects:
        """Call a function or method of other code.

        name: the function's dotted name; a method's name begins with `?.`.
        """
        is_array, function = name.startswith(ARRAYS), name.rpartition(".")[2]
        values, out = NOTHING.union(*arguments.values()), arguments.get("out", NOTHING)
        lists = receiver & self.facts.containers
        sites, reached = self.facts.sites(values | receiver), self.facts.reached(name)
        for other in reached:
            self.facts.feed(sites, other)
        returned = self.callbacks(node, values)
        sites |= reached | self.facts.sites(returned)
        self.facts.put(out, sites)
        if function in effects.MODULES:
            return NOTHING
        if function in effects.SHAPE_FUNCTIONS:
            return self.new(node, frozenset())
        if function in effects.APPENDING:  # other code may have made a container as well
            self.facts.store(receiver - self.facts.class_of.keys(), ANY, values)
        self.facts.store(lists, ANY, values | self.facts.load(values))
        if node is self.discarded and not name.startswith(effects.OUTPUT_MODULES):
            changed = self.facts.reach((receiver | values) - self.facts.containers)
            self.facts.put(changed, self.facts.sites(receiver | values))
        result = self.new(node, sites) | out | returned | {one for one in values if one.is_function}
        is_view = function in effects.VIEWS
        if not is_view and (is_array or function in effects.FRESH):
            return result | lists  # a list's copy has the same elements
        # A method returns what its receiver has; the arguments, if it is a module's function.
        views = values if is_view or not name.startswith("?") else NOTHING
        return result | views | receiver | self.facts.load(lists)

    def callbacks(self, node: ast.AST, values: Objects) -> Objects:
        """Call functions among the arguments of other code, with any of the other arguments and, as
        `reduce` does, with results.
        """
        functions = frozenset(one for one in values if one.is_function)
        returned = NOTHING
        for function in functions:
            others = (values - functions) | self.facts.returned.get((function.node, node), NOTHING)
            arguments: Arguments = {ANY: others | self.facts.load(others)}
            returned |= self.enter(node, function.node, arguments, NOTHING)
        return returned
