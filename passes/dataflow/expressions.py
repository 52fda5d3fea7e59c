"""Evaluates expressions on abstract values: objects, and through them sites."""

# ruff: noqa: N802, N815 — named after the nodes, as a visitor's methods are

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.call_site import Product
from mixpert_py.passes.dataflow.values import (
    ANY,
    NOTHING,
    Heap,
    Key,
    Object,
    Objects,
    Sites,
    State,
    Variable,
    gain,
)
from mixpert_py.passes.scope import Scope

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Program:
    """The analysed module: its scopes, its operators, and its classes' methods by name."""

    scopes: Scopes
    operators: Mapping[ast.AST, Product]
    methods: Mapping[str, tuple[ast.AST, ...]]
    families: Mapping[ast.AST, tuple[ast.AST, ...]]  # a class and all its bases, where all are here
    heirs: Mapping[ast.AST, tuple[ast.AST, ...]]  # a class and all that inherit from it here
    variables: Mapping[ast.Name, Variable]  # that names stand for; none for a builtin's
    shared: frozenset[Variable]  # variables that a function outside their scope assigns
    captured: frozenset[Variable]  # these, and those that a function outside their scope reads
    imported: Mapping[str, Sites]  # a module as it is spelled here → sites that its functions reach
    by_call: bool = True  # whether each call of a function is followed separately
    by_turn: bool = True  # whether the turns of loops over lists that are written there are, too
    _parts: dict[ast.AST, list[ast.expr]] = field(default_factory=dict)

    def parts(self, node: ast.AST) -> list[ast.expr]:
        """The direct subexpressions of a node."""
        if node not in self._parts:
            nodes = ast.iter_child_nodes(node)
            self._parts[node] = [part for part in nodes if isinstance(part, ast.expr)]
        return self._parts[node]

    def reached(self, name: str) -> Sites:
        """The sites that a call of an imported function or class may reach, by its dotted name."""
        while name.strip("."):
            if name in self.imported:
                return self.imported[name]
            name = name.rpartition(".")[0]
        return frozenset()


