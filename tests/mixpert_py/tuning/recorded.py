"""A rewritten program, run while the products that its products read from are noted."""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import mixpert_py
from mixpert_py.runtime.products import in_place
from mixpert_py.sources.in_memory import rewritten_tree
from tests.mixpert_py.tuning.followed import Memory, plain

Pairs = frozenset[tuple[str, str]]
FOLLOW = "_follow"
# Of the runtime's functions, how many of the first arguments are multiplied; the others' all.
OPERANDS = {"matmul": 2, "dot": 2, "dot_method": 2, "inner": 2, "tensordot": 2, "multi_dot": 1}
PRODUCTS = (*OPERANDS, "einsum", "imatmul", "xp_product")


class EnoughError(Exception):
    """A program that would go on for ever has shown what it does."""


class _FollowCalls(ast.NodeTransformer):
    """Arrays that come out of calls and attributes are followed from there on."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        return node if called == "super" else _followed(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return _followed(node) if isinstance(node.ctx, ast.Load) else node


def _followed(node: ast.expr) -> ast.AST:
    call = ast.Call(ast.Name(FOLLOW, ast.Load()), [node], [])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def run(
    source: bytes,
    module: str,
    *,
    names: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = (),
    most: int = 10_000,
) -> Pairs:
    """Producer and consumer of every product seen to read memory computed from another's result.

    names: variables that the program has when it begins. most: calls of products after which it is
    ended. Other exceptions of the program's are the caller's.
    """
    memory = Memory()
    seen: set[tuple[str, str]] = set()
    calls = 0

    def product(
        function: Callable[..., Any], count: int | None, *given: Any, **options: Any
    ) -> Any:
        nonlocal calls
        calls += 1
        if calls > most:
            raise EnoughError
        site = options["site"]
        seen.update((before, site) for before in memory.sites(given[:count]))
        bare, extra = plain(given), plain(options)
        result = function(*bare, **extra)
        return memory.product(
            result,
            site,
            dict(zip(map(id, bare), given, strict=True))
            | {id(extra[name]): options[name] for name in extra},
        )

    tree = _FollowCalls().visit(rewritten_tree(source, module, f"{module}.py", None, None))
    variables = memory.follow(dict(names or {}))
    main = {"__name__": "__main__", FOLLOW: memory.follow, **variables}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"{module}.py", *arguments])
        for name in PRODUCTS:
            wrapped = partial(product, getattr(mixpert_py, name), OPERANDS.get(name))
            patch.setattr(mixpert_py, name, wrapped)
        patch.setattr(in_place, "imatmul", mixpert_py.imatmul)
        with suppress(EnoughError):
            exec(compile(tree, f"{module}.py", "exec"), main)
    return frozenset(seen)
