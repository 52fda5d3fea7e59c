"""A program with `@=` does the same, rewritten as text and as tree."""

import ast
from typing import Any

import numpy as np
import pytest

from mixpert_py.passes.pipeline import analyze, rewrite, rewrite_tree

PROGRAM = b"""
import numpy as np

said = []

def step(name, value):
    said.append(name)
    return value

class Holder:
    shared = np.eye(2)
    shared @= np.full((2, 2), 3.0)

    def __init__(self):
        self.__private = np.eye(2)
        self.x = [np.eye(2), (np.eye(2),)]

    def run(self, w):
        self.__private @= w
        self.x[0] @= w
        try:
            self.x[1][0] @= w
        except TypeError as error:
            said.append(str(error))
        return self.__private

total = np.eye(2)
alias = total

def change(w):
    global total
    total @= w
    inner = 3
    def nested():
        nonlocal inner
        inner @= Right()
    nested()
    return inner

class Right:
    def __rmatmul__(self, other):
        return other, "reflected"

w = np.arange(4.0).reshape(2, 2)
held = Holder().run(w)
changed = change(w)
rows = np.ones((4, 2, 2))
rows[1:3] @= w @ w
step("owner", {step("a", 1): w.copy()})[step("key", 1)] @= step("operand", w)
for i in range(2): w @= w; rows[i] @= w
try:
    unknown @= w
except NameError as error:
    said.append(type(error))
def unbound():
    local @= w
try:
    unbound()
except UnboundLocalError as error:
    said.append(str(error))
same = alias is total
"""
RESULTS = ("said", "total", "alias", "held", "changed", "rows", "w", "same")


def run(program: bytes | ast.Module) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "m"}
    exec(compile(program, "m.py", "exec"), namespace)
    return {name: namespace[name] for name in RESULTS}


@pytest.mark.parametrize("way", ["text", "tree"])
def test_a_program_computes_the_same(way: str) -> None:
    assert all(site.reason is None for site in analyze(PROGRAM, "m"))
    wanted = run(PROGRAM)
    result = run(rewrite(PROGRAM, "m") if way == "text" else rewrite_tree(PROGRAM, "m", "m.py"))
    for name in RESULTS:
        if isinstance(wanted[name], np.ndarray):
            np.testing.assert_array_equal(result[name], wanted[name])
        else:
            assert result[name] == wanted[name]
    assert result["same"]
