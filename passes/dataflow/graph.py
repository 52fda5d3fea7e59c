"""The dependency graph: which products' results can reach which products' operands.

It is computed from reaching definitions, by abstract interpretation of the module. A value is the
set of objects that it may be, and an object holds the sites whose results it may contain.
Statements run in order, branches join, and loops and functions run until nothing is added. What an
object holds is not ordered in time. A function has one summary for each call or, if that takes too
long, one for all calls. If this takes too long as well, every product may reach every other.
Control dependence (`if` on a result) is not an edge.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from mixpert_py.passes.dataflow.facts import (
    NOTHING,
    FlowFacts,
    Key,
    Objects,
    SiteIds,
    TooComplexError,
)
from mixpert_py.passes.dataflow.interpreter import Interpreter
from mixpert_py.passes.dataflow.uses import NOT_KNOWN, Uses, uses
from mixpert_py.passes.finder import analysis_of
from mixpert_py.passes.scopes import FUNCTIONS, read_scopes
from mixpert_py.passes.source import parse, refusing_depth

# Some million units of work take a second.
MAX_WORK = 1_000_000
WORK_PER_SITE = 50_000
NOTHING_IMPORTED: Mapping[str, SiteIds] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependency graph of the operators of a module.

    edges: pairs (P, S): a value computed from P's result can reach an operand of S; a loop may make
    S its own predecessor. sinks: sites without a successor outside their own cycle, in source
    order. names: module-level variables that may hold a product's value when the script ends,
    sorted. uses: where the module reads these variables. ids: the ids of all sites of the module,
    and after them the ids of the sites in other modules.
    """

    edges: frozenset[tuple[str, str]]
    sinks: tuple[str, ...]
    names: tuple[str, ...]
    uses: Uses = NOT_KNOWN
    ids: tuple[str, ...] = ()


def dependencies(
    source: bytes, module: str, imported: Mapping[str, SiteIds] = NOTHING_IMPORTED
) -> Dependencies:
    """The flow of values between the rewritten products of a file; others are expressions.

    imported: maps a module, as the file spells it in its import, to the sites that calls of its
    functions may reach. Raises SourceError as `pipeline.analyze` does.
    """
    analysis = analysis_of(source, module)
    tree, scopes = analysis.tree, analysis.scopes
    with refusing_depth(module):
        if imported and not analysis.products:  # the file has not been parsed
            tree = parse(analysis.source.text, module)
            scopes = read_scopes(tree)
        operators = {product.node: product for product in analysis.rewritten}
        ids = list(dict.fromkeys(product.site.id for product in operators.values()))
        ids += sorted(frozenset().union(*imported.values()) - set(ids))
        if not ids:
            return Dependencies(frozenset(), (), ())
        for by_call in (True, False):
            work = min(MAX_WORK, WORK_PER_SITE * (len(ids) + 2))
            facts = FlowFacts(scopes, operators, imported, by_call, work)
            try:
                held = _holding(facts, _fixpoint(tree, facts))
            except TooComplexError:
                continue
            edges = frozenset(facts.edges)
            break
        else:
            edges = frozenset((one, other) for one in ids for other in ids)
            held = dict.fromkeys(sorted(scopes.module.bindings), frozenset(ids))
        found = uses(tree, scopes, held)
        return Dependencies(edges, _sinks(ids, edges), tuple(held), found, tuple(ids))


def joined(flows: Sequence[Dependencies]) -> Dependencies:
    """The graph of a program of several files. The first one is the program's own file."""
    if len(flows) < 2:
        return flows[0] if flows else Dependencies(frozenset(), (), ())
    edges = frozenset[tuple[str, str]]().union(*(flow.edges for flow in flows))
    ids = list(dict.fromkeys(site for flow in flows for site in flow.ids))
    return replace(flows[0], edges=edges, sinks=_sinks(ids, edges), ids=tuple(ids))


def _fixpoint(tree: ast.Module, facts: FlowFacts) -> Interpreter:
    """Run the module and every function until nothing is added; return the module's last run.

    Functions that the module does not call run as if called from outside afterwards, with
    instances of their class and arguments without a product.
    """
    is_outside = False
    while True:
        facts.grown = False
        module = Interpreter(facts, facts.scopes.module)
        module.block(tree.body)
        if is_outside:
            _call_from_outside(module)
        for (function, context), parameters in reversed(list(facts.parameters.items())):
            home = facts.scopes.opened_by[function]
            running = Interpreter(facts, home, context)
            for name, objects in parameters.items():
                running.assign_name(home, name, objects)
            assert isinstance(function, FUNCTIONS)
            if isinstance(function, ast.Lambda):
                running.returns(running.evaluate(function.body))
            else:
                running.block(function.body)
        if not facts.grown and is_outside:
            return module
        is_outside |= not facts.grown


def _call_from_outside(module: Interpreter) -> None:
    """Call each function that the module does not call. Methods of a class share an instance."""
    facts = module.facts
    entered = {function for function, _ in facts.parameters}
    opened = [facts.object_at(node) for node in facts.scopes.opened_by]
    for function in list(facts.defaults):
        assert isinstance(function, FUNCTIONS)
        if function in entered and getattr(function, "name", "") != "__init__":
            continue
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        given: dict[Key, Objects] = {
            one.arg: frozenset({facts.object_at(one)}) for one in parameters
        }
        around = facts.scopes.opened_by[function].parent
        if parameters and around and isinstance(around.node, ast.ClassDef):
            definition = facts.object_at(around.node)
            heirs = [one for one in opened if one.is_class and definition in facts.family(one)]
            instances = {facts.object_at(one.node, "self"): one for one in heirs}
            facts.class_of.update(instances)
            given[parameters[0].arg] = frozenset(instances)
        module.enter(function, function, given, NOTHING)


def _sinks(ids: Sequence[str], edges: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    import networkx  # a quarter of a second, and only here

    whole: Any = networkx.DiGraph()
    whole.add_nodes_from(ids)
    whole.add_edges_from(edges)
    cycles = networkx.condensation(whole)
    last = {i for i in cycles if not cycles.out_degree(i)}
    return tuple(site for site in ids if cycles.graph["mapping"][site] in last)


def _holding(facts: FlowFacts, end: Interpreter) -> dict[str, SiteIds]:
    """Maps module-level variables to the sites whose results they may hold, if any; sorted."""
    module = facts.scopes.module
    held = {}
    for name in sorted(module.bindings):
        objects = (end.state or {}).get((module, name), NOTHING)
        if (module, name) in facts.shared:
            objects |= facts.variables.get((module, name), NOTHING)
        is_code = any(one.is_function or one.is_class for one in objects)
        if not is_code and (sites := facts.sites(objects)):
            held[name] = sites
    return held
