"""Evaluates calls: the module's own code is entered, other code has known effects.

A call of a function outside the module may return anything that its arguments and receiver hold.
NumPy's and CuPy's functions change nothing but `out`. Any other call whose result is discarded was
made for its effect, and may have changed every argument by every other.
"""

# ruff: noqa: N802 — named after the nodes, as a visitor's methods are

import ast
import builtins
from collections.abc import Sequence

from mixpert_py.passes.dataflow import effects
from mixpert_py.passes.dataflow.own_calls import Arguments, OwnCallEvaluator
from mixpert_py.passes.dataflow.values import ANY, NOTHING, Key, Objects, Sites
from mixpert_py.passes.scope import ARRAY_MODULES, FUNCTIONS, written_name

NO_SITES: Sites = frozenset()
BUILTINS = frozenset(dir(builtins))


class CallEvaluator(OwnCallEvaluator):
    """An evaluator that also evaluates calls, of the module's own code and of other code."""

    discarded: ast.expr | None = None  # the call whose result the running statement throws away

    def eval_Call(self, node: ast.Call) -> Objects:
        scope = self.scope(node)
        receiver = NOTHING
        if isinstance(node.func, ast.Attribute):
            receiver = self.evaluate(node.func.value)
            callees = self.attribute(receiver, node.func.attr)
        else:
            callees = self.evaluate(node.func)
        arguments = self.arguments(node)
        names = scope.meanings(node.func)
        if names:
            reached = self.program.reached(min(names)) if self.program.imported else NO_SITES
            return self.library(node, _parts(min(names)), NOTHING, arguments, reached)
        word = node.func.id if isinstance(node.func, ast.Name) else ""
        if word in BUILTINS and scope.owner(word) is None:
            return self.builtin(node, word, arguments)
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            receiver = self.own_instance()
        result = self.own_code(node, callees, receiver, arguments)
        if result is not None and receiver <= self.heap.instances | self.classes(receiver):
            return result
        method = [node.func.attr] if isinstance(node.func, ast.Attribute) else ["", ""]
        return (result or NOTHING) | self.library(node, method, receiver, arguments)

    def arguments(self, node: ast.Call) -> Arguments:
        spread = NOTHING
        positional = []
        starred = False
        for argument in node.args:
            starred = starred or isinstance(argument, ast.Starred)
            if starred:  # what follows it has no place that is known, either
                spread |= self.evaluate(argument)
            else:
                positional.append(self.evaluate(argument))
        keywords = {}
        for keyword in node.keywords:
            objects = self.evaluate(keyword.value)
            if keyword.arg is None:
                spread |= self.heap.load(objects)
            else:
                keywords[keyword.arg] = objects
        return Arguments(positional, keywords, spread)

    def builtin(self, node: ast.Call, name: str, arguments: Arguments) -> Objects:
        if name in effects.BUILTINS_WITHOUT_ARRAYS:
            return NOTHING
        everything = arguments.all
        if name == "enumerate" and arguments.positional:
            item = self.container(node, {1: self.elements(node, arguments.positional[0])}, "item")
            return self.container(node, {ANY: item})
        if name == "zip" and not arguments.spread:
            parts: dict[Key, Objects] = {
                i: self.elements(node, part) for i, part in enumerate(arguments.positional)
            }
            return self.container(node, {ANY: self.container(node, parts, "item")})
        elements = self.elements(node, everything) | self.callbacks(node, everything)
        if name == "dict":
            created = self.container(node, {ANY: self.heap.load(arguments.spread)})
            for key, objects in arguments.keywords.items():
                self.heap.store(created, key, objects)
            for objects in arguments.positional:
                self.heap.store(created, ANY, self.heap.load(objects))
            return created
        if name in effects.CONTAINER_BUILTINS:
            return self.container(node, {ANY: elements})
        if name in effects.ELEMENT_BUILTINS:
            return elements | everything
        if name == "setattr" and len(arguments.positional) == 3:
            owners, _, objects = arguments.positional
            self.heap.set_attribute(owners, ANY, objects)
            return NOTHING
        if name == "getattr" and len(arguments.positional) >= 2 and not arguments.spread:
            owners, _, *default = arguments.positional
            return self.stored(owners, node.args[1]).union(*default)
        return self.new(node, self.sites(everything))

    def stored(self, owners: Objects, name: ast.expr) -> Objects:
        """The objects of an attribute; if its name is computed, all objects that can be reached."""
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return self.attribute(owners, name.value)
        return self.heap.reach(owners) | owners

    def library(
        self,
        node: ast.Call,
        name: Sequence[str],
        receiver: Objects,
        arguments: Arguments,
        reached: Sites = NO_SITES,
    ) -> Objects:
        """Call a function or method of other code.

        name: the parts of the function's dotted name, or the method's name alone. reached: the
        sites of other files that the function may reach.
        """
        module, function = (name[0] if len(name) > 1 else None), name[-1]
        values = arguments.all
        everything = values | receiver
        out = arguments.keywords.get("out", NOTHING)
        sites = self.sites(everything)
        if reached:
            self.heap.edges |= {(site, other) for site in sites for other in reached}
            sites |= reached
        self.put(out, sites)
        returned = self.callbacks(node, values)
        if function in effects.FEEDING_BACK:
            returned |= self.callbacks(node, values | returned)
        sites |= self.sites(returned)
        if module in ARRAY_MODULES and function in effects.SHAPE_FUNCTIONS:
            return self.new(node, frozenset())
        self.effect(node, module, function, receiver, arguments)
        functions = frozenset(v for v in values if isinstance(v.node, FUNCTIONS))
        result = self.new(node, sites) | out | returned | functions
        if module in ARRAY_MODULES:
            return result | values if function in effects.VIEW_FUNCTIONS else result
        if module is None:
            containers = receiver & self.heap.containers
            if function not in effects.FRESH_METHODS:
                result |= receiver | self.heap.load(containers)
            elif containers:
                result |= self.container(node, {ANY: self.heap.load(containers)}, "list")
            return result
        return result | values

    def effect(
        self,
        node: ast.Call,
        module: str | None,
        function: str,
        receiver: Objects,
        arguments: Arguments,
    ) -> None:
        """Let a call of unknown code change its receiver and its arguments."""
        values = arguments.all
        containers = receiver & self.heap.containers
        if containers:
            self.heap.store(containers, ANY, values | self.heap.load(values))
        elif function in effects.APPENDING:  # what others have made may be a container as well
            self.heap.store(receiver - self.heap.instances, ANY, values)
        if function in effects.MOVING:
            self.heap.move(containers)
        if node is not self.discarded or module in effects.OUTPUT_MODULES:
            return
        changed = receiver | values
        if module in ARRAY_MODULES:
            if function.startswith("assert_"):  # of numpy.testing
                return
            changed = NOTHING.union(*arguments.positional[:1])
            if function not in effects.CHANGING_THE_FIRST:
                changed = changed.union(*arguments.positional[1:][-1:])
        sites = self.sites(receiver | values)
        self.put(self.heap.reach(changed - containers), sites)

    def callbacks(self, node: ast.AST, values: Objects) -> Objects:
        """Call functions among the arguments of unknown code, with any of the other arguments."""
        functions = [v.node for v in values if isinstance(v.node, FUNCTIONS) and not v.role]
        if not functions:
            return NOTHING
        others = frozenset(value for value in values if not isinstance(value.node, FUNCTIONS))
        arguments = Arguments([], {}, others | self.heap.load(others))
        return NOTHING.union(
            *(self.enter(node, function, NOTHING, arguments) for function in functions)
        )


def _parts(name: str) -> list[str]:
    """The parts of a dotted name; an array module's own name is one part."""
    module = next((module for module in ARRAY_MODULES if name.startswith(f"{module}.")), None)
    return name.split(".") if module is None else [module, *name[len(module) + 1 :].split(".")]


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and written_name(node.func) == "super"