@dataclass(eq=False)
class Evaluator:
    """Evaluates expressions, and assigns to targets, at one point of a function or of the module.

    home: the scope of the running function. state: the variables and objects at this point.
    context: the call that entered the function. turn: the turn of a loop whose turns are followed
    one by one; each creates different objects.
    """

    program: Program
    heap: Heap
    home: Scope
    state: State
    context: ast.AST | None = None
    turn: str = ""

    def __post_init__(self) -> None:
        # The owner of attributes of values that are not known at all.
        self.unknown_owner = self.heap.object_at(self.program.scopes.module.node)

    def sites(self, objects: Objects) -> Sites:
        return self.heap.sites(objects, self.state)

    def put(self, objects: Objects, sites: Sites) -> None:
        self.heap.put(objects, sites, self.state)

    def created(self, node: ast.AST, role: str = "") -> Object:
        """The object that a node creates here."""
        return self.heap.object_at(node, role + self.turn, self.context)

    def new(self, node: ast.AST, sites: Sites, role: str = "") -> Objects:
        """The object that a node creates; it now also holds the results of these sites."""
        created = frozenset({self.created(node, role)})
        self.put(created, sites)
        return created

    def container(self, node: ast.AST, elements: Mapping[Key, Objects], role: str = "") -> Objects:
        created = self.created(node, role)
        self.heap.containers.add(created)
        for key, objects in elements.items():
            self.heap.store([created], key, objects)
        return frozenset({created})

    def scope(self, node: ast.AST) -> Scope:
        return self.program.scopes.scope_of[node]

    def read(self, node: ast.Name) -> Objects:
        variable = self.program.variables.get(node)
        if variable is None:
            return NOTHING
        if variable in self.program.shared or variable[0].home is not self.home:
            self.heap.read.add(variable)
            return self.heap.variables.get(variable, NOTHING)
        return self.state.variables.get(variable, NOTHING)

    def assign_name(self, scope: Scope, name: str, objects: Objects) -> None:
        owner = scope.owner(name) or self.program.scopes.module
        self.state.variables[(owner, name)] = objects
        if (owner, name) in self.program.captured:
            self.heap.remember((owner, name), objects)

    def assign(self, target: ast.expr, objects: Objects) -> None:
        match target:
            case ast.Name(id=name):
                self.assign_name(self.scope(target), name, objects)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                starred = any(isinstance(part, ast.Starred) for part in targets)
                for index, part in enumerate(targets):
                    self.assign(part, self.heap.load(objects, ANY if starred else index))
            case ast.Starred(value=inner):
                self.assign(inner, self.container(target, {ANY: objects}))
            case ast.Attribute(value=owner, attr=name):
                owners = self.evaluate(owner) or {self.unknown_owner}
                self.heap.set_attribute(owners, name, objects)
            case ast.Subscript(value=owner, slice=index):
                self.change(self.evaluate(owner), objects, index)

    def change(self, owners: Objects, objects: Objects, index: ast.expr) -> None:
        """`owner[index] = value`: arrays take the numbers, containers the objects themselves."""
        sites = self.sites(objects) | self.sites(self.evaluate(index))
        containers = owners & self.heap.containers
        self.put(owners - containers, sites)
        self.heap.store(owners, constant_key(index), objects)

    def evaluate(self, node: ast.expr | None) -> Objects:
        if node is None:
            return NOTHING
        self.heap.work += 4
        product = self.program.operators.get(node)
        if product is not None:
            return self.multiply(node, product)
        method = getattr(self, f"eval_{type(node).__name__}", None)
        return method(node) if method else self.combine(node)

    def combine(self, node: ast.expr) -> Objects:
        """Arithmetic, comparisons and other expressions: a new object computed from every part."""
        sites: Sites = frozenset()
        for part in self.program.parts(node):
            sites |= self.sites(self.evaluate(part))
        return self.new(node, sites)

    def multiply(self, node: ast.expr, product: Product) -> Objects:
        """An operator: its result holds only its own site, so that edges are immediate."""
        parts = product.spelling.parts(node)
        out = NOTHING
        receiver = [] if parts.receiver is None else [parts.receiver]
        named = [keyword.value for keyword in parts.keywords]
        operands = {part: self.evaluate(part) for part in (*receiver, *parts.arguments, *named)}
        self.enter_operator(node, operands)
        for argument, objects in operands.items():
            if argument is parts.output:
                out |= objects
            else:
                self.heap.edges |= {(site, product.site.id) for site in self.sites(objects)}
        own = frozenset({product.site.id})
        self.put(out, own)
        return self.new(node, own) | out

    def enter_operator(self, node: ast.expr, operands: Mapping[ast.expr, Objects]) -> None:
        """Call the method of a product's operator, where the module may define one."""

    def eval_Constant(self, node: ast.Constant) -> Objects:
        return NOTHING

    def eval_Name(self, node: ast.Name) -> Objects:
        return self.read(node)

    def eval_NamedExpr(self, node: ast.NamedExpr) -> Objects:
        objects = self.evaluate(node.value)
        self.assign(node.target, objects)
        return objects

    def attribute(self, owners: Objects, name: str) -> Objects:
        """The objects of an attribute: stored in an instance, or a view of an array."""
        found: set[Object] = set()
        read = self.heap.read
        for owner in owners or {self.unknown_owner}:
            self.heap.spend(1)
            read.add(owner)
            attributes = self.heap.attributes.get(owner, {})
            found |= attributes.get(ANY, NOTHING)
            family = self.family(owner)
            stored = attributes.get(name)
            if stored is not None:
                found |= stored
            if family is not None:
                for definition in map(self.heap.object_at, family):
                    read.add(definition)
                    found |= self.heap.attributes.get(definition, {}).get(name, NOTHING)
            elif owner in self.heap.instances:
                read.add(name)
                found |= self.heap.class_attributes.get(name, NOTHING)
            elif owners and stored is None:
                found.add(owner)
        if not owners or any(self.family(owner) is None for owner in owners):
            found.update(map(self.heap.object_at, self.program.methods.get(name, ())))
        return frozenset(found)

    def family(self, owner: Object) -> tuple[ast.AST, ...] | None:
        """The classes from which an instance has its methods; None if they are not known."""
        definition = self.heap.class_of.get(owner)
        return None if definition is None else self.program.families.get(definition)

    def eval_Subscript(self, node: ast.Subscript) -> Objects:
        return self.item(node, self.evaluate(node.value), self.evaluate(node.slice))

    def item(self, node: ast.Subscript, owners: Objects, index: Objects) -> Objects:
        """Return the objects that may stand at an index of containers, or views of arrays."""
        by = self.sites(index)
        found = self.heap.load(owners, constant_key(node.slice))
        if isinstance(node.slice, ast.Slice):
            found |= owners
        # Which elements are taken depends on the index: a gather by a product's argmax holds it.
        return found | self.new(node, by) if by else found

    def elements(self, node: ast.AST, owners: Objects) -> Objects:
        """Return the objects that a loop over these may take, one after another."""
        return self.heap.load(owners)

    def eval_Slice(self, node: ast.Slice) -> Objects:
        return NOTHING.union(*(self.evaluate(n) for n in (node.lower, node.upper, node.step)))

    def eval_Starred(self, node: ast.Starred) -> Objects:
        return self.heap.load(self.evaluate(node.value))

    def eval_Tuple(self, node: ast.Tuple) -> Objects:
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return self.eval_List(node)
        return self.container(node, {i: self.evaluate(part) for i, part in enumerate(node.elts)})

    def eval_List(self, node: ast.List | ast.Set | ast.Tuple) -> Objects:
        return self.container(node, {ANY: NOTHING.union(*map(self.evaluate, node.elts))})

    eval_Set = eval_List

    def eval_Dict(self, node: ast.Dict) -> Objects:
        created = self.container(node, {})
        for key, value in zip(node.keys, node.values, strict=True):
            objects = self.evaluate(value)
            self.evaluate(key)
            if key is None:
                self.heap.store(created, ANY, self.heap.load(objects))
            else:
                self.heap.store(created, constant_key(key), objects)
        return created

    def eval_IfExp(self, node: ast.IfExp) -> Objects:
        self.evaluate(node.test)
        return self.evaluate(node.body) | self.evaluate(node.orelse)

    def eval_BoolOp(self, node: ast.BoolOp) -> Objects:
        return NOTHING.union(*map(self.evaluate, node.values))

    def eval_Lambda(self, node: ast.Lambda) -> Objects:
        self.defaults(node)
        return frozenset({self.heap.object_at(node)})

    def defaults(self, node: Function) -> None:
        """Record a function, whose parameters may have their defaults."""
        parameters = self.heap.defaults.setdefault(node, {})
        positional = [*node.args.posonlyargs, *node.args.args]
        last = positional[len(positional) - len(node.args.defaults) :]
        for parameter, default in (
            *zip(last, node.args.defaults, strict=True),
            *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
        ):
            if gain(parameters, parameter.arg, self.evaluate(default)):
                self.heap.changes.append(node)

    def eval_Await(self, node: ast.Await) -> Objects:
        return self.evaluate(node.value)

    def eval_Yield(self, node: ast.Yield) -> Objects:
        """A value that a generator yields is an element of the object that calling it returns."""
        self.heap.store(self.generator(), ANY, self.evaluate(node.value))
        return NOTHING

    def eval_YieldFrom(self, node: ast.YieldFrom) -> Objects:
        self.heap.store(self.generator(), ANY, self.elements(node, self.evaluate(node.value)))
        return NOTHING

    def generator(self) -> Objects:
        created = self.container(self.home.node, {}, "generator")
        self.returns(created)
        return created

    def returns(self, objects: Objects) -> None:
        """Add to the possible results of the running function."""
        summary = self.heap.summaries[(self.home.node, self.context)]
        if not objects <= summary.returned:
            summary.returned |= objects
            self.heap.changes.append(summary.exit)

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Objects:
        created = self.container(node, {})
        # Twice, for a value that a walrus carries from one element to the next.
        for _ in range(2):
            for generator in node.generators:
                iterated = self.evaluate(generator.iter)
                self.assign(generator.target, self.elements(generator.iter, iterated))
                for test in generator.ifs:
                    self.evaluate(test)
            if isinstance(node, ast.DictComp):
                self.evaluate(node.key)
                self.heap.store(created, ANY, self.evaluate(node.value))
            else:
                self.heap.store(created, ANY, self.evaluate(node.elt))
        return created

    eval_ListComp = eval_SetComp = eval_GeneratorExp = eval_DictComp = comprehension


def constant_key(index: ast.expr) -> Key:
    """The place that a constant index names; None for other indices."""
    if isinstance(index, ast.Constant) and isinstance(index.value, str | bytes | int):
        return index.value
    return ANY
