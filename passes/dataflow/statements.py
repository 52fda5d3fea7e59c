"""Executes statements on abstract values: order, joining branches, loops to a fixpoint."""

# ruff: noqa: N802, N815 — named after the nodes, as a visitor's methods are

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from mixpert_py.passes.dataflow.expressions import Evaluator
from mixpert_py.passes.dataflow.facts import ANY, NOTHING, Objects, State


def joined(one: State | None, other: State | None) -> State | None:
    """A state with every definition of both states; None is a point that no run gets to."""
    if one is None or other is None:
        return other if one is None else one
    both = dict(one)
    for variable, objects in other.items():
        both[variable] = both.get(variable, NOTHING) | objects
    return both


@dataclass(eq=False)
class Executor(Evaluator):
    """Runs the body of the module or of one function.

    jumps: for each loop around this point, the state at its `break` and `continue` statements.
    """

    jumps: list[State | None] = field(default_factory=list)

    def block(self, body: Sequence[ast.stmt], start: State | None = None) -> State | None:
        """Run statements; return the state at their end. start: the state at their beginning, if it
        is not the current one.
        """
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
