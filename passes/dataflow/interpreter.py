"""Executes statements on abstract values: order, joining branches, loops to a fixpoint, calls.

Code of the module itself is entered; other code has known effects. A call of a function outside the
module may return anything that its arguments and receiver hold. NumPy's and CuPy's functions change
nothing but `out`. Any other call whose result is discarded was made for its effect, and may have
changed every argument by every other.
"""

# ruff: noqa: N802, N815 — named after the nodes, as a visitor's methods are

import ast
import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mixpert_py.passes.dataflow import facts as effects
from mixpert_py.passes.dataflow.facts import (
    ANY,
    NOTHING,
    FlowFacts,
    Key,
    Object,
    Objects,
    SiteIds,
    State,
    Variable,
)
from mixpert_py.passes.finder import FoundProduct
from mixpert_py.passes.scopes import ARRAY_MODULES, FUNCTIONS, Scope, written_name

BUILTINS = frozenset(dir(builtins))
ARRAYS = tuple(f"{module}." for module in ARRAY_MODULES)
# The arguments of a call by position or keyword. Those at ANY are starred, or follow starred ones.
CallArguments = Mapping[Key, Objects]


def joined(one: State | None, other: State | None) -> State | None:
    """A state with every definition of both states; None is a point that no run gets to."""
    if one is None or other is None:
        return other if one is None else one
    both = dict(one)
    for variable, objects in other.items():
        both[variable] = both.get(variable, NOTHING) | objects
    return both


