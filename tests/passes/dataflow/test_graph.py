"""The graph of programs drawn by hand, of what functions leave for others, and its limits."""

import re

import pytest

from mixpert_py.passes.dataflow.graph import dependencies
from tests.passes.dataflow.hand_drawn import GRAPHS, labels


def found_and_drawn(source: bytes, expected: str) -> tuple[set[str], set[str]]:
    names = labels(source)
    found = {f"{names[a]} -> {names[b]}" for a, b in dependencies(source, "m").edges}
    return found, set(re.findall(r"\w+ -> \w+", expected))


# Programs in which more edges are found than drawn: all elements, or calls, are taken for one.
COARSE = (
    *("in-place-in-a-loop", "zip-of-written-lists", "written-list", "map", "partial", "vectorize"),
    *("dataclass", "dataclass-with-a-base"),
)


@pytest.mark.parametrize(("name", "source", "expected"), GRAPHS, ids=[name for name, *_ in GRAPHS])
def test_the_drawn_edges_are_found(name: str, source: bytes, expected: str) -> None:
    found, drawn = found_and_drawn(source, expected)
    assert drawn < found if name in COARSE else found == drawn


SINKS = [
    ("last-of-a-chain", "c = a @ b  # p\nd = c @ b  # q\n", "q"),
    ("all-of-a-cycle", "x = a\nfor i in y:\n    z = x @ b  # p\n    x = z @ b  # q\n", "p q"),
    ("cycle-with-a-successor",
     "x = a\nfor i in y:\n    x = x @ b  # p\nz = x @ b  # q\n", "q"),
    ("two", "c = a @ b  # p\nd = c @ b  # q\ne = c @ a  # r\n", "q r"),
    ("none", "c = a\n", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(t, e, id=name) for name, t, e in SINKS]
)
def test_sinks(text: str, expected: str) -> None:
    names = labels(text.encode())
    assert [names[site] for site in dependencies(text.encode(), "m").sinks] == expected.split()


def test_names_that_hold_a_product_at_the_end() -> None:
    source = b"""\
import numpy as np
def f(x):
    local = x @ x
    return local
class C:
    def __init__(self): self.x = a @ a
a = np.eye(3)
b = f(a)
c = b + 1
b = 2
d = [c]
e = {"k": a}
g = C()
h = c.shape
for i in d:
    j = i
def k():
    global m
    m = f(a)
"""
    assert dependencies(source, "m").names == ("c", "d", "g", "i", "j", "m")


def test_everything_may_reach_everything_where_that_is_too_much_work() -> None:
    # The more objects a list holds, the more work is each of its elements.
    lists = "".join(f"s += [np.copy(s[{i}]) for x in s] + [a + {i}]\n" for i in range(600))
    source = f"import numpy as np\ns = [b]\n{lists}c = a @ b  # p\nd = a @ b  # q\n".encode()
    names = labels(source)
    found = dependencies(source, "m")
    assert {names[a] + names[b] for a, b in found.edges} == {"pp", "pq", "qp", "qq"}
    assert {"c", "d"} < set(found.names)
    assert [names[site] for site in found.sinks] == ["p", "q"]
    assert found.uses.sites["c"] == found.uses.sites["d"]


def test_without_a_product() -> None:
    assert dependencies(b"a = b\n", "m").edges == frozenset()


def test_functions_that_nobody_calls() -> None:
    text = "".join(f"def f{i}(x, y): return x @ y\n" for i in range(60))
    found = dependencies(text.encode(), "m")
    assert len(found.sinks) == 60
    assert not found.edges
    # A result that a function leaves where others find it does flow.
    shared = "kept = []\ndef f(x, y): kept.append(x @ y)\ndef g(z): return kept[0] @ z\n"
    assert len(dependencies(shared.encode(), "m").edges) == 1


CHANGES = {
    "module": """\
w = np.zeros((3, 3))
def predict(x):
    return w @ x  # q
def fit(a, b):
    w[:] = a @ b  # p
""",
    "class": """\
class Model:
    w = np.zeros((3, 3))
    def predict(self, x):
        return self.w @ x  # q
    def fit(self, a, b):
        self.w[:] = a @ b  # p
""",
    "enclosing": """\
def outer(x):
    w = np.zeros((3, 3))
    def predict():
        return w @ x  # q
    def fit():
        w[:] = x @ x  # p
    return predict, fit
""",
    "out": """\
def fill(out, x):
    parts = [out]
    parts[0][:] = x @ x  # p
def use(x):
    w = np.zeros((3, 3))
    fill(w, x)
    return w @ x  # q
""",
    "attribute": """\
def first(box, x):
    box.w = np.zeros((3, 3))
    second(box.w, x)
    return box.w @ x  # q
def second(w, x):
    np.copyto(w, x @ x)  # p
""",
    "key": """\
def make(x):
    held = {}
    held[".w"] = x @ x  # p
    return held[".w"] @ x  # q
""",
    "imported": """\
import config
def store(x):
    config.w = x @ x  # p
def load(x):
    return config.w @ x  # q
""",
    "classmethod": """\
class Model:
    @classmethod
    def fit(cls, x):
        cls.w = x @ x  # p
    def run(self, x):
        self.fit(x)
    def predict(self, x):
        return self.w @ x  # q
""",
    "default": """\
def step(x, kept=[]):
    if kept:
        return kept[0] @ x  # q
    kept.append(x @ x)  # p
""",
    "place": """\
def use(v, x):
    v[(x @ x).argmax() % 3] = 1.0  # p
    return v @ x  # q
""",
    "container": """\
def store(kept, x):
    kept.append(np.zeros((3, 3)))
    kept[0] += x @ x  # p
def load(x):
    kept = []
    store(kept, x)
    return kept[0] @ x  # q
""",
}


@pytest.mark.parametrize("source", CHANGES.values(), ids=CHANGES)
def test_what_a_function_changes_is_changed_for_all_who_find_it(source: str) -> None:
    source = f"import numpy as np\n{source}"
    names = labels(source.encode())
    edges = {names[a] + names[b] for a, b in dependencies(source.encode(), "m").edges}
    assert edges == {"pq"}


def test_each_operand_of_a_long_chain_is_evaluated_once() -> None:
    count = 40
    chain = " @ ".join(["a"] * (count + 1))
    assert len(dependencies(f"c = {chain}\n".encode(), "m").edges) == count - 1


def test_what_a_function_keeps_to_itself_is_not_found_by_others() -> None:
    source = b"""\
import numpy as np
def f(x):
    w = np.zeros((3, 3))
    g = lambda: 1
    w[:] = x @ x  # p
    return g()
def h(x):
    return x @ x  # q
class Kept:
    def first(self, x):
        own = [np.zeros(3)]
        own[0] += x @ x  # r
    def second(self, x):
        return self.first(x) @ x  # s
"""
    assert not dependencies(source, "m").edges
