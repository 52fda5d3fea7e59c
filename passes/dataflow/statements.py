"""Executes statements on abstract values: order, joining branches, loops to a fixpoint."""

# ruff: noqa: N802, N815 — named after the nodes, as a visitor's methods are

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from mixpert_py.passes.dataflow.calls import CallEvaluator
from mixpert_py.passes.dataflow.own_calls import Arguments
from mixpert_py.passes.dataflow.values import ANY, NOTHING, Loop, Objects, State, joined

Step = Callable[[], None]
MAX_TURNS = 16  # of a loop that is followed turn by turn, each of which takes as long as the loop


@dataclass(eq=False)
class Executor(CallEvaluator):
    """Runs the body of the module or of one function.

    live: whether this point is reached. loops: the loops around it, the innermost last. raised: for
    each `try` around it the state in which a statement of its body raises.
    """

    live: bool = True
    loops: list[Loop] = field(default_factory=list)
    raised: list[State] = field(default_factory=list)

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if not self.live:
                return
            for state in self.raised:
                self.heap.spend((len(self.state.held) + len(self.state.variables)) // 8)
                state.join(self.state)
            self.execute(statement)
        for state in self.raised:
            state.join(self.state)

    def execute(self, statement: ast.stmt) -> None:
        method = getattr(self, f"exec_{type(statement).__name__}", None)
        if method:
            method(statement)
            return
        for part in self.program.parts(statement):
            self.evaluate(part)

    def choose(self, *steps: Step) -> None:
        """Take one of several continuations; the states at their ends are joined."""
        before = self.state
        after: State | None = None
        for step in steps:
            self.state, self.live = self.copy(before), True
            step()
            if self.live:
                if after is None:
                    after = self.state
                else:
                    after.join(self.state)
        self.live = after is not None
        self.state = after or before

    def copy(self, state: State) -> State:
        self.heap.spend((len(state.held) + len(state.variables)) // 8)
        return state.copy()

    def skip(self) -> None:
        """The continuation that does nothing."""

    # Assignments

    def exec_Expr(self, node: ast.Expr) -> None:
        self.discarded = node.value
        self.evaluate(node.value)
        self.discarded = None

    def exec_Assign(self, node: ast.Assign) -> None:
        objects = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, objects)

    def exec_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.assign(node.target, self.evaluate(node.value))

    def exec_AugAssign(self, node: ast.AugAssign) -> None:
        """Change an array in place, which every alias sees; create an object for a number."""
        value = self.evaluate(node.value)
        sites = self.sites(value)
        before = self.evaluate(node.target)
        if product := self.program.operators.get(node):
            own = product.site.id
            self.heap.edges |= {(site, own) for site in sites | self.sites(before)}
            value = self.new(node, frozenset({own}))
            sites = self.sites(value)
        self.put(before - self.heap.containers, sites)
        self.heap.store(before & self.heap.containers, ANY, self.heap.load(value))
        if isinstance(node.target, ast.Subscript):
            self.change(self.evaluate(node.target.value), value, node.target.slice)
        else:
            created = self.new(node, sites | self.sites(before))
            called = self.special_method(node, before, value)
            self.assign(node.target, before | created | called)

    def exec_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.assign(target, NOTHING)
            elif isinstance(target, ast.Subscript):
                self.heap.move(self.evaluate(target.value) & self.heap.containers)

    # Branches

    def exec_If(self, node: ast.If) -> None:
        self.evaluate(node.test)
        self.choose(lambda: self.block(node.body), lambda: self.block(node.orelse))

    def exec_Match(self, node: ast.Match) -> None:
        subject = self.evaluate(node.subject)

        def take(case: ast.match_case) -> Step:
            def step() -> None:
                self.capture(case.pattern, subject)
                self.evaluate(case.guard)
                self.block(case.body)

            return step

        self.choose(*map(take, node.cases), self.skip)

    def capture(self, pattern: ast.pattern, subject: Objects) -> None:
        """Let every name in a pattern be the subject or anything in it."""
        scope = self.scope(pattern)
        parts = frozenset(self.heap.reach(subject))
        for part in ast.walk(pattern):
            name = getattr(part, "rest", None) or getattr(part, "name", None)
            if name is not None:
                self.assign_name(scope, name, parts)

    def exec_Try(self, node: ast.Try) -> None:
        raised = self.copy(self.state)
        self.raised.append(raised)

        def attempt() -> None:
            self.block(node.body)
            if self.live:
                self.block(node.orelse)

        def handle(handler: ast.ExceptHandler) -> Step:
            def step() -> None:
                self.state = self.copy(raised)
                self.block(handler.body)

            return step

        before = self.state
        self.choose(attempt)
        self.raised.pop()
        after, live = self.state, self.live
        self.state, self.live = before, True
        left = self.copy(raised)  # where `finally` begins, if the statement is left at any point
        if node.finalbody:
            self.raised.append(left)
        if node.handlers:
            self.choose(*map(handle, node.handlers))
            if self.live and live:
                self.state.join(after)
            elif live:
                self.state, self.live = after, True
        else:
            self.state, self.live = after, live
        if node.finalbody:
            self.raised.pop()
            after, live = self.state, self.live
            self.state, self.live = left, True
            self.block(node.finalbody)
            if self.live:
                self.go_on(node)
            if live:
                self.state, self.live = after, True
                self.block(node.finalbody)
            else:
                self.live = False

    exec_TryStar = exec_Try

    def go_on(self, node: ast.Try) -> None:
        """Leave the function, or a loop's iteration, from the end of `finally`."""
        self.leave()
        inside = {type(part) for part in ast.walk(node)}
        if self.loops and ast.Break in inside:
            self.loops[-1].broken = joined(self.loops[-1].broken, self.state)
        if self.loops and ast.Continue in inside:
            self.loops[-1].continued = joined(self.loops[-1].continued, self.state)

    # Loops

    def exec_For(self, node: ast.For | ast.AsyncFor) -> None:
        columns = self.columns(node.iter) if self.program.by_turn and not self.turn else []
        if columns:
            self.follow_turns(node, columns)
            return
        iterated = self.evaluate(node.iter)
        self.loop(
            self.skip,
            lambda: self.assign(node.target, self.elements(node.iter, iterated)),
            node.body,
            node.orelse,
        )

    exec_AsyncFor = exec_For

    def columns(self, node: ast.expr) -> list[list[ast.expr]]:
        """The elements of a literal list that a loop iterates over, or of each list in its `zip`.

        None for another iterable, for many elements, or for constants only.
        """
        lists: list[ast.expr] = [node]
        if _is_zip(node) and self.scope(node).owner("zip") is None:
            lists = node.args
        found = [one.elts for one in lists if isinstance(one, ast.List | ast.Tuple)]
        every = [part for elements in found for part in elements]
        is_whole = len(found) == len(lists)
        is_fixed = all(len(elements) <= MAX_TURNS for elements in found) and not any(
            isinstance(part, ast.Starred) for part in every
        )
        has_values = any(not isinstance(part, ast.Constant) for part in every)
        return found if is_whole and is_fixed and has_values else []

    def follow_turns(self, node: ast.For | ast.AsyncFor, columns: list[list[ast.expr]]) -> None:
        """Run a loop over such lists turn by turn: elements at one index go together, and each turn
        creates objects of its own.
        """
        self.heap.has_turns = True
        values = [[self.evaluate(part) for part in elements] for elements in columns]
        broken: State | None = None
        for number, row in enumerate(zip(*values, strict=False)):
            self.turn = f"turn {number}"
            item = self.container(node.iter, dict(enumerate(row))) if _is_zip(node.iter) else row[0]
            self.assign(node.target, item)
            loop = self.body(node.body)
            broken = joined(broken, loop.broken)
            end = joined(loop.continued, self.state if self.live else None)
            self.live = end is not None
            if end is None:
                break
            self.state = end
        self.turn = ""
        if self.live:
            self.block(node.orelse)
        left = joined(broken, self.state if self.live else None)
        self.live = left is not None
        self.state = left or self.state

    def body(self, body: Sequence[ast.stmt]) -> Loop:
        """Run the body of a loop once."""
        loop = Loop()
        self.loops.append(loop)
        self.block(body)
        self.loops.pop()
        return loop

    def exec_While(self, node: ast.While) -> None:
        self.loop(lambda: self.evaluated(node.test), self.skip, node.body, node.orelse)

    def evaluated(self, node: ast.expr) -> None:
        self.evaluate(node)

    def loop(
        self, test: Step, take: Step, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]
    ) -> None:
        """Run a loop until no iteration adds anything.

        test: runs before every iteration and before the end. take: runs at the beginning of one.
        """
        test()
        top = self.state
        while True:
            self.state, self.live = self.copy(top), True
            take()
            loop = self.body(body)
            end = joined(loop.continued, self.state if self.live else None)
            self.state = joined(end, top) or top
            test()
            if not top.join(self.state):
                break
        self.state, self.live = self.copy(top), True
        self.block(orelse)
        left = joined(loop.broken, self.state if self.live else None)
        self.live = left is not None
        self.state = left or self.state

    def exec_Break(self, node: ast.Break) -> None:
        self.loops[-1].broken = joined(self.loops[-1].broken, self.state)
        self.live = False

    def exec_Continue(self, node: ast.Continue) -> None:
        self.loops[-1].continued = joined(self.loops[-1].continued, self.state)
        self.live = False

    # Ends and definitions

    def exec_Return(self, node: ast.Return) -> None:
        self.returns(self.evaluate(node.value))
        self.leave()
        self.live = False

    def leave(self) -> None:
        """Copy into objects that the caller may find what they hold at this point."""
        if self.home.parent is None:
            return
        summary = self.heap.summaries[(self.home.node, self.context)]
        found = summary.given | summary.returned
        if self.context is None:  # what comes from outside the module, or goes there, is lost
            found = frozenset(o for o in summary.given if not isinstance(o.node, ast.arg))
        if summary.exit.gain(self.heap.visible(self.state.held, found)):
            self.heap.changes.append(summary.exit)

    def exec_Raise(self, node: ast.Raise) -> None:
        self.evaluate(node.exc)
        self.leave()
        self.live = False

    def exec_With(self, node: ast.With | ast.AsyncWith) -> None:
        entered = []
        for item in node.items:
            objects = self.evaluate(item.context_expr)
            entered.append((item, objects))
            objects |= self.call_method(item, objects, "__enter__")
            if item.optional_vars:
                self.assign(item.optional_vars, objects)
        self.block(node.body)
        for item, objects in entered:
            self.call_method(item.context_expr, objects, "__exit__")

    exec_AsyncWith = exec_With

    def exec_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.defaults(node)
        created: Objects = frozenset({self.heap.object_at(node)})
        for decorator in node.decorator_list:
            callees = self.evaluate(decorator)
            created |= self.own_code(node, callees, NOTHING, Arguments([created], {})) or NOTHING
        self.assign_name(self.scope(node), node.name, created)

    exec_AsyncFunctionDef = exec_FunctionDef

    def exec_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            self.evaluate(base)
        self.block(node.body)
        scope = self.program.scopes.opened_by[node]
        for name in scope.bindings:
            objects = self.state.variables.get((scope, name), NOTHING)
            self.heap.set_attribute([self.heap.object_at(node)], name, objects)
            self.heap.store_class_attribute(name, objects)
        itself = frozenset({self.heap.object_at(node)})
        self.heap.share(itself)
        created = itself
        for decorator in node.decorator_list:
            callees = self.evaluate(decorator)
            created |= self.own_code(node, callees, NOTHING, Arguments([itself], {})) or NOTHING
        self.assign_name(self.scope(node), node.name, created)


def _is_zip(node: ast.expr) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "zip"
        and not node.keywords
    )
