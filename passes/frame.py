"""Frame: one running function, or the module: its variables, and the objects that it makes."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from mixpert_py.passes.flow import NOTHING, Heap, Key, Objects, Sites, State
from mixpert_py.passes.names import Names
from mixpert_py.passes.product import Product
from mixpert_py.passes.scope import COMPREHENSIONS, Scope


@dataclass(frozen=True)
class Program:
    """The module: its scopes, its operators and its classes' methods by name."""

    names: Names
    operators: Mapping[ast.AST, Product]
    methods: Mapping[str, tuple[ast.AST, ...]]
    families: Mapping[ast.AST, frozenset[ast.AST]]  # a class and all its bases, where all are here
    shared: frozenset[tuple[Scope, str]]  # variables that a function outside their scope assigns
    by_call: bool  # whether each call of a function is followed separately


class Frame:
    """One function, or the module, at the point that `state` describes.

    home: the function's scope. context: the call that entered it.
    """

    def __init__(
        self,
        program: Program,
        heap: Heap,
        home: Scope,
        state: State,
        context: ast.AST | None = None,
    ) -> None:
        self.program = program
        self.heap = heap
        self.home = home
        self.state = state
        self.context = context
        # Owner of what is stored in attributes of values that are not known at all.
        self.nowhere = heap.thing(program.names.module.node)

    # Values

    def sites(self, objects: Objects) -> Sites:
        return self.heap.sites(objects, self.state)

    def new(self, node: ast.AST, sites: Sites, role: str = "") -> Objects:
        """The object that a node makes, holding these sites' results too from now on."""
        made = frozenset({self.heap.thing(node, role, self.context)})
        self.state.put(made, sites)
        return made

    def container(self, node: ast.AST, elements: Mapping[Key, Objects], role: str = "") -> Objects:
        made = self.heap.thing(node, role, self.context)
        self.heap.containers.add(made)
        for key, objects in elements.items():
            self.heap.store([made], key, objects)
        return frozenset({made})

    # Variables

    def scope(self, node: ast.AST) -> Scope:
        return self.program.names.scope[node]

    def is_here(self, owner: Scope) -> bool:
        """True if a variable belongs to the function that runs, not to one around it."""
        while isinstance(owner.node, COMPREHENSIONS) and owner.parent:
            owner = owner.parent
        while isinstance(owner.node, ast.ClassDef) and owner is not self.home and owner.parent:
            owner = owner.parent
        return owner is self.home

    def read(self, scope: Scope, name: str) -> Objects:
        owner = scope.owner(name)
        if owner is None:
            return NOTHING
        variable = (owner, name)
        if variable in self.program.shared or not self.is_here(owner):
            return self.heap.ever.get(variable, NOTHING)
        return self.state.variables.get(variable, NOTHING)

    def assign_name(self, scope: Scope, name: str, objects: Objects) -> None:
        owner = scope.owner(name) or self.program.names.module
        self.state.variables[(owner, name)] = objects
        self.heap.remember((owner, name), objects)
