"""Evaluates calls of the module's own functions and classes, by summaries of the functions."""

# ruff: noqa: N802 — named after the nodes, as a visitor's methods are

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mixpert_py.passes.dataflow import effects
from mixpert_py.passes.dataflow.expressions import Evaluator
from mixpert_py.passes.dataflow.values import ANY, NOTHING, Activation, Objects, gain
from mixpert_py.passes.scope import FUNCTIONS, written_name

PROPERTIES = frozenset({"property", "cached_property"})
SPECIAL_METHODS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.MatMult: "matmul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.BitAnd: "and",
}
UNARY_METHODS: dict[type[ast.unaryop], str] = {
    ast.USub: "__neg__",
    ast.UAdd: "__pos__",
    ast.Invert: "__invert__",
}
METHOD_KINDS = frozenset({"staticmethod", "classmethod"})


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call.

    spread: starred arguments and the ones after them, which may be any parameter after
    `positional`.
    """

    positional: Sequence[Objects]
    keywords: Mapping[str, Objects]
    spread: Objects = NOTHING

    @property
    def all(self) -> Objects:
        return self.spread.union(*self.positional, *self.keywords.values())


class OwnCallEvaluator(Evaluator):
    """An evaluator that enters functions, methods, properties and operators of the module."""

    def classes(self, objects: Objects) -> Objects:
        return frozenset(o for o in objects if isinstance(o.node, ast.ClassDef) and not o.role)

    def own_instance(self) -> Objects:
        """The first parameter of the running method."""
        parameters = getattr(self.home.node, "args", None)
        if parameters is None or not (parameters.posonlyargs + parameters.args):
            return NOTHING
        first = (parameters.posonlyargs + parameters.args)[0]
        return self.state.variables.get((self.home, first.arg), NOTHING)

    def own_code(
        self, node: ast.AST, callees: Objects, receiver: Objects, arguments: Arguments
    ) -> Objects | None:
        """Call the callees that this module defines; None if there are none."""
        result: Objects | None = None
        for callee in callees:
            if isinstance(callee.node, FUNCTIONS) and not callee.role:
                bound = receiver - self.classes(receiver)
                by_class = bool(receiver) and not bound
                returned = self.enter(node, callee.node, None if by_class else bound, arguments)
            elif isinstance(callee.node, ast.ClassDef) and not callee.role:
                returned = self.construct(node, callee.node, arguments)
            else:
                continue
            result = (result or NOTHING) | returned
        for method, instances in self.methods(callees & self.heap.instances, "__call__").items():
            returned = self.enter(node, method, instances, arguments)
            result = (result or NOTHING) | returned
        return result

    def construct(self, node: ast.AST, definition: ast.ClassDef, arguments: Arguments) -> Objects:
        """Make an instance; without an `__init__`, arguments are the fields of a dataclass."""
        created = self.created(node, "instance")
        self.heap.instances.add(created)
        self.heap.class_of[created] = definition
        itself = frozenset({created})
        starts = [method for method in definition.body if _name(method) == "__init__"]
        if not starts and any(isinstance(base, ast.Name) for base in definition.bases):
            starts = list(self.program.methods.get("__init__", ()))  # type: ignore[arg-type]
        for start in starts:
            self.enter(node, start, itself, arguments)
        if not starts:
            family = self.program.families.get(definition, (definition,))
            parts = [part for one in reversed(family) for part in getattr(one, "body", ())]
            fields = [
                part.target.id
                for part in parts
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            ]
            given = {**dict(zip(fields, arguments.positional, strict=False)), **arguments.keywords}
            for name, objects in given.items():
                self.heap.set_attribute(itself, name, objects)
            for method in [part for part in parts if _name(part) == "__post_init__"]:
                self.enter(node, method, itself, Arguments([], {}))
        return itself

    def enter(
        self, call: ast.AST, function: ast.AST, bound: Objects | None, arguments: Arguments
    ) -> Objects:
        """Call a function: its parameters gain the arguments, the state its effects.

        bound: the instance that a method is called on; None if it is called on its class.
        """
        assert isinstance(function, FUNCTIONS)
        activation = (function, call if self.program.by_call else function)
        summary = self.heap.summary(activation)
        positional = list(arguments.positional)
        parameters = [*function.args.posonlyargs, *function.args.args]
        itself = self.itself(function, bound)
        if itself is not None:
            positional.insert(0, itself)
        self.heap.read |= {function, summary.exit}
        given: dict[str, Objects] = dict(self.heap.defaults.get(function, {}))
        for parameter, objects in zip(parameters, positional, strict=False):
            given[parameter.arg] = objects
        if arguments.spread:
            for parameter in parameters[len(positional) :]:
                given[parameter.arg] = arguments.spread
        named = {parameter.arg for parameter in (*parameters, *function.args.kwonlyargs)}
        extra = arguments.spread.union(*positional[len(parameters) :])
        rest = arguments.spread
        for name, objects in arguments.keywords.items():
            if name in named:
                given[name] = given.get(name, NOTHING) | objects
            else:
                rest |= objects
        if function.args.vararg:
            given[function.args.vararg.arg] = self.container(function.args.vararg, {ANY: extra})
        if function.args.kwarg:
            given[function.args.kwarg.arg] = self.container(function.args.kwarg, {ANY: rest})
        grown = False
        for name, objects in given.items():
            grown |= gain(summary.parameters, name, objects)
        self.heap.spend(30)
        visible = self.heap.visible(self.state.held, summary.given)
        if summary.entry.gain(visible) or grown:
            self.heap.changes.append(summary.entry)
        self.state.gain(summary.exit.held)
        return summary.returned

    def methods(self, owners: Objects, name: str) -> dict[ast.AST, Objects]:
        """The functions of this module that a method may be, each with its instances."""
        methods: dict[ast.AST, Objects] = {}
        for owner in owners:
            itself = frozenset({owner})
            for one in self.attribute(itself, name):
                if isinstance(one.node, FUNCTIONS) and not one.role:
                    methods[one.node] = methods.get(one.node, NOTHING) | itself
        return methods

    def itself(self, function: ast.AST, bound: Objects | None) -> Objects | None:
        """The first argument that a method's call adds: the instance, the class, or nothing."""
        if function not in self.program.methods.get(_name(function), ()):
            return None
        decorators = map(written_name, getattr(function, "decorator_list", []))
        kinds = METHOD_KINDS.intersection(decorators)
        if "classmethod" in kinds:
            around = self.program.scopes.opened_by[function].parent
            return None if around is None else frozenset({self.heap.object_at(around.node)})
        return None if kinds else bound

    def assign(self, target: ast.expr, objects: Objects) -> None:
        super().assign(target, objects)
        if not isinstance(target, ast.Attribute):
            return
        if self.classes(self.evaluate(target.value)):
            self.heap.store_class_attribute(target.attr, objects)
        for method in self.program.methods.get(target.attr, ()):
            if any(written_name(d) == "setter" for d in getattr(method, "decorator_list", ())):
                owners = self.evaluate(target.value)
                self.enter(target, method, owners, Arguments([objects], {}))

    def eval_Attribute(self, node: ast.Attribute) -> Objects:
        owners = self.evaluate(node.value)
        if node.attr in effects.SHAPE_ATTRIBUTES:
            return NOTHING
        found = self.attribute(owners, node.attr)
        for method in [obj.node for obj in found if isinstance(obj.node, FUNCTIONS)]:
            if any(written_name(d) in PROPERTIES for d in getattr(method, "decorator_list", ())):
                found |= self.enter(node, method, owners, Arguments([], {}))
        return found

    def eval_BinOp(self, node: ast.BinOp) -> Objects:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        created = self.new(node, self.sites(left) | self.sites(right))
        if lists := (left | right) & self.heap.containers:
            created |= self.container(node, {ANY: self.heap.load(lists)}, "list")
        return created | self.special_method(node, left, right)

    def enter_operator(self, node: ast.expr, operands: Mapping[ast.expr, Objects]) -> None:
        if isinstance(node, ast.BinOp):
            # What the method returns is this product's result. The side of a sum that is one site
            # with its product is no operand.
            left, right = (
                operands[side] if side in operands else self.evaluate(side)
                for side in (node.left, node.right)
            )
            self.special_method(node, left, right)

    def special_method(
        self, node: ast.BinOp | ast.AugAssign, left: Objects, right: Objects
    ) -> Objects:
        """The result of an operator's method, if a class of this module defines one."""
        name = SPECIAL_METHODS[type(node.op)]
        returned = self.call_method(node, left, f"__{name}__", right)
        returned |= self.call_method(node, right, f"__r{name}__", left)
        if isinstance(node, ast.AugAssign):
            returned |= self.call_method(node, left, f"__i{name}__", right)
        return returned

    def call_method(
        self, node: ast.AST, owners: Objects, name: str, *positional: Objects
    ) -> Objects:
        """Call a method of these objects that are instances of a class with this method."""
        returned = NOTHING
        for method, those in self.methods(owners & self.heap.instances, name).items():
            returned |= self.enter(node, method, those, Arguments(positional, {}))
        return returned

    def elements(self, node: ast.AST, owners: Objects) -> Objects:
        owners |= self.call_method(node, owners, "__iter__")
        for owner in owners:
            if owner.role.startswith("generator"):
                self.resume((owner.node, owner.context))
        return super().elements(node, owners) | self.call_method(node, owners, "__next__")

    def resume(self, activation: Activation) -> None:
        """Let a generator see changes since it was called, and make changes itself."""
        summary = self.heap.summary(activation)
        self.heap.read.add(summary.exit)
        if summary.entry.gain(self.heap.visible(self.state.held, summary.given)):
            self.heap.changes.append(summary.entry)
        self.state.gain(summary.exit.held)

    def change(self, owners: Objects, objects: Objects, index: ast.expr) -> None:
        super().change(owners, objects, index)
        if instances := owners & self.heap.instances:
            place = self.evaluate(index)
            self.call_method(index, instances, "__setitem__", place, objects)

    def item(self, node: ast.Subscript, owners: Objects, index: Objects) -> Objects:
        found = super().item(node, owners, index)
        return found | self.call_method(node, owners, "__getitem__", index)

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Objects:
        operand = self.evaluate(node.operand)
        created = self.new(node, self.sites(operand))
        name = UNARY_METHODS.get(type(node.op))
        return created | self.call_method(node, operand, name) if name else created


def _name(node: ast.AST) -> str:
    return str(getattr(node, "name", ""))