@dataclass(eq=False)
class Interpreter:
    """Runs the body of the module or of one function, to a point of it.

    home: the scope of the running function. context: the call that entered the function. state: the
    variables of this function at this point; None where no run gets to this point. raised: for each
    `try` around this point, the variables at any point of its body. discarded: the call whose
    result the running statement throws away. jumps: for each loop around this point, the state at
    its `break` and `continue` statements.
    """

    facts: FlowFacts
    home: Scope
    context: ast.AST | None = None
    state: State | None = field(default_factory=dict)
    raised: list[State] = field(default_factory=list)
    discarded: ast.expr | None = None
    jumps: list[State | None] = field(default_factory=list)

    def scope(self, node: ast.AST) -> Scope:
        return self.facts.scopes.scope_of[node]

    def evaluate(self, node: ast.expr | None) -> Objects:
        if node is None:
            return NOTHING
        self.facts.spend(4)
        product = self.facts.operators.get(node)
        if product is not None:
            return self.multiply(node, product)
        result: Objects = getattr(self, f"eval_{type(node).__name__}", self.combine)(node)
        return result

    def either(self, node: ast.AST) -> Objects:
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return NOTHING.union(*map(self.evaluate, parts))

    eval_Constant = eval_IfExp = eval_BoolOp = eval_Await = eval_Slice = either

    def combine(self, node: ast.AST) -> Objects:
        """A new object that is computed from every part of an expression."""
        return self.new(node, self.facts.sites(self.either(node)))

    def multiply(self, node: ast.expr, product: FoundProduct) -> Objects:
        """A product. Its result holds only its own site, so edges are between neighbours."""
        parts = product.spelling.parts(node)
        own, out = frozenset({product.site.id}), NOTHING
        named = [keyword.value for keyword in parts.keywords]
        for operand in (parts.receiver, *parts.arguments, *named):
            objects = self.evaluate(operand)
            if operand is parts.output:
                out |= objects
            else:
                self.facts.feed(self.facts.sites(objects), product.site.id)
        self.facts.put(out, own)
        return self.new(node, own) | out

    def eval_Name(self, node: ast.Name) -> Objects:
        owner = self.scope(node).owner(node.id)
        return NOTHING if owner is None else self.variable((owner, node.id))

    def variable(self, variable: Variable) -> Objects:
        """The objects of a variable; those of any time, if other functions may assign it."""
        is_own = variable[0].home is self.home and variable not in self.facts.shared
        state = self.state if is_own and self.state is not None else self.facts.variables
        return state.get(variable, NOTHING)

    def eval_NamedExpr(self, node: ast.NamedExpr) -> Objects:
        objects = self.evaluate(node.value)
        self.assign(node.target, objects)
        return objects

    def eval_Call(self, node: ast.Call) -> Objects:
        function, word, receiver = node.func, written_name(node.func), NOTHING
        if isinstance(function, ast.Attribute):
            receiver = self.evaluate(function.value)
            callees = self.facts.attribute(receiver, word)
        else:
            callees = self.evaluate(function)
        arguments = self.arguments(node)
        if names := self.scope(node).meanings(function):
            return self.library(node, min(names), NOTHING, arguments)
        if isinstance(function, ast.Name) and self.scope(node).owner(word) is None:
            if word == "super":  # methods of base classes are found beside those of the class
                method = self.home.node
                first = method.args.args[:1] if isinstance(method, FUNCTIONS) else []
                return NOTHING.union(*(self.variable((self.home, one.arg)) for one in first))
            if word in BUILTINS:
                return self.builtin(node, word, arguments)
        result = self.own_code(node, callees, receiver, arguments)
        known = (one.is_class or one in self.facts.class_of for one in receiver)
        if result is not None and all(known):
            return result
        name = f"?.{word}" if isinstance(function, ast.Attribute) else "unknown"
        return self.library(node, name, receiver, arguments).union(result or ())

    def arguments(self, node: ast.Call) -> CallArguments:
        given: dict[Key, Objects] = {}
        for number, argument in enumerate(node.args):
            # What follows a starred argument has no place that is known, either.
            place = ANY if ANY in given or isinstance(argument, ast.Starred) else number
            given[place] = given.get(place, NOTHING) | self.evaluate(argument)
        for keyword in node.keywords:
            objects = self.evaluate(keyword.value)
            if keyword.arg is None:
                given[ANY] = given.get(ANY, NOTHING) | self.facts.load(objects)
            else:
                given[keyword.arg] = objects
        return given

    def eval_BinOp(self, node: ast.BinOp) -> Objects:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        created = self.new(node, self.facts.sites(left | right))
        if lists := (left | right) & self.facts.containers:  # a sum of lists has their elements
            created |= self.container(node, {ANY: self.facts.load(lists)})
        return created

    def eval_Attribute(self, node: ast.Attribute) -> Objects:
        owners = self.evaluate(node.value)
        if node.attr in effects.SHAPE_ATTRIBUTES:
            return NOTHING
        found = self.facts.attribute(owners, node.attr)
        for method in found:
            decorators = getattr(method.node, "decorator_list", ())
            if method.is_function and any(written_name(x).endswith("property") for x in decorators):
                found |= self.enter(node, method.node, {}, owners)
        return found

    def eval_Subscript(self, node: ast.Subscript) -> Objects:
        """Return what may stand at an index of containers, or views of arrays."""
        owners, index = self.evaluate(node.value), self.evaluate(node.slice)
        found = self.facts.load(owners, _constant(node.slice))
        if isinstance(node.slice, ast.Slice):
            found |= owners
        if sites := self.facts.sites(index):  # a gather by a product's argmax depends on it
            found |= self.new(node, sites)
        return found

    def eval_Starred(self, node: ast.Starred) -> Objects:
        return self.facts.load(self.evaluate(node.value))

    def eval_List(self, node: ast.List | ast.Set | ast.Tuple) -> Objects:
        parts = [self.evaluate(part) for part in node.elts]
        if isinstance(node, ast.Tuple) and not any(isinstance(x, ast.Starred) for x in node.elts):
            return self.container(node, dict(enumerate(parts)))
        return self.container(node, {ANY: NOTHING.union(*parts)})

    eval_Set = eval_Tuple = eval_List

    def eval_Dict(self, node: ast.Dict) -> Objects:
        created = self.container(node, {})
        for key, value in zip(node.keys, node.values, strict=True):
            self.evaluate(key)
            objects = self.evaluate(value)
            if key is None:
                self.facts.store(created, ANY, self.facts.load(objects))
            else:
                self.facts.store(created, _constant(key), objects)
        return created

    def eval_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Objects:
        for generator in node.generators:
            self.assign(generator.target, self.facts.load(self.evaluate(generator.iter)))
            for test in generator.ifs:
                self.evaluate(test)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        *_, objects = map(self.evaluate, parts)
        return self.container(node, {ANY: objects})

    eval_SetComp = eval_GeneratorExp = eval_DictComp = eval_ListComp

    def eval_Yield(self, node: ast.Yield | ast.YieldFrom) -> Objects:
        """A value that a generator yields is an element of the object that calling it returns."""
        objects = self.evaluate(node.value)
        if isinstance(node, ast.YieldFrom):
            objects = self.facts.load(objects)
        self.returns(self.container(self.home.node, {ANY: objects}, "generator"))
        return NOTHING

    eval_YieldFrom = eval_Yield

    def returns(self, objects: Objects) -> None:
        if self.context is not None:
            self.facts.gain(self.facts.returned, (self.home.node, self.context), objects)

    def eval_Lambda(self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> Objects:
        """A function, whose parameters may have their defaults."""
        known = self.facts.defaults.setdefault(node, {})
        positional = [*node.args.posonlyargs, *node.args.args]
        last = positional[len(positional) - len(node.args.defaults) :]
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        for parameter, default in zip([*last, *node.args.kwonlyargs], defaults, strict=True):
            self.facts.gain(known, parameter.arg, self.evaluate(default))
        return frozenset({self.facts.object_at(node)})

    def assign_name(self, scope: Scope, name: str, objects: Objects) -> None:
        variable = (scope.owner(name) or self.facts.scopes.module, name)
        if self.state is not None:
            self.state[variable] = objects
        for state in self.raised:
            state[variable] = state.get(variable, NOTHING) | objects
        self.facts.gain(self.facts.variables, variable, objects)

    def assign(self, target: ast.expr, objects: Objects) -> None:
        match target:
            case ast.Name(id=name):
                self.assign_name(self.scope(target), name, objects)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                has_star = any(isinstance(part, ast.Starred) for part in targets)
                for index, part in enumerate(targets):
                    self.assign(part, self.facts.load(objects, ANY if has_star else index))
            case ast.Starred(value=inner):
                self.assign(inner, self.container(target, {ANY: objects}))
            case ast.Attribute(value=owner, attr=name):
                self.facts.store(self.evaluate(owner) or {self.facts.unknown}, (name,), objects)
            case ast.Subscript(value=owner, slice=index):
                owners, place = self.evaluate(owner), self.evaluate(index)
                # Arrays take the numbers, containers the objects themselves. What a list has at a
                # constant index may move to another index.
                self.facts.put(owners - self.facts.containers, self.facts.sites(objects | place))
                key = _constant(index)
                self.facts.store(owners, key if isinstance(key, str) else ANY, objects)

    def block(self, body: Sequence[ast.stmt], start: State | None = None) -> State | None:
        """Run statements, from the state `start` if it is given; return the state at their end."""
        if start is not None:
            self.state = dict(start)
        for statement in body:
            if self.state is None:
                break
            self.facts.spend(len(self.state) // 8)
            method = getattr(self, f"exec_{type(statement).__name__}", self.combine)
            method(statement)
        return self.state

    def exec_Expr(self, node: ast.Expr) -> None:
        self.discarded = node.value
        self.evaluate(node.value)
        self.discarded = None

    def exec_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        objects = self.evaluate(node.value)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets if node.value else ():
            self.assign(target, objects)

    exec_AnnAssign = exec_Assign

    def exec_AugAssign(self, node: ast.AugAssign) -> None:
        """Change an array in place, which every alias sees; create an object for a number."""
        value, before = self.evaluate(node.value), self.evaluate(node.target)
        if product := self.facts.operators.get(node):
            self.facts.feed(self.facts.sites(value | before), product.site.id)
            value = self.new(node, frozenset({product.site.id}))
        lists = before & self.facts.containers
        self.facts.put(before - lists, self.facts.sites(value))
        self.facts.store(lists, ANY, self.facts.load(value))
        self.assign(node.target, before | self.new(node, self.facts.sites(value | before)))

    def exec_If(self, node: ast.If) -> None:
        self.evaluate(node.test)
        before = dict(self.state or {})
        self.state = joined(self.block(node.body, before), self.block(node.orelse, before))

    def exec_Match(self, node: ast.Match) -> None:
        """Let every name in a pattern be the subject or anything in it."""
        parts = self.facts.reach(self.evaluate(node.subject))
        before = after = self.state
        for case in node.cases:
            self.state = dict(before or {})
            for part in ast.walk(case.pattern):
                name = getattr(part, "rest", None) or getattr(part, "name", None)
                if name is not None:
                    self.assign_name(self.scope(case.pattern), name, parts)
            self.evaluate(case.guard)
            after = joined(after, self.block(case.body))
        self.state = after

    def exec_Try(self, node: ast.Try) -> None:
        self.raised.append(dict(self.state or {}))
        after = self.block([*node.body, *node.orelse])
        for handler in node.handlers:
            after = joined(after, self.block(handler.body, self.raised[-1]))
        raised = self.raised.pop()
        self.state = after
        if node.finalbody:
            self.block(node.finalbody, joined(after, raised))

    exec_TryStar = exec_Try

    def exec_For(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """Run a loop until no turn adds a definition."""
        iterated = NOTHING if isinstance(node, ast.While) else self.evaluate(node.iter)
        top, after = None, self.state
        while top != after:
            top, self.state = after, dict(after or {})
            if isinstance(node, ast.While):
                self.evaluate(node.test)
                top = joined(top, self.state)
            else:
                self.assign(node.target, self.facts.load(iterated))
            self.jumps.append(None)
            end = self.block(node.body)
            jumped = self.jumps.pop()
            after = joined(top, joined(jumped, end))
        self.state = joined(self.block(node.orelse, after), jumped)

    exec_AsyncFor = exec_While = exec_For

    def exec_Break(self, node: ast.Break | ast.Continue) -> None:
        self.jumps[-1] = joined(self.jumps[-1], self.state)
        self.state = None

    exec_Continue = exec_Break

    def exec_Return(self, node: ast.Return) -> None:
        self.returns(self.evaluate(node.value))
        self.state = None

    def exec_Raise(self, node: ast.Raise) -> None:
        self.evaluate(node.exc)
        self.state = None

    def exec_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            manager = self.evaluate(item.context_expr)
            if item.optional_vars:
                self.assign(item.optional_vars, manager)
        self.block(node.body)

    exec_AsyncWith = exec_With

    def exec_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.define(node, self.eval_Lambda(node))

    exec_AsyncFunctionDef = exec_FunctionDef

    def exec_ClassDef(self, node: ast.ClassDef) -> None:
        itself = self.facts.object_at(node)
        bases = NOTHING.union(*map(self.evaluate, node.bases))
        self.facts.gain(self.facts.bases, itself, {one for one in bases if one.is_class})
        self.block(node.body)
        scope = self.facts.scopes.opened_by[node]
        for name in scope.bindings:
            self.facts.store([itself], (name,), (self.state or {}).get((scope, name), NOTHING))
        self.define(node, frozenset({itself}))

    def define(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, created: Objects
    ) -> None:
        """Assign the name of a function or class, which its decorators may replace."""
        for decorator in node.decorator_list:
            callees = self.evaluate(decorator)
            created |= self.own_code(node, callees, NOTHING, {0: created}) or NOTHING
        self.assign_name(self.scope(node), node.name, created)

    def new(self, node: ast.AST, sites: SiteIds) -> Objects:
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
        self, node: ast.AST, callees: Objects, receiver: Objects, arguments: CallArguments
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

    def construct(self, node: ast.AST, definition: Object, arguments: CallArguments) -> Objects:
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
        self, call: ast.AST, function: ast.AST, arguments: CallArguments, receiver: Objects
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
        self, node: ast.AST, owners: Iterable[Object], name: str, arguments: CallArguments
    ) -> Objects:
        """Call a method of those objects that are instances of a class with this method."""
        returned = NOTHING
        for owner in self.facts.class_of.keys() & owners:
            itself = frozenset({owner})
            for method in self.facts.attribute(itself, name):
                if method.is_function:
                    returned |= self.enter(node, method.node, arguments, itself)
        return returned

    def builtin(self, node: ast.AST, name: str, arguments: CallArguments) -> Objects:
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

    def library(
        self, node: ast.AST, name: str, receiver: Objects, arguments: CallArguments
    ) -> Objects:
        """Call a function of other code, by its dotted name; a method's begins with `?.`."""
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
        """Call functions among a library's arguments with its other arguments, or with results."""
        functions = frozenset(one for one in values if one.is_function)
        returned = NOTHING
        for function in functions:
            others = (values - functions) | self.facts.returned.get((function.node, node), NOTHING)
            arguments: CallArguments = {ANY: others | self.facts.load(others)}
            returned |= self.enter(node, function.node, arguments, NOTHING)
        return returned


def _constant(index: ast.expr) -> Key:
    """The place that a constant index names; ANY for other indices."""
    if isinstance(index, ast.Constant) and isinstance(index.value, str | bytes | int):
        return index.value
    return ANY
