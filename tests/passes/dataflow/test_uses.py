"""How variables are used: steps to others, shown values, differences and their operands."""

import pytest

from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.passes.dataflow.uses import Uses


def uses(source: str) -> Uses:
    return dependencies(f"import numpy as np\n{source}".encode(), "m").uses


FEEDS = {
    "a step to another": ("x = a @ b\ny = x + 1\n", {"x": {"y"}}),
    "through an operator": ("x = a @ b\ny = x @ a\n", {"x": {"y"}}),
    "overwritten since": ("x = a @ b\ny = x + 1\nx = b @ a\n", {}),
    "what was read is overwritten": ("x = a @ b\ny = x + 1\ny = b @ a\n", {}),
    "updated since": ("x = a @ b\ny = x + 1\ny += b @ a\n", {"x": {"y"}}),
    "an update of its own": ("x = a @ b\nx = x + 1\nx *= 2\nx[0] = 1\n", {}),
    "perhaps not executed": ("x = a @ b\ny = b @ a\nif c:\n    y = y + x\n", {}),
    "executed with it": ("if c:\n    x = a @ b\n    y = x + 1\n", {"x": {"y"}}),
    "the guard of a script": (
        "if __name__ == '__main__':\n    x = a @ b\n    y = x + 1\n    y = a @ b\n    z = y + x\n",
        {"x": {"z"}, "y": {"z"}},
    ),
    "an element": ("x = a @ b\ny = np.zeros(3)\ny[0] = x[0, 0]\n", {"x": {"y"}}),
    "out=": ("x = a @ b\ny = a @ a\nnp.add(x, y, out=y)\n", {"x": {"y"}}),
    "a list": ("x = a @ b\ny = []\ny.append(x)\n", {"x": {"y"}}),
    "unpacked": ("x = a @ b\ny, z = x + 1, x + 2\n", {"x": {"y", "z"}}),
    "by the name of another scope": (
        "x = a @ b\ny = [x + a @ b for x in c]\nz = (lambda x: x + a @ b)(y)\n",
        {"y": {"z"}},
    ),
}


@pytest.mark.parametrize(("source", "expected"), FEEDS.values(), ids=FEEDS)
def test_steps(source: str, expected: dict[str, set[str]]) -> None:
    found = uses(source)
    assert found.feeds == expected
    assert found.later == expected


SUMS = {
    "learned weights": ("w = a @ b\nfor k in c:\n    w -= 0.1 * (a @ w)\n", {"w"}),
    "written out": ("w = a @ b\nfor k in c:\n    w = w + a @ w\n", {"w"}),
    "in no loop": ("w = a @ b\nw = w + a @ w\n", set()),
    "made anew": ("w = a @ b\nfor k in c:\n    w = a @ w\n", set()),
    "scaled, too": ("w = a @ b\nfor k in c:\n    w *= 2\n    w += a @ w\n", set()),
    "the other operand": ("w = a @ b\nfor k in c:\n    w = a @ w + w\n", set()),
}


@pytest.mark.parametrize(("source", "expected"), SUMS.values(), ids=SUMS)
def test_sums(source: str, expected: set[str]) -> None:
    assert uses(source).sums == expected


SHOWN = {
    "printed": ("x = a @ b\ny = a @ b\nprint('x', x[0])\n", {"x"}),
    "within other text": ("x = a @ b\nprint(f'{x.max():.3}')\n", {"x"}),
    "written": ("x = a @ b\nnp.save('f', x)\n", {"x"}),
    "by a method": ("x = a @ b\nx.tofile('f')\n", {"x"}),
    "in a loop": ("x = a @ b\nfor k in c:\n    print(x[k])\n", {"x"}),
    "by a function of the module": (
        "def show(x):\n    print(x)\n    return x\nx = a @ b\ny = show(x)\n",
        {"x"},
    ),
    "read by a function": ("x = a @ b\ny = a @ b\ndef f():\n    return x\n", {"x"}),
    "in a rare statement": (
        "x = a @ b\ntry:\n    y = x + 1\nexcept ValueError:\n    pass\n",
        {"x", "y"},
    ),
    "not shown": (
        "x = a @ b\nif x.max() > 1:\n    y = x + 1\nwhile x.min() > 1:\n    x -= 1\n",
        set(),
    ),
}


@pytest.mark.parametrize(("source", "expected"), SHOWN.values(), ids=SHOWN)
def test_what_is_shown(source: str, expected: set[str]) -> None:
    assert uses(source).shown == expected


DIFFERENCES = {
    "a residual": ("r = b - a @ x\n", ("b",)),
    "the other way round": ("r = a @ x - b\n", ("b",)),
    "negated": ("r = -(b - a @ x)\n", ("-b",)),
    "of two variables": ("p = a @ b\nq = b @ a\nr = p - q\n", ("p", "q")),
    "a norm": ("r = np.linalg.norm(b - a @ x)\n", ("np.linalg.norm(b)",)),
    "another module's norm": (
        "from scipy.linalg import norm\nr = norm(b - a @ x, 2)\n",
        ("norm(b, 2)",),
    ),
    "a relative norm": (
        "r = np.linalg.norm(b - a @ x) / np.linalg.norm(b)\n",
        ("np.linalg.norm(b) / np.linalg.norm(b)",),
    ),
    "the largest": ("r = np.abs(a @ x - b).max()\n", ("np.abs(b).max()",)),
    "a builtin": ("r = abs(b - a @ x)\n", ("abs(b)",)),
    "through a variable": ("d = b - a @ x\nr = np.max(d)\n", ("np.max(b)",)),
    "updated": ("r = b - a @ x\nfor k in c:\n    r = r - k * (a @ x)\n", ("b",)),
    "updated in place": ("r = b - a @ x\nfor k in c:\n    r -= k * (a @ x)\n", ("b",)),
    "no operand to look up": ("r = a @ b - b @ a\n", ()),
    "a sum": ("r = b + a @ x\n", ()),
    "an update of something else": ("r = np.ones(3)\nr = r - a @ x\n", ()),
    "in one branch only": ("r = a @ x\nif c:\n    r = b - a @ x\n", ()),
    "with an effect": ("r = np.abs(b - a @ x) / f(b)\n", ()),
    "by a function that is not known": ("r = norm(b - a @ x)\n", ()),
    "an element": ("r = a @ x\nr[0] = b - r[1]\n", ()),
}


@pytest.mark.parametrize(("source", "expected"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_differences(source: str, expected: tuple[str, ...]) -> None:
    found = uses(f"a = b = x = c = f = eval(input())\n{source}").differences
    assert found.get("r", ()) == expected
