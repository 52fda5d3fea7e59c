"""The dependency graph: which products' results can reach which products' operands.

It is computed from reaching definitions, by abstract interpretation of the module: a value is the
set of objects that it may be, and an object holds the sites whose results it may contain.
Statements run in order, branches join, and loops and the module's functions run to a fixpoint, each
call of a function separately. A loop over a literal list runs turn by turn. Control dependence
(`if` on a result) is not an edge. If this takes too long, such loops run like others; then all
calls of a function are analysed together; then every product may reach every other.
"""

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mixpert_py.passes.bindings import Scopes
from mixpert_py.passes.call_site import Product
from mixpert_py.passes.dataflow.expressions import Program
from mixpert_py.passes.dataflow.statements import Executor
from mixpert_py.passes.dataflow.uses import NOT_KNOWN, Uses, uses
from mixpert_py.passes.dataflow.values import (
    NOTHING,
    Activation,
    Heap,
    Sites,
    State,
    TooComplexError,
    Variable,
    gain,
    work_for,
)
from mixpert_py.passes.scope import FUNCTIONS

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependency graph of the operators of a module.

    edges: pairs (P, S): a value computed from P's result can reach an operand of S; a loop may make
    S its own predecessor. sinks: sites without a successor outside their own cycle, in source
    order. names: module-level variables that may hold a product's value when the script ends,
    sorted. uses: the uses of these variables. ids: all sites, those of other modules last.
    """

    edges: frozenset[tuple[str, str]]
    sinks: tuple[str, ...]
    names: tuple[str, ...]
    uses: Uses = NOT_KNOWN
    ids: tuple[str, ...] = ()


def graph(
    tree: ast.Module,
    scopes: Scopes,
    products: Iterable[Product],
    imported: Mapping[str, Sites],
) -> Dependencies:
    """The graph of the rewritten products; all others are ordinary expressions.

    imported: maps a module, as the tree spells it, to the sites that calls of its functions may
    reach.
    """
    operators = {product.node: product for product in products}
    if not operators and not imported:
        return Dependencies(frozenset(), (), ())
    ids = [product.site.id for product in operators.values()]
    others = sorted(frozenset().union(*imported.values()) - set(ids))
    variables, shared = _variables_of_names(scopes), _shared(scopes)
    program = Program(
        scopes,
        operators,
        _methods(scopes),
        *_families(scopes),
        variables,
        shared,
        shared | _captured(scopes, variables),
        imported,
    )
    budget = work_for(len(ids + others))
    has_turns = True
    for by_call, by_turn in ((True, True), (True, False), (False, False)):
        if by_call and not by_turn and not has_turns:
            continue  # it would be the same again
        heap = Heap(scopes.module.node, budget)
        program = replace(program, by_call=by_call, by_turn=by_turn)
        try:
            held = _holding(program, heap, _fixpoint(tree, program, heap))
        except TooComplexError:
            has_turns = heap.has_turns
            continue
        edges = frozenset(heap.edges)
        every_id = (*ids, *others)
        sinks = _sinks(every_id, edges)
        return Dependencies(edges, sinks, tuple(held), uses(tree, scopes, held), every_id)
    ids += others
    every = frozenset((one, other) for one in ids for other in ids)
    names = _variables(tree, scopes)
    found = uses(tree, scopes, dict.fromkeys(names, frozenset(ids)))
    return Dependencies(every, tuple(ids), names, found, tuple(ids))


def joined(flows: Sequence[Dependencies]) -> Dependencies:
    """The graph of several modules, with the variables of the first one."""
    edges = frozenset[tuple[str, str]]().union(*(flow.edges for flow in flows))
    ids = list(dict.fromkeys(site for flow in flows for site in flow.ids))
    first = flows[0] if flows else Dependencies(frozenset(), (), ())
    return Dependencies(edges, _sinks(ids, edges), first.names, first.uses, tuple(ids))


def _fixpoint(tree: ast.Module, program: Program, heap: Heap) -> State:
    """Run the module and every function until nothing is added; return the state at the module's
    end.

    First only functions that the module calls run. Then the others run, as if called from outside
    after everything else, with instances of their class and arguments without a product.
    """
    end = State()
    runs: dict[Activation | None, tuple[int, set[Hashable]]] = {}

    def refresh(activation: Activation | None) -> None:
        """Run a function, or the module, unless it has run since everything that it reads last
        changed.
        """
        if activation in runs:
            begun, read = runs[activation]
            if read.isdisjoint(heap.changes[begun:]):
                return
        begun, heap.read = len(heap.changes), set()
        if activation is None:
            module = Executor(program, heap, program.scopes.module, State())
            module.block(tree.body)
            if end.join(module.state):
                heap.changes.append(end)
        else:
            _run_function(activation, program, heap)
        runs[activation] = begun, heap.read

    outside = False
    while True:
        before = len(heap.changes)
        if outside:
            _call_from_outside(program, heap, end)
        for activation in reversed(list(heap.summaries)):  # what others call is found after them
            refresh(activation)
        refresh(None)
        if len(heap.changes) == before:
            if outside:
                return end
            outside = True


def _run_function(activation: Activation, program: Program, heap: Heap) -> None:
    node, context = activation
    summary = heap.summaries[activation]
    heap.read.add(summary.entry)
    home = program.scopes.opened_by[node]
    executor = Executor(program, heap, home, State(held=dict(summary.entry.held)), context)
    for name, objects in summary.parameters.items():
        executor.assign_name(home, name, objects)
    if isinstance(node, ast.Lambda):
        executor.returns(executor.evaluate(node.body))
    else:
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        executor.block(node.body)
    if executor.live:
        executor.leave()


def _call_from_outside(program: Program, heap: Heap, end: State) -> None:
    """Enter each function that the module does not enter; methods of a class share an instance.

    A method that other such methods call stays callable from outside: values that were stored in
    the instance before may reach it, in any order of calls. The instance may be of a class that
    inherits.
    """
    entered = {node for node, context in heap.summaries if context is not None}
    for node, defaults in heap.defaults.items():
        is_new = (node, None) not in heap.summaries
        if is_new and node in entered and getattr(node, "name", "") != "__init__":
            continue
        assert isinstance(node, FUNCTIONS)
        summary = heap.summary((node, None))
        if end.gain(summary.exit.held):
            heap.changes.append(end)
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given = {
            name.arg: defaults.get(name.arg, NOTHING) | {heap.object_at(name)}
            for name in parameters
        }
        around = program.scopes.opened_by[node].parent
        if parameters and around and isinstance(around.node, ast.ClassDef):
            itself = frozenset(heap.object_at(one, "self") for one in program.heirs[around.node])
            heap.instances |= itself
            given[parameters[0].arg] = itself
        grown = [gain(summary.parameters, name, objects) for name, objects in given.items()]
        if summary.entry.gain(heap.visible(end.held, summary.given)) or any(grown):
            heap.changes.append(summary.entry)


def _methods(scopes: Scopes) -> dict[str, tuple[ast.AST, ...]]:
    """Functions defined in class bodies, by name: calls find them in any class."""
    methods: dict[str, list[ast.AST]] = defaultdict(list)
    for node in scopes.opened_by:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    methods[part.name].append(part)
    return {name: tuple(functions) for name, functions in methods.items()}


Classes = dict[ast.AST, tuple[ast.AST, ...]]


def _families(scopes: Scopes) -> tuple[Classes, Classes]:
    """Each class of the module with all its bases, if these are classes of the module as well, and
    with all classes of the module that inherit from it.
    """
    classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for node in scopes.opened_by:
        if isinstance(node, ast.ClassDef):
            classes[node.name].append(node)
    families: Classes = {}
    heirs: dict[ast.AST, list[ast.AST]] = defaultdict(list)
    for node in (one for several in classes.values() for one in several):
        family, pending, whole = dict.fromkeys([node]), [node], True
        while pending:
            for base in pending.pop().bases:
                found = classes.get(base.id, []) if isinstance(base, ast.Name) else []
                whole = whole and bool(found)
                pending += [one for one in found if one not in family]
                family.update(dict.fromkeys(found))
        if whole:
            families[node] = tuple(family)
        for member in family:
            heirs[member].append(node)
    return families, {one: tuple(those) for one, those in heirs.items()}


def _shared(scopes: Scopes) -> frozenset[Variable]:
    """Variables that `global` or `nonlocal` lets another function assign."""
    return frozenset(
        (owner, name)
        for scope in scopes.opened_by.values()
        for name in scope.declarations
        if (owner := scope.owner(name)) is not None
    )


def _variables_of_names(scopes: Scopes) -> dict[ast.Name, Variable]:
    return {
        node: (owner, node.id)
        for node, scope in scopes.scope_of.items()
        if isinstance(node, ast.Name) and (owner := scope.owner(node.id)) is not None
    }


def _captured(scopes: Scopes, variables: Mapping[ast.Name, Variable]) -> frozenset[Variable]:
    """Variables that functions read and that belong to other functions."""
    return frozenset(
        variable
        for node, variable in variables.items()
        if scopes.scope_of[node].home is not variable[0].home
    )


def _sinks(ids: Sequence[str], edges: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    import networkx  # a quarter of a second, and only here

    whole: Any = networkx.DiGraph()
    whole.add_nodes_from(ids)
    whole.add_edges_from(edges)
    cycles = networkx.condensation(whole)
    last = {i for i in cycles if not cycles.out_degree(i)}
    return tuple(site for site in ids if cycles.graph["mapping"][site] in last)


def _holding(program: Program, heap: Heap, end: State) -> dict[str, Sites]:
    """Maps module-level variables to the sites whose results they may hold, if any; sorted."""
    module = program.scopes.module
    held = {}
    for name in module.bindings:
        objects = end.variables.get((module, name), NOTHING)
        if (module, name) in program.shared:
            objects |= heap.variables.get((module, name), NOTHING)
        code = any(isinstance(obj.node, (*FUNCTIONS, ast.ClassDef)) for obj in objects)
        if not code and (sites := heap.sites(objects, end)):
            held[name] = sites
    return dict(sorted(held.items()))


def _variables(tree: ast.Module, scopes: Scopes) -> tuple[str, ...]:
    """Module-level variables other than modules, functions and classes."""
    defined = {part.name for part in tree.body if isinstance(part, DEFINITIONS)}
    return tuple(
        sorted(
            name
            for name, bindings in scopes.module.bindings.items()
            if name not in defined and any(binding.target is None for binding in bindings)
        )
    )
